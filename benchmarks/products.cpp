// All products of a step, as our decoder computes them, and nothing else.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shares.hpp"

namespace headpond {

// Matrices of one format but for the last, the head, and inputs and outputs of any value.
class Products {
 public:
  Products(const Matrix* matrices, int count, int rows, int head_rows, int threads)
      : matrices_(matrices, matrices + count), rows_(rows), head_rows_(head_rows), team_(threads) {
    for (const Matrix& w : matrices_) {
      const size_t most = std::max(rows, head_rows);
      values_.resize(std::max(values_.size(), most * row_bytes(w.format, w.depth)));
      scales_.resize(std::max(scales_.size(), most * (w.depth / GROUP)));
      out_.resize(std::max(out_.size(), most * w.columns));
    }
    sums_ = scales_;
  }

  void step() {
    team_.run([&](int) {
      for (const Matrix& w : matrices_) {
        Rows in;
        in.values = values_.data();
        in.scales = scales_.data();
        in.sums = sums_.data();
        in.shifts = reinterpret_cast<int32_t*>(in.sums);
        in.stride = row_bytes(w.format, w.depth);
        in.groups = w.depth / GROUP;
        const int rows = &w == &matrices_.back() ? head_rows_ : rows_;
        multiply(team_, w, in, rows, out_.data(), w.columns, false);
      }
    });
  }

 private:
  const std::vector<Matrix> matrices_;
  const int rows_, head_rows_;
  Team team_;
  std::vector<uint8_t> values_;
  std::vector<float> scales_, sums_, out_;
};

}  // namespace headpond

extern "C" {

using namespace headpond;

void* headpond_products(const Matrix* matrices, int32_t count, int32_t rows, int32_t head_rows,
                        int32_t threads) {
  return new Products(matrices, count, rows, head_rows, threads);
}

void headpond_products_step(void* products) { static_cast<Products*>(products)->step(); }

void headpond_products_free(void* products) { delete static_cast<Products*>(products); }

}  // extern "C"

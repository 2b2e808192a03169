// The forward of a transformer encoder of the BERT family over sequences that lie one after the
// other, without padding.
//
// One call computes one batch on the thread that makes it. Between products values are float32;
// what goes into a product is in the format of its weights. Whatever is computed for a token
// depends on its own sequence only, to the bit. The structures are mirrored by structures.py.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#include "attention.hpp"
#include "buffer.hpp"
#include "functions.hpp"
#include "products.hpp"

namespace headpond {

// Weight and bias of a layer norm, [hidden] each.
struct Norm {
  const float* weight;
  const float* bias;
};

struct Layer {
  Matrix qkv, output, up, down;
  Norm attention_norm, output_norm;
};

struct Model {
  int32_t layers, hidden, heads, intermediate;
  float epsilon;
  int32_t words_bf16;
  const Layer* layer;
  const uint8_t* words;    // [vocabulary, hidden], in bfloat16 or float32
  const float* positions;  // [positions, hidden]
  const float* types;      // [types, hidden]
  Norm norm;
};

struct Batch {
  int32_t rows, sequences;
  int32_t first_only;     // whether only the first token of each sequence is wanted
  const int32_t* tokens;  // [rows]
  const int32_t* types;   // [rows]
  const int32_t* starts;  // [sequences + 1]: the first row of each, and of the one after the last
  float* out;             // [rows, hidden], or [sequences, hidden]
};

class Encoder {
 public:
  explicit Encoder(const Model& model)
      : model_(model),
        // Rounding scores to whole numbers would cost more than it saves.
        attention_(model.layer[0].qkv.format == Format::f32 ? Format::f32 : Format::bf16,
                   model.hidden / model.heads) {}

  void forward(const Batch& batch) {
    const size_t hidden = model_.hidden, rows = batch.rows;
    const size_t widest = std::max(model_.hidden, model_.intermediate);
    // The residual ends as the result, when that has a row for each of the batch's.
    residual_ = batch.first_only ? residual_buffer_.get(rows * hidden) : batch.out;
    inner_ = inner_buffer_.get(rows * hidden);
    wide_ = wide_buffer_.get(rows * std::max(3 * hidden, size_t(model_.intermediate)));
    input_.values = input_buffer_.get(rows * widest * 4);
    input_.scales = scale_buffer_.get(rows * (widest / GROUP));
    input_.shifts = shift_buffer_.get(rows * (widest / GROUP));
    embed(batch);
    for (int at = 0; at < model_.layers; ++at)
      compute(model_.layer[at], batch, batch.first_only && at == model_.layers - 1);
    if (batch.first_only)
      std::memcpy(batch.out, residual_, batch.sequences * hidden * sizeof(float));
  }

 private:
  void embed(const Batch& batch) const {
    const int hidden = model_.hidden;
    for (int sequence = 0; sequence < batch.sequences; ++sequence)
      for (int row = batch.starts[sequence]; row < batch.starts[sequence + 1]; ++row) {
        const float* position = model_.positions + size_t(row - batch.starts[sequence]) * hidden;
        const float* type = model_.types + size_t(batch.types[row]) * hidden;
        float* to = residual_ + size_t(row) * hidden;
        for (int at = 0; at < hidden; at += 16)
          _mm512_storeu_ps(to + at, _mm512_add_ps(_mm512_add_ps(word(batch.tokens[row], at),
                                                                _mm512_loadu_ps(type + at)),
                                                  _mm512_loadu_ps(position + at)));
        normalize(model_.norm, to);
      }
  }

  __m512 word(int token, int at) const {
    const size_t place = size_t(token) * model_.hidden + at;
    if (!model_.words_bf16)
      return _mm512_loadu_ps(reinterpret_cast<const float*>(model_.words) + place);
    const auto* from = reinterpret_cast<const __m256i*>(model_.words + place * 2);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16));
  }

  // Compute one layer. With `narrow`, only each sequence's first row goes on after its attention,
  // and the rows of the residual become one for each sequence.
  void compute(const Layer& layer, const Batch& batch, bool narrow) {
    const int hidden = model_.hidden, inter = model_.intermediate;
    take(layer.qkv, residual_, batch.rows, hidden);
    multiply_all(layer.qkv, batch.rows, wide_, 3 * hidden, false);
    for (int sequence = 0; sequence < batch.sequences; ++sequence)
      attend(batch, sequence, narrow);
    const int rows = narrow ? batch.sequences : batch.rows;
    if (narrow)
      for (int sequence = 0; sequence < batch.sequences; ++sequence)
        std::memmove(residual_ + size_t(sequence) * hidden,
                     residual_ + size_t(batch.starts[sequence]) * hidden, hidden * sizeof(float));
    take(layer.output, inner_, rows, hidden);
    multiply_all(layer.output, rows, residual_, hidden, true);
    normalize_all(layer.attention_norm, rows);
    take(layer.up, residual_, rows, hidden);
    multiply_all(layer.up, rows, wide_, inter, false);
    for (size_t at = 0; at < size_t(rows) * inter; at += 16)
      _mm512_storeu_ps(wide_ + at, gelu_ps(_mm512_loadu_ps(wide_ + at)));
    take(layer.down, wide_, rows, inter);
    multiply_all(layer.down, rows, residual_, hidden, true);
    normalize_all(layer.output_norm, rows);
  }

  void attend(const Batch& batch, int sequence, bool narrow) {
    const size_t hidden = model_.hidden, stride = 3 * hidden, width = hidden / model_.heads;
    const int first = batch.starts[sequence], count = batch.starts[sequence + 1] - first;
    const float scaling = 1.0f / std::sqrt(float(width));
    for (int head = 0; head < model_.heads; ++head) {
      const float* queries = wide_ + first * stride + head * width;
      const Span span{.queries = queries,
                      .keys = queries + hidden,
                      .values = queries + 2 * hidden,
                      .stride = stride,
                      .count = count,
                      .wanted = narrow ? 1 : count,
                      .out = inner_ + (narrow ? sequence : first) * hidden + head * width,
                      .out_stride = hidden};
      attention_.attend(span, scaling);
    }
  }

  // Take rows as the next product's input.
  void take(const Matrix& next, const float* from, int rows, int depth) {
    input_.stride = row_bytes(next.format, depth);
    input_.groups = depth / GROUP;
    for (int row = 0; row < rows; ++row)
      put_row(next.format, from + size_t(row) * depth, depth, input_, row);
  }

  void multiply_all(const Matrix& w, int rows, float* out, size_t stride, bool add) const {
    for (int tile = 0; tile < w.tiles(); ++tile) multiply(w, tile, input_, rows, out, stride, add);
  }

  void normalize_all(const Norm& norm, int rows) const {
    for (int row = 0; row < rows; ++row) normalize(norm, residual_ + size_t(row) * model_.hidden);
  }

  void normalize(const Norm& norm, float* values) const {
    const int hidden = model_.hidden;
    __m512 sum = _mm512_setzero_ps(), squares = sum;
    for (int at = 0; at < hidden; at += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(values + at));
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / float(hidden));
    for (int at = 0; at < hidden; at += 16) {
      const __m512 apart = _mm512_sub_ps(_mm512_loadu_ps(values + at), mean);
      squares = _mm512_fmadd_ps(apart, apart, squares);
    }
    const float variance = _mm512_reduce_add_ps(squares) / float(hidden);
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(variance + model_.epsilon));
    for (int at = 0; at < hidden; at += 16) {
      const __m512 apart = _mm512_sub_ps(_mm512_loadu_ps(values + at), mean);
      _mm512_storeu_ps(values + at, _mm512_fmadd_ps(_mm512_mul_ps(apart, factor),
                                                    _mm512_loadu_ps(norm.weight + at),
                                                    _mm512_loadu_ps(norm.bias + at)));
    }
  }

  const Model model_;
  Attention attention_;
  Buffer<float> residual_buffer_, inner_buffer_, wide_buffer_, scale_buffer_;
  Buffer<int32_t> shift_buffer_;
  Buffer<uint8_t> input_buffer_;
  float *residual_ = nullptr, *inner_ = nullptr, *wide_ = nullptr;
  Rows input_;
};

}  // namespace headpond

extern "C" {

using namespace headpond;

// What one thread at a time computes with; the model's weights are shared, and stay the caller's.
void* headpond_encoder(const Model* model) { return new (std::nothrow) Encoder(*model); }

void headpond_encoder_free(void* encoder) { delete static_cast<Encoder*>(encoder); }

// Compute one batch; 0, or 1 when memory ran out.
int32_t headpond_encode(void* encoder, const Batch* batch) {
  try {
    static_cast<Encoder*>(encoder)->forward(*batch);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // extern "C"

// The forward of a decoder-only transformer of the Llama family, for all sequences of a step.
//
// One call computes one step on all threads of a team. Between layers values are float32; what
// goes into a product is in the format of its weights.

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "attention.hpp"
#include "buffer.hpp"
#include "packing.hpp"
#include "plan.hpp"
#include "products.hpp"
#include "sampling.hpp"
#include "shares.hpp"
#include "structures.hpp"
#include "team.hpp"

namespace headpond {

class Decoder {
 public:
  Decoder(const Model& model, int threads) : model_(model), team_(threads) {}

  void set_adapters(const Adapter* adapters, int count) {
    adapters_.assign(adapters, adapters + count);
  }

  void forward(const Step& step) {
    prepare(step);
    team_.run([&](int) { compute(step); });
  }

 private:
  enum Product { QKV, OUTPUT, GATE_UP, DOWN };

  int shared() const { return model_.heads / model_.kv_heads; }

  void prepare(const Step& step) {
    const size_t rows = step.rows;
    const int attended = model_.heads * model_.width;
    residual_ = residual_buffer_.get(rows * model_.hidden);
    inner_ = inner_buffer_.get(rows * std::max(model_.hidden, attended));
    wide_ = wide_buffer_.get(
        rows * std::max(2 * model_.intermediate, attended + 2 * model_.kv_heads * model_.width));
    query_ = query_buffer_.get(rows * attended * model_.cache.value_bytes());
    const size_t depth = std::max({model_.hidden, attended, model_.intermediate});
    input_.values = input_buffer_.get(std::max(rows, size_t(step.wanted)) * depth * 4);
    input_.scales = scale_buffer_.get(std::max(rows, size_t(step.wanted)) * (depth / GROUP));
    input_.sums = sum_buffer_.get(std::max(rows, size_t(step.wanted)) * (depth / GROUP));
    input_.shifts = reinterpret_cast<int32_t*>(input_.sums);
    plan_.prepare(step, model_, adapters_.data());
    kept_ = kept_buffer_.get(plan_.wanted.rows.size() * model_.hidden);
    int rank = 0;
    for (const Segment& segment : plan_.all.segments) rank = std::max(rank, segment.adapter->rank);
    if (rank) low_ = low_buffer_.get(rows * rank);
  }

  void compute(const Step& step) {
    team_.deal(step.rows, 4, [&](int row) {
      embed(step.tokens[row], residual_ + size_t(row) * model_.hidden);
    });
    for (int at = 0; at < model_.layers; ++at) compute_layer(step, at);
    compute_logits(step);
  }

  // The last layer's rows end with their keys, but for those that are wanted.
  void compute_layer(const Step& step, int at) {
    const Layer& layer = model_.layer[at];
    const bool last = at + 1 == model_.layers;
    const int qkv = (model_.heads + 2 * model_.kv_heads) * model_.width;
    norm_all(layer.attention_norm, residual_, step.rows, layer.qkv);
    multiply_all(layer.qkv, at, QKV, plan_.all, inner_, model_.hidden, wide_, qkv, false);
    // Neighbours' keys share lines of memory.
    team_.deal(step.rows, team_.grain(step.rows, KEYS), [&](int row) {
      turn(step, layer, at, row, wide_ + size_t(row) * qkv);
    });
    finish_layer(step, at, last ? plan_.wanted : plan_.all, last ? kept_ : residual_);
  }

  void finish_layer(const Step& step, int at, const Scope& scope, float* residual) {
    const Layer& layer = model_.layer[at];
    const int rows = int(scope.rows.size()), tasks = int(scope.tasks.size());
    const int hidden = model_.hidden, inter = model_.intermediate;
    const int attended = model_.heads * model_.width;
    team_.deal(tasks, team_.grain(tasks, 4), [&](int task) { attend_task(step, at, scope, task); });
    const Rows input = input_for(layer.output);
    team_.deal(rows, 4, [&](int place) {
      put_row(layer.output.format, inner_ + size_t(place) * attended, attended, input, place);
      if (residual != residual_)
        std::copy_n(residual_ + size_t(scope.rows[place]) * hidden, hidden,
                    residual + size_t(place) * hidden);
    });
    multiply_all(layer.output, at, OUTPUT, scope, inner_, attended, residual, hidden, true);
    norm_all(layer.mlp_norm, residual, rows, layer.gate_up);
    multiply_all(layer.gate_up, at, GATE_UP, scope, inner_, hidden, wide_, 2 * inter, false);
    const Rows gated = input_for(layer.down);
    team_.deal(rows, 1, [&](int place) {
      float* gate = wide_ + size_t(place) * 2 * inter;
      activate(gate, inter);
      put_row(layer.down.format, gate, inter, gated, place);
    });
    multiply_all(layer.down, at, DOWN, scope, wide_, 2 * inter, residual, hidden, true);
  }

  void compute_logits(const Step& step) {
    if (step.wanted == 0) return;
    const Rows input = input_for(model_.head);
    team_.deal(step.wanted, 1, [&](int at) {
      float* to = inner_ + size_t(at) * model_.hidden;
      // `inner_` has a row for each of the step's; more logits than rows are never wanted.
      const int place = plan_.wanted.place[step.wanted_rows[at]];
      norm(kept_ + size_t(place) * model_.hidden, model_.final_norm, model_.hidden, to);
      put_row(model_.head.format, to, model_.hidden, input, at);
    });
    multiply(team_, model_.head, input, step.wanted, step.logits, model_.vocabulary, false);
  }

  Rows input_for(const Matrix& weights) const {
    Rows rows = input_;
    rows.stride = row_bytes(weights.format, weights.depth);
    rows.groups = weights.depth / GROUP;
    return rows;
  }

  // Normalise every row of a residual into `inner_` and into the next product's input.
  void norm_all(const float* weight, const float* residual, int rows, const Matrix& next) {
    const Rows input = input_for(next);
    team_.deal(rows, 2, [&](int row) {
      float* to = inner_ + size_t(row) * model_.hidden;
      norm(residual + size_t(row) * model_.hidden, weight, model_.hidden, to);
      put_row(next.format, to, model_.hidden, input, row);
    });
  }

  void multiply_all(const Matrix& w, int layer, Product product, const Scope& scope,
                    const float* source, size_t source_stride, float* out, size_t stride,
                    bool add) {
    const Rows input = input_for(w);
    const int rows = int(scope.rows.size());
    multiply(team_, w, input, rows, out, stride, add);
    for (const Segment& segment : scope.segments) {
      const LowRank& low = segment.adapter->layer[layer * 4 + product];
      if (low.down.columns == 0) continue;
      add_low_rank(low, segment, source, source_stride, out, stride);
    }
  }

  void add_low_rank(const LowRank& low, const Segment& segment, const float* source,
                    size_t source_stride, float* out, size_t stride) {
    Rows from, middle;
    from.values = reinterpret_cast<uint8_t*>(
        const_cast<float*>(source + source_stride * segment.place));
    from.stride = source_stride * 4;
    middle.values = reinterpret_cast<uint8_t*>(low_);
    middle.stride = size_t(low.down.columns) * 4;
    multiply(team_, low.down, from, segment.count, low_, low.down.columns, false);
    multiply(team_, low.up, middle, segment.count, out + stride * segment.place, stride, true);
  }

  // A token's row of the embedding: its own table, or a column of the head where both are one.
  void embed(int token, float* to) const {
    const int hidden = model_.hidden;
    if (model_.embedding == nullptr) return unpack_column(model_.head, token, to);
    if (!model_.embedding_bf16) {
      const auto* from = reinterpret_cast<const float*>(model_.embedding) + size_t(token) * hidden;
      std::copy(from, from + hidden, to);
      return;
    }
    const auto* from = reinterpret_cast<const uint16_t*>(model_.embedding) + size_t(token) * hidden;
    for (int at = 0; at < hidden; ++at) to[at] = from_bf16(from[at]);
  }

  void norm(const float* from, const float* weight, int count, float* to) const {
    __m512 squares = _mm512_setzero_ps();
    for (int at = 0; at < count; at += 16) {
      const __m512 value = _mm512_loadu_ps(from + at);
      squares = _mm512_fmadd_ps(value, value, squares);
    }
    const float mean = _mm512_reduce_add_ps(squares) / float(count);
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(mean + model_.epsilon));
    for (int at = 0; at < count; at += 16)
      _mm512_storeu_ps(to + at, _mm512_mul_ps(_mm512_loadu_ps(weight + at),
                                              _mm512_mul_ps(_mm512_loadu_ps(from + at), factor)));
  }

  // Turn a row's queries and keys by its position, and keep its keys and values.
  void turn(const Step& step, const Layer& layer, int at, int row, float* qkv) {
    const int width = model_.width, position = plan_.position[row];
    const Span& span = step.span[plan_.span_of[row]];
    for (int head = 0; head < model_.heads; ++head)
      put_query(layer, row, head, qkv + head * width, position);
    float* keys = qkv + model_.heads * width;
    const float* values = keys + model_.kv_heads * width;
    const int32_t block = span.blocks[position / model_.cache.block_tokens];
    for (int head = 0; head < model_.kv_heads; ++head) {
      float* key = keys + head * width;
      if (layer.key_norm) norm(key, layer.key_norm, width, key);
      rotate(key, position);
      put_token(model_.cache, model_.cache.piece(at, block, position, head), position, key,
                values + head * width);
    }
  }

  void put_query(const Layer& layer, int row, int head, float* query, int position) {
    const int width = model_.width, group = head / shared();
    if (layer.query_norm) norm(query, layer.query_norm, width, query);
    rotate(query, position);
    const size_t at = (size_t(group) * plan_.position.size() + row) * shared() + head % shared();
    Rows to;
    to.values = query_;
    to.stride = width * model_.cache.value_bytes();
    put_row(model_.cache.bf16 ? Format::bf16 : Format::f32, query, width, to, int(at));
  }

  void rotate(float* values, int position) const {
    const int half = model_.width / 2;
    const float* cosines = model_.cosines + size_t(position) * half;
    const float* sines = model_.sines + size_t(position) * half;
    for (int at = 0; at < half; at += 16) {
      const __m512 left = _mm512_loadu_ps(values + at), right = _mm512_loadu_ps(values + half + at);
      const __m512 cosine = _mm512_loadu_ps(cosines + at), sine = _mm512_loadu_ps(sines + at);
      _mm512_storeu_ps(values + at, _mm512_fmsub_ps(left, cosine, _mm512_mul_ps(right, sine)));
      _mm512_storeu_ps(values + half + at,
                       _mm512_fmadd_ps(right, cosine, _mm512_mul_ps(left, sine)));
    }
  }

  Keys keys_of(const Step& step, int layer, int head, int span, int last_row) const {
    return {model_.cache, layer, head, step.span[span].blocks, plan_.position[last_row]};
  }

  void attend_task(const Step& step, int at, const Scope& scope, int which) {
    const Task& task = scope.tasks[which];
    const Task& next = scope.tasks[std::min(which + 1, int(scope.tasks.size()) - 1)];
    const Keys after = keys_of(step, at, next.head, next.span, step.span[next.span].row);
    if (model_.cache.bf16) attend_spans<true>(step, at, scope, task, after);
    else attend_spans<false>(step, at, scope, task, after);
  }

  template <bool BF16>
  void attend_spans(const Step& step, int at, const Scope& scope, const Task& task,
                    const Keys& after) {
    const int width = model_.width, window = model_.layer[at].window;
    const int first_row = step.span[task.span].row;
    const float scaling = model_.scaling * 1.44269504f;  // weights are powers of two
    const size_t base = (size_t(task.head) * plan_.position.size() + first_row) * shared() + task.first;
    const uint8_t* queries = query_ + base * width * model_.cache.value_bytes();
    int32_t positions[HEADS], oldest = std::numeric_limits<int32_t>::max();
    for (int m = 0; m < task.count; ++m) {
      positions[m] = plan_.position[first_row + (task.first + m) / shared()];
      oldest = std::min(oldest, positions[m] - window + 1);
    }
    const int begin = window > 0 && oldest > 0 ? oldest / RUN * RUN : 0;
    Partial partial;
    partial.clear(task.count * width);
    auto add = [&](int span, int m, int count, int from, int end) {
      const Query query{queries + size_t(m) * width * model_.cache.value_bytes(), count,
                        positions + m};
      const int last_row = first_row + (task.first + m + count - 1) / shared();
      const Keys keys = keys_of(step, at, task.head, span, last_row);
      attend<BF16>(keys, query, from, end, scaling, window, after, partial, m);
    };
    if (task.common > begin) add(task.span, 0, task.count, begin, task.common);
    const int count = task.count / task.spans, from = std::max(begin, task.common);
    for (int each = 0, m = 0; each < task.spans; ++each, m += count)
      add(task.span + each, m, count, from, positions[m + count - 1] + 1);
    for (int m = 0; m < task.count; ++m) {
      const int row = first_row + (task.first + m) / shared();
      const int head = task.head * shared() + (task.first + m) % shared();
      put_attended(partial.softmax[m], partial.sums + size_t(m) * width, width,
                   inner_ + (size_t(scope.place[row]) * model_.heads + head) * width);
    }
  }

  // gate := silu(gate) * up
  static void activate(float* gate, int count) {
    const float* up = gate + count;
    for (int at = 0; at < count; at += 16) {
      const __m512 x = _mm512_loadu_ps(gate + at);
      const __m512 sigmoid = _mm512_div_ps(
          _mm512_set1_ps(1.0f),
          _mm512_add_ps(_mm512_set1_ps(1.0f), exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), x))));
      _mm512_storeu_ps(gate + at,
                       _mm512_mul_ps(_mm512_mul_ps(x, sigmoid), _mm512_loadu_ps(up + at)));
    }
  }

  const Model model_;
  Team team_;
  std::vector<Adapter> adapters_;
  Plan plan_;
  Buffer<float> residual_buffer_, inner_buffer_, wide_buffer_, scale_buffer_, sum_buffer_,
      low_buffer_, kept_buffer_;
  Buffer<uint8_t> query_buffer_, input_buffer_;
  float *residual_ = nullptr, *inner_ = nullptr, *wide_ = nullptr, *low_ = nullptr;
  float* kept_ = nullptr;  // the residual of wanted rows, past the last layer's attention
  uint8_t* query_ = nullptr;
  Rows input_;
};

}  // namespace headpond

extern "C" {

using namespace headpond;

// Draw a token for each of `rows` rows of `count` logits.
void headpond_draw(const float* logits, int32_t rows, int32_t count, const Choice* choices,
                   int32_t* tokens) {
  Sampler sampler;
  for (int row = 0; row < rows; ++row)
    tokens[row] = sampler.draw(logits + size_t(row) * count, count, choices[row]);
}

void* headpond_decoder(const Model* model, int32_t threads) {
  return new (std::nothrow) Decoder(*model, threads);
}

void headpond_adapters(void* decoder, const Adapter* adapters, int32_t count) {
  static_cast<Decoder*>(decoder)->set_adapters(adapters, count);
}

void headpond_decoder_free(void* decoder) { delete static_cast<Decoder*>(decoder); }

// Compute one step; 0, or 1 when memory ran out and nothing was computed.
int32_t headpond_forward(void* decoder, const Step* step) {
  try {
    static_cast<Decoder*>(decoder)->forward(*step);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // extern "C"

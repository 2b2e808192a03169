// Attention of every token of a sequence to every token of it, one head at a time.
//
// Keys and values are packed as products.hpp wants its weights: keys with tokens as columns and
// the head's width as depth, values the other way round. So a query's result depends neither on
// the queries beside it nor on other sequences.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "buffer.hpp"
#include "functions.hpp"
#include "products.hpp"

namespace headpond {

constexpr int QUERIES = 48;  // queries whose scores are kept at once
constexpr int DEPTH = 16;    // keys are filled up to a multiple of this for the second product

// One head of one sequence.
struct Span {
  const float* queries;  // each row of queries, keys and values lies `stride` after the last
  const float* keys;
  const float* values;
  size_t stride;
  int count;       // tokens of the sequence
  int wanted;      // the first so many of them ask
  float* out;      // [wanted, width]
  size_t out_stride;
};

class Attention {
 public:
  Attention(Format format, int width) : format_(format), width_(width) {}

  void attend(const Span& span, float scaling) {
    prepare(span.count);
    pack_keys(span);
    pack_values(span);
    for (int first = 0; first < span.wanted; first += QUERIES)
      attend_rows(span, first, std::min(QUERIES, span.wanted - first), scaling);
  }

 private:
  int tiles() const { return (count_ + TILE - 1) / TILE; }
  int depth() const { return (count_ + DEPTH - 1) / DEPTH * DEPTH; }
  int value_bytes() const { return format_ == Format::bf16 ? 2 : 4; }

  void prepare(int count) {
    count_ = count;
    keys_ = key_buffer_.get(size_t(tiles()) * tile_bytes(format_, width_));
    values_ = value_buffer_.get(tile_bytes(format_, depth()) * (width_ / TILE));
    query_ = query_buffer_.get(size_t(QUERIES) * row_bytes(format_, width_));
    weight_ = weight_buffer_.get(size_t(QUERIES) * row_bytes(format_, depth()));
    score_ = score_buffer_.get(size_t(QUERIES) * tiles() * TILE);
  }

  // Columns of tokens that are not there stay what they are: their scores are not looked at.
  void pack_keys(const Span& span) {
    alignas(64) uint32_t words[256];
    const int steps = width_ * value_bytes() / 4;
    for (int token = 0; token < count_; ++token) {
      put_words(span.keys + span.stride * token, width_, words);
      auto* to = reinterpret_cast<uint32_t*>(keys_ + tile_bytes(format_, width_) * (token / TILE)) +
                 token % TILE;
      for (int step = 0; step < steps; ++step) to[step * TILE] = words[step];
    }
  }

  void put_words(const float* from, int count, uint32_t* to) const {
    const Rows row{.values = reinterpret_cast<uint8_t*>(to)};
    put_row(format_, from, count, row, 0);
  }

  void pack_values(const Span& span) {
    const __m512 none = _mm512_setzero_ps();
    for (int column = 0; column < width_; column += TILE) {
      uint8_t* tile = values_ + tile_bytes(format_, depth()) * (column / TILE);
      for (int half = 0; half < TILE; half += 16) {
        const float* from = span.values + column + half;
        const auto value = [&](int token) {
          return token < count_ ? _mm512_loadu_ps(from + span.stride * token) : none;
        };
        if (format_ == Format::bf16) {
          for (int token = 0; token < depth(); token += 2)
            _mm512_storeu_si512(tile + size_t(token) * TILE * 2 + half * 4,
                                pair(value(token), value(token + 1)));
        } else {
          for (int token = 0; token < depth(); ++token)
            _mm512_storeu_ps(tile + (size_t(token) * TILE + half) * 4, value(token));
        }
      }
    }
  }

  // Two vectors in bfloat16, value by value side by side.
  static __m512i pair(__m512 first, __m512 second) {
    const __m512i low = _mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(first)));
    const __m512i high = _mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(second)));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }

  void attend_rows(const Span& span, int first, int rows, float scaling) {
    const Rows queries{.values = query_, .stride = row_bytes(format_, width_)};
    for (int row = 0; row < rows; ++row)
      put_row(format_, span.queries + span.stride * (first + row), width_, queries, row);
    const int columns = tiles() * TILE;
    const Matrix keys{.format = format_, .columns = columns, .depth = width_, .packed = keys_};
    for (int tile = 0; tile < tiles(); ++tile)
      multiply(keys, tile, queries, rows, score_, columns, false);
    const Rows weights{.values = weight_, .stride = row_bytes(format_, depth())};
    float inverse[QUERIES];
    for (int row = 0; row < rows; ++row)
      inverse[row] = weigh(score_ + size_t(row) * columns, scaling, weights, row);
    const Matrix values{.format = format_, .columns = width_, .depth = depth(), .packed = values_};
    float* out = span.out + span.out_stride * first;
    for (int tile = 0; tile < width_ / TILE; ++tile)
      multiply(values, tile, weights, rows, out, span.out_stride, false);
    for (int row = 0; row < rows; ++row)
      for (int at = 0; at < width_; at += 16) {
        float* to = out + span.out_stride * row + at;
        _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_loadu_ps(to), _mm512_set1_ps(inverse[row])));
      }
  }

  // Turn one row's scores into weights that are not divided by their sum yet; returns one over
  // that sum, of the weights as they were rounded.
  float weigh(const float* score, float scaling, const Rows& weights, int row) const {
    const __m512 least = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    __m512 most = least;
    for (int at = 0; at < count_; at += 16)
      most = _mm512_max_ps(most, _mm512_mask_loadu_ps(least, seen(at), score + at));
    const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most)), rate = _mm512_set1_ps(scaling);
    __m512 total = _mm512_setzero_ps();
    uint8_t* to = weights.values + weights.stride * row;
    for (int at = 0; at < count_; at += 16) {
      const __m512 over = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(score + at), top), rate);
      __m512 weight = _mm512_maskz_mov_ps(seen(at), exp_ps(over));
      if (format_ == Format::bf16) {
        const __m256i rounded = __m256i(_mm512_cvtneps_pbh(weight));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * at), rounded);
        weight = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
      } else {
        _mm512_storeu_ps(to + 4 * at, weight);
      }
      total = _mm512_add_ps(total, weight);
    }
    return 1.0f / _mm512_reduce_add_ps(total);
  }

  __mmask16 seen(int at) const { return count_ - at >= 16 ? 0xFFFF : (1u << (count_ - at)) - 1; }

  const Format format_;
  const int width_;
  int count_ = 0;
  Buffer<uint8_t> key_buffer_, value_buffer_, query_buffer_, weight_buffer_;
  Buffer<float> score_buffer_;
  uint8_t *keys_ = nullptr, *values_ = nullptr, *query_ = nullptr, *weight_ = nullptr;
  float* score_ = nullptr;
};

}  // namespace headpond

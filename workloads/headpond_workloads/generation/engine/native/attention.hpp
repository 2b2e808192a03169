// Attention over the block table, without gathering the cache.
//
// A block's keys and values are kept as the products of products.hpp want their weights: keys
// with 16 tokens as columns and the head's width as depth, values the other way round. New rows
// see their own keys and all before. Every row goes over the keys in the same runs of 64 from
// position 0, so its result depends neither on the chunk it is part of nor on its neighbours.
#pragma once

#include <limits>

#include "functions.hpp"
#include "products.hpp"

namespace headpond {

constexpr int KEYS = 16;     // tokens of a piece of cache: the columns of one vector
constexpr int RUN = 64;      // keys whose weights are computed before values are summed
constexpr int HEADS = 12;    // query rows (of one KV head) in one task
constexpr int PIECES = RUN / KEYS;

struct Cache {
  uint8_t* memory;  // [layers, blocks, pieces, kv_heads, keys and values, 16 * width]
  int64_t blocks;
  int32_t block_tokens;  // a multiple of 16
  int32_t kv_heads;
  int32_t width;  // of a head; a multiple of 32
  int32_t bf16;

  size_t value_bytes() const { return bf16 ? 2 : 4; }
  size_t half_bytes() const { return size_t(KEYS) * width * value_bytes(); }
  uint8_t* piece(int layer, int32_t block, int token, int head) const {
    const size_t pieces = block_tokens / KEYS;
    const size_t at = (size_t(layer) * blocks + block) * pieces + token % block_tokens / KEYS;
    return memory + (at * kv_heads + head) * 2 * half_bytes();
  }
};

// Keep the key and the value of one token and one head.
inline void put_token(const Cache& cache, uint8_t* piece, int token, const float* key,
                      const float* value) {
  const int lane = token % KEYS, width = cache.width;
  if (cache.bf16) {
    auto* keys = reinterpret_cast<uint16_t*>(piece);
    auto* values = reinterpret_cast<uint16_t*>(piece + cache.half_bytes());
    for (int d = 0; d < width; ++d) {
      keys[(size_t(d / 2) * KEYS + lane) * 2 + d % 2] = to_bf16(key[d]);
      values[(size_t(lane / 2) * width + d) * 2 + lane % 2] = to_bf16(value[d]);
    }
  } else {
    auto* keys = reinterpret_cast<float*>(piece);
    auto* values = reinterpret_cast<float*>(piece + cache.half_bytes());
    for (int d = 0; d < width; ++d) {
      keys[size_t(d) * KEYS + lane] = key[d];
      values[size_t(lane) * width + d] = value[d];
    }
  }
}

// One task: some query rows of one KV head and one sequence.
struct Query {
  const uint8_t* rows;       // [count, width] in the cache's format
  int count;                 // at most HEADS
  const int32_t* positions;  // [count]
  float* const* out;         // [count]: where each row's `width` results go
};

template <int MR, bool BF16>
inline void scores(const Cache& cache, const uint8_t* const (&pieces)[PIECES], const uint8_t* rows,
                   float (*to)[RUN]) {
  const size_t stride = cache.width * (BF16 ? 2 : 4);
  for (int pair = 0; pair < PIECES; pair += 2) {
    __m512 sum[MR][2];
    for (int m = 0; m < MR; ++m) sum[m][0] = sum[m][1] = _mm512_setzero_ps();
    sum_floats<MR, BF16>(pieces[pair], pieces[pair + 1], 64, rows, stride,
                         BF16 ? cache.width / 2 : cache.width, sum);
    for (int m = 0; m < MR; ++m)
      for (int half = 0; half < 2; ++half)
        _mm512_storeu_ps(to[m] + (pair + half) * KEYS, sum[m][half]);
  }
}

template <int MR, bool BF16>
inline void add_values(const Cache& cache, const uint8_t* const (&pieces)[PIECES],
                       const uint8_t* weights, const float* shrink, float* sums) {
  constexpr size_t bytes = BF16 ? 2 : 4;
  for (int d = 0; d < cache.width; d += TILE) {
    __m512 sum[MR][2];
    for (int m = 0; m < MR; ++m)
      for (int half = 0; half < 2; ++half)
        sum[m][half] = _mm512_mul_ps(_mm512_loadu_ps(sums + m * cache.width + d + 16 * half),
                                     _mm512_set1_ps(shrink[m]));
    for (int piece = 0; piece < PIECES; ++piece) {
      const uint8_t* values = pieces[piece] + cache.half_bytes() + size_t(d) * 4;
      sum_floats<MR, BF16>(values, values + 64, size_t(cache.width) * 4,
                           weights + piece * KEYS * bytes, RUN * bytes, BF16 ? KEYS / 2 : KEYS,
                           sum);
    }
    for (int m = 0; m < MR; ++m)
      for (int half = 0; half < 2; ++half)
        _mm512_storeu_ps(sums + m * cache.width + d + 16 * half, sum[m][half]);
  }
}

// Turn one row's scores of a run into weights; returns by how much earlier sums shrink.
template <bool BF16>
inline float weigh(float* score, int first, int position, int window, float scaling, float& most,
                   __m512& total, uint8_t* weights) {
  const __m512i lanes =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 never = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  const int oldest = window > 0 ? position - window + 1 : 0;
  __m512 value[PIECES], highest = never;
  for (int piece = 0; piece < PIECES; ++piece) {
    const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(first + piece * KEYS), lanes);
    const __mmask16 seen = _mm512_cmple_epi32_mask(at, _mm512_set1_epi32(position)) &
                           _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(oldest));
    value[piece] = _mm512_mask_mul_ps(never, seen, _mm512_loadu_ps(score + piece * KEYS),
                                      _mm512_set1_ps(scaling));
    highest = _mm512_max_ps(highest, value[piece]);
  }
  const float before = most;
  most = std::max(most, _mm512_reduce_max_ps(highest));
  const bool none = most == -std::numeric_limits<float>::infinity();
  const float shrink = before == most || none ? 1.0f : std::exp(before - most);
  total = _mm512_mul_ps(total, _mm512_set1_ps(shrink));
  for (int piece = 0; piece < PIECES; ++piece) {
    const __mmask16 seen = _mm512_cmp_ps_mask(value[piece], never, _CMP_NEQ_UQ);
    const __m512 weight = _mm512_maskz_mov_ps(
        seen, exp_ps(_mm512_sub_ps(value[piece], _mm512_set1_ps(none ? 0.0f : most))));
    if constexpr (BF16) {
      // The total counts what is summed, rounded weights.
      const __m256bh rounded = _mm512_cvtneps_pbh(weight);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights) + piece, __m256i(rounded));
      total = _mm512_add_ps(total, _mm512_castsi512_ps(_mm512_slli_epi32(
                                       _mm512_cvtepu16_epi32(__m256i(rounded)), 16)));
    } else {
      _mm512_storeu_ps(reinterpret_cast<float*>(weights) + piece * KEYS, weight);
      total = _mm512_add_ps(total, weight);
    }
  }
  return shrink;
}

template <int MR, bool BF16>
inline void attend_rows(const Cache& cache, int layer, int head, const int32_t* blocks,
                        const Query& query, float scaling, int window) {
  alignas(64) float score[MR][RUN];
  alignas(64) uint8_t weights[MR][RUN * (BF16 ? 2 : 4)];
  alignas(64) float sums[MR * 256];
  float most[MR], shrink[MR];
  __m512 total[MR];
  int last = 0, oldest = std::numeric_limits<int>::max();
  for (int m = 0; m < MR; ++m) {
    most[m] = -std::numeric_limits<float>::infinity();
    total[m] = _mm512_setzero_ps();
    last = std::max(last, query.positions[m]);
    oldest = std::min(oldest, query.positions[m] - window + 1);
  }
  std::fill(sums, sums + MR * cache.width, 0.0f);
  const int begin = window > 0 && oldest > 0 ? oldest / RUN * RUN : 0;
  for (int first = begin; first <= last; first += RUN) {
    const uint8_t* pieces[PIECES];
    for (int piece = 0; piece < PIECES; ++piece) {
      // Beyond the last token lies no block; the masked keys may then be any.
      const int token = std::min(first + piece * KEYS, last);
      pieces[piece] = cache.piece(layer, blocks[token / cache.block_tokens], token, head);
    }
    scores<MR, BF16>(cache, pieces, query.rows, score);
    for (int m = 0; m < MR; ++m)
      shrink[m] = weigh<BF16>(score[m], first, query.positions[m], window, scaling, most[m],
                              total[m], weights[m]);
    add_values<MR, BF16>(cache, pieces, weights[0], shrink, sums);
  }
  for (int m = 0; m < MR; ++m) {
    const __m512 inverse = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(total[m]));
    for (int d = 0; d < cache.width; d += 16)
      _mm512_storeu_ps(query.out[m] + d,
                       _mm512_mul_ps(_mm512_loadu_ps(sums + m * cache.width + d), inverse));
  }
}

template <bool BF16, int MR = HEADS>
inline void attend(const Cache& cache, int layer, int head, const int32_t* blocks,
                   const Query& query, float scaling, int window) {
  if (query.count == MR)
    return attend_rows<MR, BF16>(cache, layer, head, blocks, query, scaling, window);
  if constexpr (MR > 1)
    attend<BF16, MR - 1>(cache, layer, head, blocks, query, scaling, window);
}

}  // namespace headpond

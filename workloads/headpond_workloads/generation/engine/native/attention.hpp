// Attention over the block table, without gathering the cache.
//
// A block's keys and values are kept as the products of products.hpp want their weights: keys
// with 16 tokens as columns and the head's width as depth, values the other way round. New rows
// see their own keys and all before. Every row goes over the keys in the same runs of 64 from
// position 0, so its result depends neither on the chunk it is part of nor on its neighbours.
// Sequences whose first blocks are the same go over those together, row by row in the same
// order as alone.
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
  uint8_t* keys = piece + lane * 4;
  if (cache.bf16) {
    // Two tokens' values share a word: only this one's half of it is written.
    uint8_t* values = piece + cache.half_bytes() + size_t(lane / 2) * width * 4;
    const __mmask32 half = lane % 2 ? 0xAAAAAAAA : 0x55555555;
    for (int d = 0; d < width; d += 16) {
      const __m256i pairs = __m256i(_mm512_cvtneps_pbh(_mm512_loadu_ps(key + d)));
      alignas(32) uint32_t pair[8];
      _mm256_store_si256(reinterpret_cast<__m256i*>(pair), pairs);
      for (int at = 0; at < 8; ++at) std::memcpy(keys + (d / 2 + at) * KEYS * 4, pair + at, 4);
      __m512i wide =
          _mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(_mm512_loadu_ps(value + d))));
      if (lane % 2) wide = _mm512_slli_epi32(wide, 16);
      _mm512_mask_storeu_epi16(values + d * 4, half, wide);
    }
  } else {
    for (int d = 0; d < width; ++d) std::memcpy(keys + d * KEYS * 4, key + d, 4);
    std::memcpy(piece + cache.half_bytes() + size_t(lane) * width * 4, value, size_t(width) * 4);
  }
}

// The block table of one sequence for one layer and one head.
struct Keys {
  const Cache& cache;
  int layer, head;
  const int32_t* blocks;
  int last;  // the last token that is there

  // Where the pieces of a run lie. Beyond the last token lies no block: its piece stands in, as
  // its keys are masked.
  void find(int first, const uint8_t* (&pieces)[PIECES]) const {
    for (int piece = 0; piece < PIECES; ++piece) {
      const int token = std::min(first + piece * KEYS, last);
      pieces[piece] = cache.piece(layer, blocks[token / cache.block_tokens], token, head);
    }
  }
};

// Query rows of one KV head.
struct Query {
  const uint8_t* rows;       // [count, width] in the cache's format
  int count;                 // at most HEADS
  const int32_t* positions;  // [count]
};

// So many vectors are summed at once for so few rows that more are needed to keep the
// processor's pipes full.
constexpr int vectors(int rows) { return rows <= 6 ? 4 : 2; }

// The products of a run's keys with the query's rows. Memory of the run at `soon` is asked for.
template <int MR, bool BF16>
inline void scores(const Cache& cache, const uint8_t* const (&pieces)[PIECES],
                   const uint8_t* const (&soon)[PIECES], const uint8_t* rows, float (*to)[RUN]) {
  constexpr int NR = vectors(MR);
  const size_t stride = cache.width * (BF16 ? 2 : 4);
  for (int first = 0; first < PIECES; first += NR) {
    const uint8_t *at[NR], *next[NR];
    __m512 sum[MR][NR];
    for (int n = 0; n < NR; ++n) {
      at[n] = pieces[first + n];
      next[n] = soon[first + n];
      for (int m = 0; m < MR; ++m) sum[m][n] = _mm512_setzero_ps();
    }
    sum_floats<MR, NR, BF16>(at, next, 64, rows, stride, BF16 ? cache.width / 2 : cache.width,
                             sum);
    for (int m = 0; m < MR; ++m)
      for (int n = 0; n < NR; ++n) _mm512_storeu_ps(to[m] + (first + n) * KEYS, sum[m][n]);
  }
}

// Shrink sums, and add a run's values to them by their weights.
template <int MR, int NR, bool BF16>
inline void add_values(const Cache& cache, const uint8_t* const (&pieces)[PIECES],
                       const uint8_t* const (&soon)[PIECES], const uint8_t* weights,
                       const float* shrink, float* sums) {
  constexpr size_t bytes = BF16 ? 2 : 4;
  for (int d = 0; d < cache.width; d += 16 * NR) {
    __m512 sum[MR][NR];
    for (int m = 0; m < MR; ++m)
      for (int n = 0; n < NR; ++n)
        sum[m][n] = _mm512_mul_ps(_mm512_loadu_ps(sums + m * cache.width + d + 16 * n),
                                  _mm512_set1_ps(shrink[m]));
    for (int piece = 0; piece < PIECES; ++piece) {
      const uint8_t *at[NR], *next[NR];
      for (int n = 0; n < NR; ++n) {
        const size_t offset = cache.half_bytes() + size_t(d + 16 * n) * 4;
        at[n] = pieces[piece] + offset;
        next[n] = soon[piece] + offset;
      }
      sum_floats<MR, NR, BF16>(at, next, size_t(cache.width) * 4, weights + piece * KEYS * bytes,
                               RUN * bytes, BF16 ? KEYS / 2 : KEYS, sum);
    }
    for (int m = 0; m < MR; ++m)
      for (int n = 0; n < NR; ++n)
        _mm512_storeu_ps(sums + m * cache.width + d + 16 * n, sum[m][n]);
  }
}

// One row's softmax as far as it has come.
struct Softmax {
  float most = std::numeric_limits<float>::lowest();  // the greatest score, in powers of two
  __m512 total = _mm512_setzero_ps();                 // of the weights, by lane
};

// Turn one row's scores of a run into weights; returns by how much earlier sums shrink. The
// total counts weights as they are rounded.
template <bool BF16>
inline float weigh(const float* score, int first, int position, int window, float scaling,
                   Softmax& softmax, uint8_t* weights) {
  const int oldest = window > 0 ? position - window + 1 : 0;
  const bool all = first + RUN - 1 <= position && first >= oldest;
  const __m512i lanes =
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 never = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 value[PIECES], highest = _mm512_set1_ps(softmax.most);
  for (int piece = 0; piece < PIECES; ++piece) {
    value[piece] = _mm512_mul_ps(_mm512_loadu_ps(score + piece * KEYS), _mm512_set1_ps(scaling));
    if (!all) {
      const __m512i at = _mm512_add_epi32(_mm512_set1_epi32(first + piece * KEYS), lanes);
      const __mmask16 seen = _mm512_cmple_epi32_mask(at, _mm512_set1_epi32(position)) &
                             _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32(oldest));
      value[piece] = _mm512_mask_mov_ps(never, seen, value[piece]);
    }
    highest = _mm512_max_ps(highest, value[piece]);
  }
  const float most = _mm512_reduce_max_ps(highest);
  const __m512 shrink = exp2_ps(_mm512_set1_ps(softmax.most - most));
  __m512 total = _mm512_mul_ps(softmax.total, shrink);
  for (int piece = 0; piece < PIECES; ++piece) {
    const __m512 weight = exp2_ps(_mm512_sub_ps(value[piece], _mm512_set1_ps(most)));
    if constexpr (BF16) {
      const __m256i rounded = __m256i(_mm512_cvtneps_pbh(weight));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights) + piece, rounded);
      total = _mm512_add_ps(
          total, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)));
    } else {
      _mm512_storeu_ps(reinterpret_cast<float*>(weights) + piece * KEYS, weight);
      total = _mm512_add_ps(total, weight);
    }
  }
  softmax = {most, total};
  return _mm512_cvtss_f32(shrink);
}

// What has been attended to so far by each row of a query.
struct Partial {
  Softmax softmax[HEADS];
  alignas(64) float sums[HEADS * 256];

  void clear(int values) { std::fill(sums, sums + values, 0.0f); }
};

template <int MR, bool BF16>
inline void attend_rows(const Keys& keys, const Query& query, int begin, int end, float scaling,
                        int window, const Keys& after, Partial& to, int at) {
  const Cache& cache = keys.cache;
  const int values = MR * cache.width;
  alignas(64) float sums[MR * 256];
  Softmax softmax[MR];
  std::copy(to.softmax + at, to.softmax + at + MR, softmax);
  std::copy_n(to.sums + size_t(at) * cache.width, values, sums);
  alignas(64) float score[MR][RUN];
  alignas(64) uint8_t weights[MR][RUN * (BF16 ? 2 : 4)];
  float shrink[MR];
  const uint8_t *pieces[PIECES], *soon[PIECES];
  keys.find(begin, soon);
  for (int first = begin; first < end; first += RUN) {
    std::copy(soon, soon + PIECES, pieces);
    if (first + RUN < end) keys.find(first + RUN, soon);
    else after.find(0, soon);
    scores<MR, BF16>(cache, pieces, soon, query.rows, score);
    for (int m = 0; m < MR; ++m)
      shrink[m] = weigh<BF16>(score[m], first, query.positions[m], window, scaling, softmax[m],
                              weights[m]);
    if (vectors(MR) == 4 && cache.width % 64 == 0)
      add_values<MR, vectors(MR), BF16>(cache, pieces, soon, weights[0], shrink, sums);
    else
      add_values<MR, 2, BF16>(cache, pieces, soon, weights[0], shrink, sums);
  }
  std::copy(softmax, softmax + MR, to.softmax + at);
  std::copy_n(sums, values, to.sums + size_t(at) * cache.width);
}

// Add the keys from `begin`, a multiple of RUN, to before `end` to what the rows of `query` have
// attended to; these are the rows from `at` on in `to`. What this thread will probably attend to next is `after`.
template <bool BF16, int MR = HEADS>
inline void attend(const Keys& keys, const Query& query, int begin, int end, float scaling,
                   int window, const Keys& after, Partial& to, int at) {
  if (query.count == MR)
    return attend_rows<MR, BF16>(keys, query, begin, end, scaling, window, after, to, at);
  if constexpr (MR > 1)
    attend<BF16, MR - 1>(keys, query, begin, end, scaling, window, after, to, at);
}

// The `width` results of one row.
inline void put_attended(const Softmax& softmax, const float* sums, int width, float* out) {
  const __m512 inverse = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(softmax.total));
  for (int d = 0; d < width; d += 16)
    _mm512_storeu_ps(out + d, _mm512_mul_ps(_mm512_loadu_ps(sums + d), inverse));
}

}  // namespace headpond

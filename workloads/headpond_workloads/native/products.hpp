// Matrix products of packed weights with a few or many rows, in four formats.
//
// A weight matrix [columns, depth] is packed into tiles of 32 columns; within a tile, the
// depth is cut into steps, as many values as one instruction multiplies per column. Every
// result is summed over the depth in one fixed order, whatever rows are computed beside it,
// so a row's result does not depend on its batch.
//
//   f32   one value a step, fused multiply-add
//   bf16  two values a step (VDPBF16PS), summed in float32
//   int8  four values a step (VPDPBUSD), summed in int32 over groups of 32 along the depth:
//         weights with a scale for each column, inputs with a scale for each group
//   int4  eight values a step, the same, but each group of weights has its own scale and
//         least value (as in GGUF's Q4_1)
//
// VPDPBUSD multiplies unsigned by signed: int8 weights are shifted by 128, and -128 times the
// group's inputs is where its sum starts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace headpond {

constexpr int TILE = 32;   // columns of a tile: two vectors of float32
constexpr int GROUP = 32;  // values of the depth that share a scale

enum class Format : int32_t { f32 = 0, bf16 = 1, int8 = 2, int4 = 3 };

struct Matrix {
  Format format;
  int32_t columns;  // as the model has them; tiles are filled up with zeros
  int32_t depth;    // a multiple of 32
  const uint8_t* packed;
  const uint8_t* scales;  // int8: float32 [columns]; int4: float16 [tiles, groups, 32]
  const uint8_t* least;   // int4: float16 [tiles, groups, 32], the least value of a group
  const float* bias;     // [columns], or null
  int tiles() const { return (columns + TILE - 1) / TILE; }
};

inline size_t tile_bytes(Format format, int depth) {
  switch (format) {
    case Format::f32: return size_t(depth) * TILE * 4;
    case Format::bf16: return size_t(depth) * TILE * 2;
    case Format::int8: return size_t(depth) * TILE;
    default: return size_t(depth) * TILE / 2;
  }
}

inline size_t row_bytes(Format format, int depth) {
  return format == Format::f32 ? size_t(depth) * 4 : format == Format::bf16 ? size_t(depth) * 2 : depth;
}

// The rows of one product's input, in the weights' format.
struct Rows {
  uint8_t* values = nullptr;  // [rows, row_bytes]
  float* scales = nullptr;    // int8, int4: [rows, groups]
  float* sums = nullptr;      // int4: [rows, groups], scale times the sum of the group
  int32_t* shifts = nullptr;  // int8: the same place, -128 times the sum of the whole numbers
  size_t stride = 0;          // bytes of a row
  int groups = 0;             // scales of a row
};

inline uint16_t to_bf16(float value) {
  return uint16_t(_mm_extract_epi16(__m128i(_mm_cvtneps_pbh(_mm_set_ss(value))), 0));
}

inline float from_bf16(uint16_t value) {
  const uint32_t wide = uint32_t(value) << 16;
  float result;
  std::memcpy(&result, &wide, 4);
  return result;
}

// Write one row of `depth` float32 values in a format.
inline void put_row(Format format, const float* from, int depth, const Rows& rows, int row) {
  uint8_t* to = rows.values + rows.stride * row;
  if (format == Format::f32) {
    std::memcpy(to, from, size_t(depth) * 4);
    return;
  }
  if (format == Format::bf16) {
    for (int at = 0; at < depth; at += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * at),
                          __m256i(_mm512_cvtneps_pbh(_mm512_loadu_ps(from + at))));
    return;
  }
  for (int begin = 0, group = 0; begin < depth; begin += GROUP, ++group) {
    const __m512 low = _mm512_loadu_ps(from + begin), high = _mm512_loadu_ps(from + begin + 16);
    const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const float scale = most / 127.0f;
    const __m512 inverse = _mm512_set1_ps(scale > 0 ? 1.0f / scale : 0.0f);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + begin), _mm512_cvtsepi32_epi8(first));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + begin + 16), _mm512_cvtsepi32_epi8(second));
    const int sum = _mm512_reduce_add_epi32(_mm512_add_epi32(first, second));
    const size_t at = size_t(row) * rows.groups + group;
    rows.scales[at] = scale;
    if (format == Format::int8) rows.shifts[at] = -128 * sum;
    else rows.sums[at] = scale * float(sum);
  }
}

inline __m512i broadcast4(const uint8_t* at) {
  int32_t four;
  std::memcpy(&four, at, 4);
  return _mm512_set1_epi32(four);
}

inline __m512 load_f16(const uint8_t* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

constexpr int AHEAD = 4096;  // bytes that weights are asked for before they are needed

inline void prefetch(const uint8_t* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

// Add `steps` steps of `MR` rows and of `NR` vectors of 16 columns to `sum`. The vectors lie at
// `at`, and those of the next step `pace` bytes further; as far as that from `soon` on, memory
// is asked for.
template <int MR, int NR, bool BF16>
inline void sum_floats(const uint8_t* const (&at)[NR], const uint8_t* const (&soon)[NR], size_t pace,
                       const uint8_t* rows, size_t stride, int steps, __m512 (&sum)[MR][NR]) {
  for (size_t to = 0, end = pace * steps; to < end; to += pace, rows += 4) {
    __m512i weights[NR];
    for (int n = 0; n < NR; ++n) {
      prefetch(soon[n] + to);
      weights[n] = _mm512_loadu_si512(at[n] + to);
    }
    for (int m = 0; m < MR; ++m) {
      const __m512i value = broadcast4(rows + m * stride);
      for (int n = 0; n < NR; ++n) {
        if constexpr (BF16)
          sum[m][n] = _mm512_dpbf16_ps(sum[m][n], __m512bh(weights[n]), __m512bh(value));
        else
          sum[m][n] = _mm512_fmadd_ps(__m512(weights[n]), __m512(value), sum[m][n]);
      }
    }
  }
}

template <int MR>
inline void sum_int8(const Matrix& w, int tile, const Rows& in, int row, __m512 (&sum)[MR][2]) {
  const uint8_t* at = w.packed + tile_bytes(Format::int8, w.depth) * tile;
  const uint8_t* rows = in.values + in.stride * row;
  for (int m = 0; m < MR; ++m) sum[m][0] = sum[m][1] = _mm512_setzero_ps();
  for (int group = 0; group < w.depth / GROUP; ++group) {
    __m512i whole[MR][2];
    for (int m = 0; m < MR; ++m)
      whole[m][0] = whole[m][1] = _mm512_set1_epi32(in.shifts[size_t(row + m) * in.groups + group]);
    for (int step = 0; step < GROUP / 4; ++step, at += 128, rows += 4) {
      prefetch(at + AHEAD);
      prefetch(at + AHEAD + 64);
      const __m512i left = _mm512_loadu_si512(at), right = _mm512_loadu_si512(at + 64);
      for (int m = 0; m < MR; ++m) {
        const __m512i value = broadcast4(rows + m * in.stride);
        whole[m][0] = _mm512_dpbusd_epi32(whole[m][0], left, value);
        whole[m][1] = _mm512_dpbusd_epi32(whole[m][1], right, value);
      }
    }
    for (int m = 0; m < MR; ++m) {
      const __m512 scale = _mm512_set1_ps(in.scales[size_t(row + m) * in.groups + group]);
      for (int half = 0; half < 2; ++half)
        sum[m][half] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(whole[m][half]), sum[m][half]);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const size_t column = size_t(tile) * TILE + half * 16;
    const __m512 scale = _mm512_loadu_ps(w.scales + column * 4);
    for (int m = 0; m < MR; ++m) sum[m][half] = _mm512_mul_ps(sum[m][half], scale);
  }
}

template <int MR>
inline void sum_int4(const Matrix& w, int tile, const Rows& in, int row, __m512 (&sum)[MR][2]) {
  const uint8_t* packed = w.packed + tile_bytes(Format::int4, w.depth) * tile;
  const uint8_t* rows = in.values + in.stride * row;
  const int groups = w.depth / GROUP;
  const __m512i low = _mm512_set1_epi8(0x0F);
  for (int m = 0; m < MR; ++m) sum[m][0] = sum[m][1] = _mm512_setzero_ps();
  for (int group = 0; group < groups; ++group) {
    __m512i whole[MR][2];
    for (int m = 0; m < MR; ++m) whole[m][0] = whole[m][1] = _mm512_setzero_si512();
    for (int step = group * (GROUP / 8); step < (group + 1) * (GROUP / 8); ++step) {
      const uint8_t* at = packed + size_t(step) * 128;
      prefetch(at + AHEAD);
      prefetch(at + AHEAD + 64);
      for (int half = 0; half < 2; ++half) {
        const __m512i both = _mm512_loadu_si512(at + 64 * half);
        const __m512i first = _mm512_and_si512(both, low);
        const __m512i second = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        for (int m = 0; m < MR; ++m) {
          const uint8_t* from = rows + m * in.stride + size_t(step) * 8;
          whole[m][half] = _mm512_dpbusd_epi32(whole[m][half], first, broadcast4(from));
          whole[m][half] = _mm512_dpbusd_epi32(whole[m][half], second, broadcast4(from + 4));
        }
      }
    }
    const size_t at = (size_t(tile) * groups + group) * TILE * 2;
    for (int half = 0; half < 2; ++half) {
      const __m512 scale = load_f16(w.scales + at + 32 * half);
      const __m512 least = load_f16(w.least + at + 32 * half);
      for (int m = 0; m < MR; ++m) {
        const size_t own = size_t(row + m) * in.groups + group;
        sum[m][half] = _mm512_fmadd_ps(
            _mm512_mul_ps(scale, _mm512_set1_ps(in.scales[own])),
            _mm512_cvtepi32_ps(whole[m][half]),
            _mm512_fmadd_ps(least, _mm512_set1_ps(in.sums[own]), sum[m][half]));
      }
    }
  }
}

// Compute `MR` rows of one tile, and store them, or add them to what is there.
template <Format F, int MR>
inline void multiply_rows(const Matrix& w, int tile, const Rows& in, int row, float* out,
                          size_t stride, bool add) {
  __m512 sum[MR][2];
  if constexpr (F == Format::int8) {
    sum_int8<MR>(w, tile, in, row, sum);
  } else if constexpr (F == Format::int4) {
    sum_int4<MR>(w, tile, in, row, sum);
  } else {
    constexpr bool bf16 = F == Format::bf16;
    const uint8_t* packed = w.packed + tile_bytes(F, w.depth) * tile;
    for (int m = 0; m < MR; ++m) sum[m][0] = sum[m][1] = _mm512_setzero_ps();
    sum_floats<MR, 2, bf16>({packed, packed + 64}, {packed + AHEAD, packed + AHEAD + 64}, 128,
                            in.values + in.stride * row, in.stride, bf16 ? w.depth / 2 : w.depth,
                            sum);
  }
  for (int half = 0; half < 2; ++half) {
    const int column = tile * TILE + half * 16, left = w.columns - column;
    if (left <= 0) break;
    const __mmask16 mask = left >= 16 ? 0xFFFF : (1u << left) - 1;
    for (int m = 0; m < MR; ++m) {
      float* to = out + stride * (row + m) + column;
      __m512 value = sum[m][half];
      if (w.bias) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, w.bias + column));
      if (add) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, to));
      _mm512_mask_storeu_ps(to, mask, value);
    }
  }
}

template <Format F, int MR>
inline void multiply_left(int left, const Matrix& w, int tile, const Rows& in, int row, float* out,
                          size_t stride, bool add) {
  if (left == MR) return multiply_rows<F, MR>(w, tile, in, row, out, stride, add);
  if constexpr (MR > 1) multiply_left<F, MR - 1>(left, w, tile, in, row, out, stride, add);
}

template <Format F, int MOST>
inline void multiply_parts(const Matrix& w, int tile, const Rows& in, int rows, float* out,
                           size_t stride, bool add) {
  // Equal shares: 13 rows are 7 and 6, not 12 and 1.
  const int parts = (rows + MOST - 1) / MOST;
  for (int part = 0, row = 0; part < parts; ++part) {
    const int count = (rows - row) / (parts - part);
    multiply_left<F, MOST>(count, w, tile, in, row, out, stride, add);
    row += count;
  }
}

// out[rows, columns of the tile] = (out +) in[rows, depth] times one tile of the weights. At once
// go as many rows as their sums leave registers free (measured: 12, 6 and 5).
inline void multiply(const Matrix& w, int tile, const Rows& in, int rows, float* out,
                     size_t stride, bool add) {
  switch (w.format) {
    case Format::f32: return multiply_parts<Format::f32, 12>(w, tile, in, rows, out, stride, add);
    case Format::bf16: return multiply_parts<Format::bf16, 12>(w, tile, in, rows, out, stride, add);
    case Format::int8: return multiply_parts<Format::int8, 6>(w, tile, in, rows, out, stride, add);
    case Format::int4: return multiply_parts<Format::int4, 5>(w, tile, in, rows, out, stride, add);
  }
}

}  // namespace headpond

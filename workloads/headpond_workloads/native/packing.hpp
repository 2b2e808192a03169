// From a model's weights to packed ones; see products.hpp for the formats.
#pragma once

#include <cstdint>
#include <vector>

#include "products.hpp"

namespace headpond {

inline uint16_t to_f16(float value) {
  return uint16_t(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}

inline float from_f16(uint16_t value) { return _cvtsh_ss(value); }

struct Packed {
  uint8_t* values;
  uint8_t* scales;
  uint8_t* least;
};

inline void pack_floats(Format format, const float* column, int depth, int lane, uint8_t* tile) {
  for (int at = 0; at < depth; ++at) {
    if (format == Format::f32) {
      reinterpret_cast<float*>(tile)[size_t(at) * TILE + lane] = column[at];
    } else {
      const size_t to = (size_t(at / 2) * TILE + lane) * 2 + at % 2;
      reinterpret_cast<uint16_t*>(tile)[to] = to_bf16(column[at]);
    }
  }
}

// Read one column of float32 or bfloat16 weights back.
inline void unpack_column(const Matrix& w, int column, float* to) {
  const uint8_t* tile = w.packed + tile_bytes(w.format, w.depth) * (column / TILE);
  const size_t lane = column % TILE;
  for (int at = 0; at < w.depth; ++at) {
    if (w.format == Format::f32)
      to[at] = reinterpret_cast<const float*>(tile)[size_t(at) * TILE + lane];
    else
      to[at] = from_bf16(
          reinterpret_cast<const uint16_t*>(tile)[(size_t(at / 2) * TILE + lane) * 2 + at % 2]);
  }
}

// Symmetric around 128, one scale for the column.
inline void pack_int8(const float* column, int depth, int lane, uint8_t* tile, float* scale) {
  float most = 0;
  for (int at = 0; at < depth; ++at) most = std::max(most, std::fabs(column[at]));
  *scale = most / 127.0f;
  for (int at = 0; at < depth; ++at) {
    const int value = *scale > 0 ? int(std::nearbyint(column[at] / *scale)) : 0;
    tile[(size_t(at / 4) * TILE + lane) * 4 + at % 4] = uint8_t(128 + value);
  }
}

// Sixteen levels from the least to the greatest value of each group.
inline void pack_int4(const float* column, int depth, int lane, uint8_t* tile, uint16_t* scales,
                      uint16_t* leasts) {
  for (int group = 0; group < depth / GROUP; ++group) {
    const float* from = column + size_t(group) * GROUP;
    const auto [low, high] = std::minmax_element(from, from + GROUP);
    const uint16_t scale = to_f16((*high - *low) / 15.0f), least = to_f16(*low);
    scales[size_t(group) * TILE + lane] = scale;
    leasts[size_t(group) * TILE + lane] = least;
    const float step = from_f16(scale), base = from_f16(least);
    for (int k = 0; k < GROUP; ++k) {
      const int value =
          step > 0 ? std::clamp(int(std::nearbyint((from[k] - base) / step)), 0, 15) : 0;
      const int at = group * GROUP + k, within = at % 8;
      uint8_t& to = tile[(size_t(at / 8) * TILE + lane) * 4 + within % 4];
      to = within < 4 ? uint8_t((to & 0xF0) | value) : uint8_t((to & 0x0F) | (value << 4));
    }
  }
}

// Pack columns [first, first + count) of `weights` [count, depth]; `to` is zeroed memory.
inline void pack(Format format, const float* weights, int first, int count, int depth, Packed to) {
  const int groups = depth / GROUP;
  for (int each = 0; each < count; ++each) {
    const int at = first + each, lane = at % TILE;
    const float* column = weights + size_t(each) * depth;
    uint8_t* tile = to.values + tile_bytes(format, depth) * (at / TILE);
    if (format == Format::int8) {
      pack_int8(column, depth, lane, tile, reinterpret_cast<float*>(to.scales) + at);
    } else if (format == Format::int4) {
      const size_t base = size_t(at / TILE) * groups * TILE;
      pack_int4(column, depth, lane, tile, reinterpret_cast<uint16_t*>(to.scales) + base,
                reinterpret_cast<uint16_t*>(to.least) + base);
    } else {
      pack_floats(format, column, depth, lane, tile);
    }
  }
}

}  // namespace headpond

// Weights packed for whatever is computed with products.hpp.

#include <cstdint>

#include "packing.hpp"

extern "C" {

using namespace headpond;

int64_t headpond_packed_bytes(int32_t format, int32_t columns, int32_t depth) {
  return int64_t(tile_bytes(Format(format), depth)) * ((columns + TILE - 1) / TILE);
}

void headpond_pack(int32_t format, const float* weights, int32_t first, int32_t count,
                   int32_t depth, uint8_t* values, uint8_t* scales, uint8_t* least) {
  pack(Format(format), weights, first, count, depth, {values, scales, least});
}

}  // extern "C"

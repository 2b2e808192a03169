// Memory, and weights packed into it, for whatever is computed with products.hpp.

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "packing.hpp"

extern "C" {

using namespace headpond;

// Zeroed memory on huge pages, where the system gives them: packed weights are read whole in
// every step, and small pages would cost more than the reading.
void* headpond_alloc(int64_t bytes) {
  constexpr size_t page = size_t(2) << 20;
  const size_t whole = (size_t(bytes) + page - 1) / page * page;
  void* memory = std::aligned_alloc(page, whole);
  if (memory == nullptr) return nullptr;
  madvise(memory, whole, MADV_HUGEPAGE);
  std::memset(memory, 0, whole);
  return memory;
}

void headpond_free(void* memory) { std::free(memory); }

int64_t headpond_packed_bytes(int32_t format, int32_t columns, int32_t depth) {
  return int64_t(tile_bytes(Format(format), depth)) * ((columns + TILE - 1) / TILE);
}

void headpond_pack(int32_t format, const float* weights, int32_t first, int32_t count,
                   int32_t depth, uint8_t* values, uint8_t* scales, uint8_t* least) {
  pack(Format(format), weights, first, count, depth, {values, scales, least});
}

}  // extern "C"

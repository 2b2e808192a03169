// A product on all threads of a team: which share of it each computes.
#pragma once

#include <cstdint>

#include "products.hpp"
#include "team.hpp"

namespace headpond {

constexpr int TILES = 16;  // at most so many neighbours are dealt out at once
constexpr int FEW = 32;    // rows: with more, a tile takes too long to deal out several

// out[rows, columns] = (out +) in[rows, depth] times the weights. To be called by every thread
// of the team, with the same.
inline void multiply(Team& team, const Matrix& w, const Rows& in, int rows, float* out,
                     size_t stride, bool add) {
  const int grain = rows > FEW ? 1 : team.grain(w.tiles(), TILES);
  team.deal(w.tiles(), grain, [&](int tile) { multiply(w, tile, in, rows, out, stride, add); });
}

}  // namespace headpond

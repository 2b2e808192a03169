// What the decoder is given; mirrored by structures.py, field by field.
#pragma once

#include <cstdint>

#include "attention.hpp"
#include "products.hpp"

namespace headpond {

struct Layer {
  const float* attention_norm;  // [hidden]
  const float* mlp_norm;        // [hidden]
  const float* query_norm;      // [width], or null
  const float* key_norm;        // [width], or null
  Matrix qkv, output, gate_up, down;
  int32_t window;  // how many of the latest tokens are seen; 0 for all
};

struct Model {
  int32_t layers, hidden, heads, kv_heads, width, intermediate, vocabulary;
  float epsilon, scaling;
  const Layer* layer;
  const uint8_t* embedding;  // [vocabulary, hidden], or null: the head's weights
  int32_t embedding_bf16;
  const float* final_norm;  // [hidden]
  Matrix head;
  const float* cosines;  // [positions, width / 2]
  const float* sines;    // the same
  Cache cache;
};

// The rows of one sequence, which lie one after the other.
struct Span {
  int32_t row, count, start;
  int32_t adapter;        // or -1; spans of one adapter lie one after the other
  const int32_t* blocks;  // its block table
};

struct Step {
  int32_t rows, spans, wanted;
  const int32_t* tokens;  // [rows]
  const Span* span;
  const int32_t* wanted_rows;  // [wanted]
  float* logits;               // [wanted, vocabulary]
};

// Low-rank additions to the four products of a layer: in x down x up.
struct LowRank {
  Matrix down, up;  // float32, or without columns
};

struct Adapter {
  const LowRank* layer;  // [layers, 4]
  int32_t rank;          // the greatest
};

}  // namespace headpond

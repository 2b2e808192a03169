// Drawing the next token of each row from its logits.
//
// Temperature, then the filters of transformers' warpers in their order: the `top_k` likeliest
// tokens; of these the smallest set that reaches `top_p`; of these the ones at least `min_p` as
// likely as the likeliest. Then the cumulative distribution of the tokens that are left, in the
// order of their IDs, is inverted at the row's own random number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "functions.hpp"

namespace headpond {

struct Choice {
  float temperature;  // above 0
  float top_p;        // 1 for none
  float min_p;        // 0 for none
  int32_t top_k;      // 0 for all
  double uniform;     // in [0, 1)
};

class Sampler {
 public:
  int32_t draw(const float* logits, int count, const Choice& choice) {
    const double total = weigh(logits, count, choice.temperature);
    const bool filtered = choice.top_k > 0 || choice.top_p < 1.0f || choice.min_p > 0.0f;
    return filtered ? draw_filtered(total, count, choice) : draw_any(total, count, choice.uniform);
  }

 private:
  static constexpr int RUN = 1024;  // weights that are summed together

  struct Candidate {
    float weight;
    int32_t token;
  };

  // Fill `weight_` with e to the (logit - greatest) / temperature and return their sum.
  double weigh(const float* logits, int count, float temperature) {
    const float greatest = *std::max_element(logits, logits + count);
    weight_.resize(size_t(count) + 16);
    runs_.clear();
    const __m512 top = _mm512_set1_ps(greatest), rate = _mm512_set1_ps(1.0f / temperature);
    const __m512 least = _mm512_set1_ps(-87.0f);
    double total = 0;
    for (int begin = 0; begin < count; begin += RUN) {
      __m512d sum = _mm512_setzero_pd();
      for (int at = begin; at < std::min(begin + RUN, count); at += 16) {
        const __mmask16 mask = count - at >= 16 ? 0xFFFF : (1u << (count - at)) - 1;
        const __m512 logit = _mm512_maskz_loadu_ps(mask, logits + at);
        const __m512 power = _mm512_mul_ps(_mm512_sub_ps(logit, top), rate);
        // A masked token (-inf) has no weight at all, nor has one whose weight is subnormal.
        const __mmask16 some = _mm512_mask_cmp_ps_mask(mask, power, least, _CMP_GE_OQ);
        const __m512 weight = _mm512_maskz_mov_ps(some, exp_ps(power));
        _mm512_storeu_ps(weight_.data() + at, weight);
        sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_castps512_ps256(weight)));
        sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_extractf32x8_ps(weight, 1)));
      }
      runs_.push_back(_mm512_reduce_add_pd(sum));
      total += runs_.back();
    }
    return total;
  }

  int32_t draw_any(double total, int count, double uniform) const {
    double left = uniform * total;
    size_t run = 0;
    while (run + 1 < runs_.size() && left >= runs_[run]) left -= runs_[run++];
    int32_t last = 0;
    for (int at = int(run) * RUN; at < std::min(int(run + 1) * RUN, count); ++at) {
      if (weight_[at] == 0.0f) continue;
      last = at;
      if (left < weight_[at]) break;
      left -= weight_[at];
    }
    return last;
  }

  // The last token that is kept, when they are taken likeliest first (of equals, by ID).
  struct Edge {
    float weight;
    int32_t token;
    bool keeps(const Candidate& each) const {
      return each.weight > weight || (each.weight == weight && each.token <= token);
    }
  };

  // Most often few tokens share nearly all of the weight: only when those above a low bar are
  // not enough, all are looked at.
  int32_t draw_filtered(double total, int count, const Choice& choice) {
    const double most = choice.top_k > 0 ? choice.top_k : count;
    for (const float bar : {1e-3f, 0.0f}) {
      collect(count, bar);
      // What lies below the bar does not matter where `min_p` cuts above it, but for `top_k`,
      // of whose tokens `top_p` is a share.
      const bool all = bar == 0.0f || (choice.min_p >= bar && choice.top_k == 0);
      Edge edge{0.0f, count};
      if (choice.top_k > 0 && !find(most, total * 2, all, edge)) continue;
      if (choice.top_p < 1.0f) {
        const double mass = choice.top_k > 0 ? kept(edge) : total;
        if (!find(most, mass * choice.top_p, all, edge)) continue;
      } else if (choice.top_k == 0 && !all) {
        continue;
      }
      if (edge.weight < choice.min_p) edge = {choice.min_p, count};
      return pick(edge, choice.uniform * kept(edge));
    }
    return candidates_.front().token;
  }

  void collect(int count, float bar) {
    candidates_.clear();
    // A token without weight is never a candidate, whatever rounding makes of the sums.
    const __m512 least = _mm512_set1_ps(std::max(bar, std::numeric_limits<float>::min()));
    for (int at = 0; at < count; at += 16) {
      uint32_t found = _mm512_cmp_ps_mask(_mm512_loadu_ps(weight_.data() + at), least, _CMP_GE_OQ);
      for (; found; found &= found - 1) {
        const int token = at + __builtin_ctz(found);
        if (token < count) candidates_.push_back({weight_[token], token});
      }
    }
  }

  // Find the last of at most `most` tokens, after which those before it reach `mass`. Weights
  // are put into buckets by exponent and three bits of mantissa, so that only the bucket of the
  // edge has to be sorted. False when the candidates end first, and are not `all`.
  bool find(double most, double mass, bool all, Edge& edge) {
    std::fill(std::begin(bucket_), std::end(bucket_), Bucket{});
    for (const Candidate& each : candidates_) {
      Bucket& bucket = bucket_[key(each.weight)];
      bucket.sum += each.weight;
      bucket.count += 1;
    }
    double before = 0, taken = 0;
    int at = BUCKETS - 1;
    for (; at >= 0; --at) {
      if (taken + bucket_[at].count >= most || before + bucket_[at].sum >= mass) break;
      before += bucket_[at].sum;
      taken += bucket_[at].count;
    }
    if (at < 0) return all;
    inside_.clear();
    for (const Candidate& each : candidates_)
      if (key(each.weight) == at) inside_.push_back(each);
    std::sort(inside_.begin(), inside_.end(), [](const Candidate& a, const Candidate& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
    });
    for (const Candidate& each : inside_) {
      edge = {each.weight, each.token};
      before += each.weight;
      taken += 1;
      if (taken >= most || before >= mass) break;
    }
    return true;
  }

  static int key(float weight) {
    uint32_t bits;
    std::memcpy(&bits, &weight, 4);
    return std::min(int(bits >> 20), BUCKETS - 1);
  }

  double kept(const Edge& edge) const {
    double sum = 0;
    for (const Candidate& each : candidates_)
      if (edge.keeps(each)) sum += each.weight;
    return sum;
  }

  int32_t pick(const Edge& edge, double left) const {
    int32_t last = candidates_.front().token;
    for (const Candidate& each : candidates_) {
      if (!edge.keeps(each)) continue;
      last = each.token;
      if (left < each.weight) break;
      left -= each.weight;
    }
    return last;
  }

  struct Bucket {
    double sum = 0;
    double count = 0;
  };
  static constexpr int BUCKETS = (0x3F800000 >> 20) + 1;  // weights are at most 1

  Bucket bucket_[BUCKETS];
  std::vector<Candidate> inside_;
  std::vector<float> weight_;
  std::vector<double> runs_;
  std::vector<Candidate> candidates_;
};

}  // namespace headpond

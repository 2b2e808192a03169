// What a step computes, row by row: cut into tasks of attention, and into segments of adapters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention.hpp"
#include "structures.hpp"

namespace headpond {

// Attention of one KV head for query rows of one span, or for those of several spans that have
// one token each and the same first blocks.
struct Task {
  int span, head, first, count;  // query rows, counted from the span's first row on
  int spans;   // whose rows they are: of several, all, and `first` is 0
  int common;  // so many first tokens lie in the same blocks for all
};

struct Segment {
  const Adapter* adapter;
  int place, count;  // rows of the scope
};

// Rows that are computed. Those of a span lie one after the other, as the spans do.
struct Scope {
  std::vector<int32_t> rows;   // of the step
  std::vector<int32_t> place;  // [step's rows]: where each lies among `rows`
  std::vector<Task> tasks;
  std::vector<Segment> segments;
};

class Plan {
 public:
  // All rows of the step; and those whose logits are wanted with what lies between them and the
  // end of their spans, which are all that the last layer has to compute past its keys.
  Scope all, wanted;
  std::vector<int32_t> position, span_of;  // [step's rows]

  void prepare(const Step& step, const Model& model, const Adapter* adapters) {
    shared_ = model.heads / model.kv_heads;
    position.resize(step.rows);
    span_of.resize(step.rows);
    skipped_.assign(step.spans, 0);
    for (int at = 0; at < step.spans; ++at)
      for (int row = 0; row < step.span[at].count; ++row) {
        position[step.span[at].row + row] = step.span[at].start + row;
        span_of[step.span[at].row + row] = at;
      }
    fill(all, step, model, adapters);
    for (int at = 0; at < step.spans; ++at) skipped_[at] = step.span[at].count;
    for (int at = 0; at < step.wanted; ++at) {
      const int row = step.wanted_rows[at], span = span_of[row];
      skipped_[span] = std::min(skipped_[span], row - step.span[span].row);
    }
    fill(wanted, step, model, adapters);
  }

 private:
  // Fill a scope with each span's rows past those that it skips.
  void fill(Scope& scope, const Step& step, const Model& model, const Adapter* adapters) const {
    scope.rows.clear();
    scope.place.resize(step.rows);
    scope.tasks.clear();
    scope.segments.clear();
    for (int at = 0; at < step.spans; ++at) add_rows(scope, step.span[at], skipped_[at], adapters);
    for (int at = 0; at < step.spans;) at += add_tasks(scope, step, model, at);
    // The longest first, so that threads end at about the same time.
    std::stable_sort(scope.tasks.begin(), scope.tasks.end(), [&](const Task& a, const Task& b) {
      return a.count * step.span[a.span].start > b.count * step.span[b.span].start;
    });
  }

  void add_rows(Scope& scope, const Span& span, int skipped, const Adapter* adapters) const {
    const int place = int(scope.rows.size()), count = span.count - skipped;
    for (int row = span.row + skipped; row < span.row + span.count; ++row) {
      scope.place[row] = int32_t(scope.rows.size());
      scope.rows.push_back(row);
    }
    if (span.adapter < 0 || count == 0) return;
    const Adapter* adapter = adapters + span.adapter;
    if (!scope.segments.empty() && scope.segments.back().adapter == adapter)
      scope.segments.back().count += count;
    else
      scope.segments.push_back({adapter, place, count});
  }

  // Cut a span into tasks, and those after it that are computed with it; returns how many
  // spans these are.
  int add_tasks(Scope& scope, const Step& step, const Model& model, int at) const {
    const Span* spans = step.span;
    int together = 1, common = 0;
    while (at + together < step.spans && shared_ * (together + 1) <= HEADS) {
      const int same = common_tokens(model, spans[at], spans[at + together]);
      if (same == 0 || skipped_[at] || skipped_[at + together]) break;
      common = together == 1 ? same : std::min(common, same);
      ++together;
    }
    const int all = together > 1 ? shared_ * together : shared_ * spans[at].count;
    const int begin = shared_ * skipped_[at], parts = (all - begin + HEADS - 1) / HEADS;
    // One head after the other, as its keys stay in the cache; in equal shares: 39 rows are not
    // three times 12, and 3.
    for (int head = 0; head < model.kv_heads; ++head)
      for (int part = 0, first = begin; part < parts; ++part) {
        const int count = (all - first) / (parts - part);
        scope.tasks.push_back({at, head, first, count, together, common});
        first += count;
      }
    return together;
  }

  // How many first tokens lie in the same blocks for two spans of one token, in whole runs.
  static int common_tokens(const Model& model, const Span& left, const Span& right) {
    if (left.count != 1 || right.count != 1) return 0;
    const int most = std::min(left.start, right.start) / model.cache.block_tokens;
    int blocks = 0;
    while (blocks < most && left.blocks[blocks] == right.blocks[blocks]) ++blocks;
    return blocks * model.cache.block_tokens / RUN * RUN;
  }

  int shared_ = 1;
  std::vector<int32_t> skipped_;  // by span, so many of its first rows
};

}  // namespace headpond

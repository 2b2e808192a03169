// A team of threads that runs one function together, with barriers inside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <sched.h>
#include <thread>
#include <vector>

#include <immintrin.h>

namespace headpond {

// How often a waiting thread looks again before it gives its core away. Waits within a step
// take microseconds, so that a sleep would cost more than it saves.
constexpr int SPINS = 4000;

class Team {
 public:
  explicit Team(int size) : size_(size) {
    for (int rank = 1; rank < size_; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
  }

  ~Team() {
    task_ = nullptr;
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return size_; }

  // Run `task(rank)` on every thread; the caller is rank 0. Returns when all have returned.
  void run(const std::function<void(int)>& task) {
    task_ = &task;
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
    task(0);
    barrier();
  }

  // Wait until every thread has come here. The last to come gives the next tasks out anew.
  void barrier() {
    if (size_ == 1) {
      next_.store(0, std::memory_order_relaxed);
      return;
    }
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      phase_.fetch_add(1, std::memory_order_release);
      return;
    }
    for (int spin = 0; phase_.load(std::memory_order_acquire) == phase; ++spin) {
      if (spin < SPINS) _mm_pause();
      else sched_yield();
    }
  }

  // Deal `count` tasks out in runs of `grain`, first come first served, and wait for all. So a
  // thread that loses its core to another process holds up the others by one run at most.
  template <class Task>
  void deal(int count, int grain, const Task& task) {
    for (int first; (first = next_.fetch_add(grain, std::memory_order_relaxed)) < count;)
      for (int at = first; at < count && at < first + grain; ++at) task(at);
    barrier();
  }

 private:
  void serve(int rank) {
    for (uint32_t seen = 0;;) {
      for (int spin = 0; spin < SPINS && turn_.load(std::memory_order_acquire) == seen; ++spin)
        _mm_pause();
      turn_.wait(seen, std::memory_order_acquire);
      seen = turn_.load(std::memory_order_acquire);
      if (task_ == nullptr) return;
      (*task_)(rank);
      barrier();
    }
  }

  const int size_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* task_ = nullptr;
  alignas(64) std::atomic<uint32_t> turn_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int> next_{0};
};

}  // namespace headpond

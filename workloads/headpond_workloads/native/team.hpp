// A team of threads that runs one function together, with barriers inside it.
//
// Linux may keep two busy threads on one CPU for seconds while another is idle, and a step then
// takes three times as long (seen on Linux 6.18). So threads tell where they run, and one that
// finds itself on a teammate's CPU moves to another that it is allowed. Nobody is pinned: where
// it goes from there is the kernel's to decide.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
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
  explicit Team(int size) : size_(size), cpu_(new std::atomic<int>[size]) {
    for (int rank = 0; rank < size_; ++rank) cpu_[rank].store(-1, std::memory_order_relaxed);
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
    cpu_[0].store(sched_getcpu(), std::memory_order_relaxed);
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
    cpu_[rank()].store(sched_getcpu(), std::memory_order_relaxed);
    const uint32_t phase = phase_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      phase_.fetch_add(1, std::memory_order_release);
      return;
    }
    for (int spin = 0; phase_.load(std::memory_order_acquire) == phase; ++spin) {
      if (spin < SPINS) {
        _mm_pause();
      } else {
        if (spin == SPINS) spread();
        sched_yield();
      }
    }
  }

  // So many of `count` tasks of about the same size, but at most `most`, are dealt out at once:
  // neighbours lie next to each other in memory, and a thread that gets several asks for the
  // next one's while it computes the one before.
  int grain(int count, int most) const { return std::clamp(count / (3 * size_), 1, most); }

  // Deal `count` tasks out in runs of `grain`, first come first served, and wait for all. So a
  // thread that loses its core to another process holds up the others by one run at most.
  template <class Task>
  void deal(int count, int grain, const Task& task) {
    for (int first; (first = next_.fetch_add(grain, std::memory_order_relaxed)) < count;)
      for (int at = first; at < count && at < first + grain; ++at) task(at);
    barrier();
  }

 private:
  // The place of this thread in its team; who calls `run` is 0.
  static int& rank() {
    thread_local int value = 0;
    return value;
  }

  // Go to a CPU where no teammate is, if this thread shares one.
  void spread() {
    const int own = rank(), here = sched_getcpu();
    bool shared = false;
    cpu_set_t allowed, others;
    CPU_ZERO(&others);
    for (int each = 0; each < size_; ++each) {
      const int there = cpu_[each].load(std::memory_order_relaxed);
      if (each == own || there < 0) continue;
      shared |= there == here;
      CPU_SET(there, &others);
    }
    if (!shared || sched_getaffinity(0, sizeof(allowed), &allowed)) return;
    cpu_set_t free;
    CPU_AND(&free, &allowed, &others);
    CPU_XOR(&free, &free, &allowed);
    if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof(free), &free)) return;
    sched_setaffinity(0, sizeof(allowed), &allowed);
    cpu_[own].store(sched_getcpu(), std::memory_order_relaxed);
  }

  void serve(int own) {
    rank() = own;
    for (uint32_t seen = 0;;) {
      for (int spin = 0; spin < SPINS && turn_.load(std::memory_order_acquire) == seen; ++spin)
        _mm_pause();
      turn_.wait(seen, std::memory_order_acquire);
      seen = turn_.load(std::memory_order_acquire);
      if (task_ == nullptr) return;
      spread();
      (*task_)(own);
      barrier();
    }
  }

  const int size_;
  const std::unique_ptr<std::atomic<int>[]> cpu_;  // where each thread was seen last
  std::vector<std::thread> threads_;
  const std::function<void(int)>* task_ = nullptr;
  alignas(64) std::atomic<uint32_t> turn_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int> next_{0};
};

}  // namespace headpond

// Aligned memory that grows, and keeps what it has for the next step.
#pragma once

#include <cstdlib>
#include <new>

namespace headpond {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* get(size_t count) {
    if (count > size_) {
      std::free(memory_);
      size_ = 0;
      const size_t more = count + count / 4;
      memory_ = static_cast<T*>(std::aligned_alloc(64, (more * sizeof(T) + 63) / 64 * 64));
      if (memory_ == nullptr) throw std::bad_alloc();
      size_ = more;
    }
    return memory_;
  }
  ~Buffer() { std::free(memory_); }

 private:
  T* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace headpond

// Counts calls of operator new. Include it in one source of a program; not for sanitizers, which
// replace the operators themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace coppice::testing {
inline std::atomic<std::int64_t> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++coppice::testing::allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

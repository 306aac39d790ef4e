#include "engine/failing_allocation.h"

#include <cstdlib>
#include <new>

namespace coppice::testing {
thread_local long allocations_left = -1;
thread_local bool later_ones_fail = false;
thread_local std::size_t smallest_counted = 0;
}  // namespace coppice::testing

// Not inlined: compilers would miss the other half of a pair.
[[gnu::noinline]] void* operator new(std::size_t size) {
  long& left = coppice::testing::allocations_left;
  if (size >= coppice::testing::smallest_counted && left >= 0) {
    const bool fails = left == 0;
    if (!fails || !coppice::testing::later_ones_fail) --left;
    if (fails) throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

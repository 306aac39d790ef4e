#include "kernels/cpu/memory.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/memory_limit.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace coppice::cpu {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

[[noreturn]] void throw_out_of_memory(std::size_t bytes, std::int64_t available,
                                      const char* purpose) {
  std::string free_text = "an unknown amount";
  if (available != INT64_MAX) {
    free_text = cat(available >> 20, " MiB");
  }
  throw_failure(cat("no memory for ", purpose, ": ", bytes, " bytes (", bytes >> 20,
                    " MiB) wanted, ", free_text,
                    " free; use a smaller model or fewer kv-tokens, or free memory"));
}

// Linux hands out more than it has and ends the process on first touch: ask before.
void require_available(std::size_t bytes, const char* purpose) {
  const std::int64_t available = available_memory();
  if (bytes > static_cast<std::size_t>(available)) throw_out_of_memory(bytes, available, purpose);
}

}  // namespace

void require_room(std::size_t bytes, const char* purpose) {
#ifdef __linux__
  void* room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw_out_of_memory(bytes, available_memory(), purpose);
  munmap(room, bytes);
#else
  const DeviceBuffer room = allocate(bytes, purpose);
#endif
}

DeviceBuffer allocate(std::size_t bytes, const char* purpose) {
  if (bytes == 0) return {};
  const bool huge = bytes >= 2 * huge_page_bytes;
  const std::size_t alignment = huge ? huge_page_bytes : line_bytes;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw_out_of_memory(bytes, available_memory(), purpose);
  }
  if (huge) require_available(bytes, purpose);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw_out_of_memory(bytes, available_memory(), purpose);
#ifdef MADV_HUGEPAGE
  if (huge) (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, rounded);
  return DeviceBuffer(
      memory, bytes, [](void* p, void*) { std::free(p); }, nullptr);
}

DeviceBuffer reserve(std::size_t bytes, const char* purpose) {
#ifdef __linux__
  if (bytes < 2 * huge_page_bytes) return allocate(bytes, purpose);
  require_available(bytes, purpose);  // so that the sum below cannot overflow
  const std::size_t rounded = (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  const std::size_t mapped = rounded + huge_page_bytes;
  void* const room =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw_out_of_memory(bytes, available_memory(), purpose);
  // What lies before and behind the whole pages goes back.
  auto* const begin = static_cast<std::byte*>(room);
  const std::size_t before =
      (huge_page_bytes - reinterpret_cast<std::uintptr_t>(room) % huge_page_bytes) %
      huge_page_bytes;
  if (before > 0) (void)munmap(begin, before);
  (void)munmap(begin + before + rounded, huge_page_bytes - before);
#ifdef MADV_HUGEPAGE
  (void)madvise(begin + before, rounded, MADV_HUGEPAGE);
#endif
  return DeviceBuffer(
      begin + before, bytes,
      [](void* memory, void* size) {
        (void)munmap(memory, reinterpret_cast<std::uintptr_t>(size));
      },
      reinterpret_cast<void*>(rounded));
#else
  return allocate(bytes, purpose);
#endif
}

}  // namespace coppice::cpu

// Structs of coppice_c.h as those of coppice.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "c/status.h"
#include "coppice.h"
#include "coppice_c.h"

namespace coppice::c {

/// The defaults of coppice.h.
template <typename Struct>
Struct usual() noexcept;
template <>
coppice_engine_options usual() noexcept;
template <>
coppice_generate_options usual() noexcept;
template <>
coppice_request usual() noexcept;
template <>
coppice_policy usual() noexcept;
template <>
coppice_chat_options usual() noexcept;

/// A caller's struct in this library's size. Throws Error(usage) if `given` is NULL, was not
/// initialised, or sets a member that this library does not know.
template <typename Struct>
Struct read_struct(const Struct* given, const char* name) {
  need(given, name);
  // No version's is larger.
  constexpr std::size_t most = 1 << 14;
  const std::size_t size = given->struct_size;
  if (size < sizeof(std::size_t) || size > most || size % alignof(Struct) != 0) {
    throw_usage(cat(name, ": its struct_size is ", size, "; begin with its ..._init()"));
  }
  const char* const bytes = reinterpret_cast<const char*>(given);
  if (size > sizeof(Struct) &&
      std::any_of(bytes + sizeof(Struct), bytes + size, [](char byte) { return byte != 0; })) {
    throw_usage(cat(name, ": it sets members that libcoppice ", version(),
                    " does not know; leave them out, or use a newer library"));
  }
  Struct own = usual<Struct>();
  std::memcpy(static_cast<void*>(&own), bytes, std::min(size, sizeof own));
  return own;
}

/// Fills a caller's struct of results, of `size` bytes.
template <typename Struct>
void fill_struct(const Struct& own, Struct* given, std::size_t size) noexcept {
  std::memset(static_cast<void*>(given), 0, size);
  std::memcpy(static_cast<void*>(given), &own, std::min(size, sizeof own));
}

/// What ..._init() does.
template <typename Struct>
void init_struct(Struct* given, std::size_t size) noexcept {
  if (given == nullptr || size < sizeof(std::size_t)) return;
  Struct own = usual<Struct>();
  own.struct_size = size;
  fill_struct(own, given, size);
}

EngineOptions options_of(const coppice_engine_options* options);
GenerateOptions options_of(const coppice_generate_options* options);
Request request_of(const coppice_request* request);

/// Throws Error(usage) for anything but 0 and 1.
bool read_flag(const char* option, std::int32_t flag);

/// Throws Error(usage) for NULL with a count that is not 0.
template <typename Value>
std::span<const Value> span_of(const Value* values, std::size_t count, const char* name) {
  if (count > 0) need(values, name);
  return {values, count};
}

/// A text of so many bytes, or up to its zero byte. "" for NULL, of which there are no bytes.
inline std::string_view bytes_of(const char* text, std::size_t bytes, const char* name) {
  if (bytes == COPPICE_ZERO_TERMINATED) return text_of(text);
  if (bytes > 0) need(text, name);
  return {text, bytes};
}

}  // namespace coppice::c

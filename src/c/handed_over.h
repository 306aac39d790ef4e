// Arrays that callers own.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <span>

namespace coppice::c {

/// A copy that coppice_free() frees, with a zero behind it.
template <typename Value>
Value* handed_over(std::span<const Value> values) {
  auto* const copy = static_cast<Value*>(std::calloc(values.size() + 1, sizeof(Value)));
  if (copy == nullptr) throw std::bad_alloc();
  if (!values.empty()) std::memcpy(copy, values.data(), values.size_bytes());
  return copy;
}

}  // namespace coppice::c

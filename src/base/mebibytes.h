#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace coppice {

/// An amount of memory for messages, rounded up: "12 MiB".
inline std::string mebibytes(std::uint64_t bytes) {
  constexpr std::uint64_t one = std::uint64_t{1} << 20;
  return cat(bytes / one + (bytes % one != 0 ? 1 : 0), " MiB");
}

/// An amount of memory for reports: "12.6 MB".
inline std::string megabytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes + 50000) / 100000;
  return cat(tenths / 10, '.', tenths % 10, " MB");
}

}  // namespace coppice

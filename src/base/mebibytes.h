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

}  // namespace coppice

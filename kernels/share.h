// Equal parts of a number of items.
#pragma once

#include <cstdint>

namespace coppice {

/// The share [begin, end) of `items` that part `index` of `parts` holds.
struct Share {
  std::int64_t begin, end;
};
inline Share share_of(std::int64_t items, std::int64_t index, std::int64_t parts) {
  return {items * index / parts, items * (index + 1) / parts};
}

}  // namespace coppice

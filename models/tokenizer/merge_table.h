// Which pairs of pieces merge, and in which order.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/types.h"

namespace coppice::tokenization {

struct Merge {
  std::uint32_t rank = 0;  ///< the lowest goes first
  TokenId id = 0;          ///< what the pair becomes
};

/// A hash table with open addressing, at most half full.
class MergeTable {
 public:
  MergeTable() { reserve(0); }
  /// Before the first add(): room for this many.
  void reserve(std::size_t count) { slots_.assign(std::bit_ceil(2 * count + 2), Slot{}); }
  /// A pair that is there already gets the new merge.
  void add(TokenId left, TokenId right, Merge merge) {
    Slot& slot = slots_[place(key(left, right))];
    slot.key = key(left, right);
    slot.merge = merge;
  }
  /// nullptr: they do not merge.
  const Merge* find(TokenId left, TokenId right) const {
    const Slot& slot = slots_[place(key(left, right))];
    return slot.key == empty ? nullptr : &slot.merge;
  }

 private:
  static constexpr std::uint64_t empty = ~std::uint64_t{0};  // ids are not negative
  struct Slot {
    std::uint64_t key = empty;
    Merge merge;
  };
  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
  }
  /// Finds the place of the key, or of the free slot where it belongs.
  std::size_t place(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].key != key && slots_[at].key != empty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  std::vector<Slot> slots_;
};

}  // namespace coppice::tokenization

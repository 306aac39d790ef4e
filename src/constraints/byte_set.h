// A set of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace coppice::constraints {

struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  static ByteSet range(int low, int high) {
    ByteSet set;
    for (int byte = low; byte <= high; ++byte) set.add(byte);
    return set;
  }
  static ByteSet all() { return {{~0ull, ~0ull, ~0ull, ~0ull}}; }

  void add(int byte) { words[static_cast<unsigned>(byte) / 64] |= 1ull << (byte % 64); }
  bool has(int byte) const {
    return (words[static_cast<unsigned>(byte) / 64] >> (byte % 64) & 1) != 0;
  }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  int count() const {
    int n = 0;
    for (const std::uint64_t word : words) n += std::popcount(word);
    return n;
  }
  int first() const {
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t word = words[static_cast<unsigned>(i)];
      if (word != 0) return 64 * i + std::countr_zero(word);
    }
    return -1;
  }
  template <typename Each>
  void each(const Each& each_byte) const {
    for (int i = 0; i < 4; ++i) {
      for (std::uint64_t word = words[static_cast<unsigned>(i)]; word != 0; word &= word - 1) {
        each_byte(64 * i + std::countr_zero(word));
      }
    }
  }
  bool operator==(const ByteSet&) const = default;
};

inline ByteSet operator&(const ByteSet& a, const ByteSet& b) {
  ByteSet set;
  for (unsigned i = 0; i < 4; ++i) set.words[i] = a.words[i] & b.words[i];
  return set;
}
inline ByteSet operator|(const ByteSet& a, const ByteSet& b) {
  ByteSet set;
  for (unsigned i = 0; i < 4; ++i) set.words[i] = a.words[i] | b.words[i];
  return set;
}
inline ByteSet operator-(const ByteSet& a, const ByteSet& b) {
  ByteSet set;
  for (unsigned i = 0; i < 4; ++i) set.words[i] = a.words[i] & ~b.words[i];
  return set;
}

}  // namespace coppice::constraints

// Queries as the GPU has them in qkv: bf16 at the beginning of a head's place, which has room for
// as many floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace coppice::testing {

/// Element i of the head whose place in `qkv` begins at `head`.
inline std::uint16_t stored_query(const std::vector<float>& qkv, std::size_t head, std::size_t i) {
  std::uint16_t bf16;
  std::memcpy(&bf16, reinterpret_cast<const char*>(qkv.data() + head) + 2 * i, sizeof(bf16));
  return bf16;
}
inline void store_query(std::vector<float>& qkv, std::size_t head, std::size_t i,
                        std::uint16_t bf16) {
  std::memcpy(reinterpret_cast<char*>(qkv.data() + head) + 2 * i, &bf16, sizeof(bf16));
}

}  // namespace coppice::testing

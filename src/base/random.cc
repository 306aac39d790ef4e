#include "base/random.h"

#include <Random123/philox.h>

namespace coppice {
namespace {

using Philox = r123::Philox4x64;

Philox::ctr_type block(RandomStream stream, std::uint64_t seed, std::uint64_t a, std::uint64_t b,
                       std::uint64_t c, std::uint64_t d) {
  const Philox::ctr_type counter = {{a, b, c, d}};
  const Philox::key_type key = {{seed, static_cast<std::uint64_t>(stream)}};
  return Philox()(counter, key);
}

}  // namespace

double to_unit(std::uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1.0p-52; }

std::uint64_t child_node_key(std::uint64_t parent_key, std::int32_t sibling_rank) {
  // splitmix64 finaliser (Steele, Lea, Flood, 2014) over parent and rank.
  std::uint64_t z =
      parent_key + 0x9e3779b97f4a7c15ull * (static_cast<std::uint64_t>(sibling_rank) + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double uniform(RandomStream stream, const StepKey& key, std::uint64_t node_key,
               std::uint64_t index) {
  return to_unit(block(stream, key.seed, key.sequence, key.step, node_key, index)[0]);
}

void coupled_uniforms(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                      std::uint64_t first_token, std::span<double> out) {
  const std::size_t n = out.size();
  for (std::size_t base = 0; base < n; base += 4) {
    const auto bits =
        block(RandomStream::coupled, seed, sequence, position, (first_token + base) / 4, 0);
    for (std::size_t j = 0; j < 4 && base + j < n; ++j) out[base + j] = to_unit(bits[j]);
  }
}

}  // namespace coppice

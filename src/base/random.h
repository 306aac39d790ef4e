// Random numbers by counter: what a number is for decides what it is.
//
// Exactness of speculative sampling rests on which decisions share noise. Every use has
// its own stream, and within a stream a number is addressed, never "next":
//   draft     (seed, sequence, step, node key, sibling rank)   drawing children on the host
//             (..., token id / 4), one word per token          drawing children on a device
//   accept    (seed, sequence, step, node key, sibling rank)   accepting a child
//   residual  (seed, sequence, step, node key)                 the bonus token under rejection
//   coupled   (seed, sequence, epoch and position, token id)   shared Gumbel noise, which draws
//                                                              children, accepts and gives the
//                                                              bonus token (kernels/noise.h)
// The node key names a position by its path of sibling ranks, so it does not depend on the
// order in which a tree was grown. The generator is Philox 4x64-10 (Salmon et al., 2011);
// kernels/cuda/sampling/philox.cuh has the same addresses on a GPU.
#pragma once

#include <cstdint>
#include <span>

namespace coppice {

/// What a number is for. GenerateOptions::stream is another thing: StepKey::sequence.
enum class RandomStream : std::uint64_t { draft = 1, accept = 2, residual = 3, coupled = 4 };

/// Names one step of one sequence.
struct StepKey {
  std::uint64_t seed = 0;
  std::uint64_t sequence = 0;  ///< GenerateOptions::stream
  std::uint64_t step = 0;
  /// Absolute position of the root's successor (coupled noise).
  std::uint64_t position = 0;
  /// How often the sequence was cut back to tokens whose coupled noise had been used
  /// (SequenceState::epoch).
  std::uint64_t epoch = 0;

  /// Addresses the coupled noise of the token after a node of this depth: the position in the lower
  /// half, the epoch in the upper.
  constexpr std::uint64_t noise_position(std::uint64_t depth) const {
    return position + depth + (epoch << 32);
  }
};

/// Key of the root, and of the child with the given sibling rank.
inline constexpr std::uint64_t root_node_key = 0x9e3779b97f4a7c15ull;
std::uint64_t child_node_key(std::uint64_t parent_key, std::int32_t sibling_rank);

/// The middle of one of 2^52 equal cells of (0, 1), by the highest 52 bits: symmetric, and never 0
/// or 1 (of 2^53 cells, the largest one's middle would round to 1).
double to_unit(std::uint64_t bits);

/// Uniform on (0, 1): to_unit() of 64 random bits.
double uniform(RandomStream stream, const StepKey& key, std::uint64_t node_key,
               std::uint64_t index);

/// Uniforms of the coupled stream for tokens first_token, first_token + 1, ... at a
/// StepKey::noise_position() (kernels/noise.h turns them into noise). first_token is a multiple
/// of 4.
void coupled_uniforms(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                      std::uint64_t first_token, std::span<double> out);

}  // namespace coppice

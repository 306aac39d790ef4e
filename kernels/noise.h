// Shared noise of coupled sampling, by absolute position and token id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

/// Exponential(1) noise E of tokens [0, out.size()) at an absolute position, as 1/E:
/// argmax over tokens of probability * out is argmax of log probability + Gumbel noise. A
/// token's noise does not depend on the size of the vocabulary.
void inverse_exponential_noise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                               std::span<float> out);

/// Rows of inverse_exponential_noise by position, kept so that draft and target, and steps that
/// come back to a position, pay for a row once. Not for several threads at a time.
class NoiseCache {
 public:
  /// Keeps up to `rows` positions, the one with equal position modulo `rows` replaced first.
  explicit NoiseCache(std::int64_t vocab_size, std::int32_t rows = 32);

  /// [vocab]; valid until `rows` further positions have been asked for.
  std::span<const float> row(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position);

 private:
  struct Row {
    std::uint64_t seed = 0, sequence = 0, position = 0;
    std::vector<float> values;  ///< empty: never filled
  };
  std::int64_t vocab_size_;
  std::vector<Row> rows_;
};

}  // namespace coppice

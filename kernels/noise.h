// Shared noise of coupled sampling, by position in the text and token id. A `position` is a
// StepKey::noise_position() here: the noise epoch is its upper half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

/// Exponential(1) noise E of tokens [0, out.size()) at a position, as 1/E:
/// argmax over tokens of probability * out is argmax of log probability + Gumbel noise. A
/// token's noise does not depend on the size of the vocabulary.
void inverse_exponential_noise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                               std::span<float> out);

/// Rows of inverse_exponential_noise by text and position, kept so that draft and target, and steps
/// that come back to a position, pay for a row once. Not for several threads at a time.
class NoiseCache {
 public:
  /// Keeps rows of up to `texts` texts: of each as many as `rows` positions, the one with equal
  /// position modulo `rows` replaced first. A further text takes the place of the one that was not
  /// asked for longest. Where all that would take more than 128 MiB, each text has fewer rows, and
  /// at last fewer texts have any; but one has all of its rows.
  explicit NoiseCache(std::int64_t vocab_size, std::int32_t rows = 32, std::int32_t texts = 1);

  /// [vocab]; valid until another row is asked for.
  std::span<const float> row(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position);

  /// Rows that were not there when they were asked for.
  std::int64_t computed() const { return computed_; }
  /// Most that rows take.
  std::size_t most_bytes() const {
    return rows_.size() * static_cast<std::size_t>(vocab_size_) * sizeof(float);
  }

 private:
  struct Row {
    std::uint64_t seed = 0, sequence = 0, position = 0;
    std::vector<float> values;  ///< empty: never filled
  };
  struct Text {
    std::uint64_t seed = 0, sequence = 0;
    std::uint64_t turn = 0;  ///< at which it was last taken up; 0: never
  };
  std::size_t place_of(std::uint64_t seed, std::uint64_t sequence);

  std::int64_t vocab_size_;
  std::size_t rows_of_text_;
  std::vector<Text> texts_;  ///< by place
  std::vector<Row> rows_;    ///< [place, position modulo rows_of_text_]
  std::size_t place_ = 0;    ///< of the text asked for last
  std::uint64_t turns_ = 0;  ///< changes of the text asked for
  std::int64_t computed_ = 0;
};

}  // namespace coppice

// Probabilities by tree node: what a draft declared and sampled from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

/// Rows of vocab_size f32 probabilities, addressed by node id. Rows keep their memory.
class DistributionTable {
 public:
  DistributionTable() = default;
  DistributionTable(std::int32_t rows, std::int64_t vocab_size)
      : vocab_size_(vocab_size),
        values_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab_size)) {}

  std::int64_t vocab_size() const { return vocab_size_; }
  std::int32_t rows() const {
    return vocab_size_ == 0
               ? 0
               : static_cast<std::int32_t>(values_.size() / static_cast<std::size_t>(vocab_size_));
  }
  void grow_to(std::int32_t rows) {
    const auto wanted = static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab_size_);
    if (wanted > values_.size()) values_.resize(wanted);
  }
  std::span<float> row(std::int32_t node) {
    return {values_.data() + static_cast<std::size_t>(node) * static_cast<std::size_t>(vocab_size_),
            static_cast<std::size_t>(vocab_size_)};
  }
  std::span<const float> row(std::int32_t node) const {
    return {values_.data() + static_cast<std::size_t>(node) * static_cast<std::size_t>(vocab_size_),
            static_cast<std::size_t>(vocab_size_)};
  }

 private:
  std::int64_t vocab_size_ = 0;
  std::vector<float> values_;
};

}  // namespace coppice

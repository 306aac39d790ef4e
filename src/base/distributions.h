// Probabilities by tree node: what a draft declared and sampled from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace coppice {

/// Rows of vocab_size f32 probabilities, addressed by node id. Only nodes whose row was asked
/// for occupy memory; rows never move, and their memory is kept from step to step.
class DistributionTable {
 public:
  DistributionTable() = default;
  DistributionTable(std::int32_t nodes, std::int64_t vocab_size) : vocab_size_(vocab_size) {
    grow_to(nodes);
  }

  std::int64_t vocab_size() const { return vocab_size_; }
  /// Node ids that can be addressed: [0, rows()).
  std::int32_t rows() const { return static_cast<std::int32_t>(row_of_node_.size()); }
  void grow_to(std::int32_t nodes) {
    if (nodes > rows()) row_of_node_.resize(static_cast<std::size_t>(nodes), -1);
  }
  /// Takes the rows of all nodes away again.
  void reset() {
    row_of_node_.assign(row_of_node_.size(), -1);
    used_ = 0;
  }

  bool has(std::int32_t node) const {
    return node < rows() && row_of_node_[static_cast<std::size_t>(node)] >= 0;
  }
  /// The node's row, given to it on the first call with unspecified contents.
  std::span<float> row(std::int32_t node) {
    std::int32_t& row = row_of_node_[static_cast<std::size_t>(node)];
    if (row < 0) {
      row = used_++;
      if (row == static_cast<std::int32_t>(values_.size())) {
        values_.push_back(std::make_unique_for_overwrite<float[]>(width()));
      }
    }
    return {values_[static_cast<std::size_t>(row)].get(), width()};
  }
  /// The row of a node that has one.
  std::span<const float> row(std::int32_t node) const {
    const std::int32_t row = row_of_node_[static_cast<std::size_t>(node)];
    return {values_[static_cast<std::size_t>(row)].get(), width()};
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(vocab_size_); }

  std::int64_t vocab_size_ = 0;
  std::int32_t used_ = 0;
  std::vector<std::int32_t> row_of_node_;
  std::vector<std::unique_ptr<float[]>> values_;
};

}  // namespace coppice

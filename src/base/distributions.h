// Probabilities by candidate (TokenTree::candidate): what a draft declared and sampled from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace coppice {

/// Rows of equal width that no table has at the moment. Tables that share it keep as many as they
/// had at a time, all together.
class SpareRows {
 public:
  using Row = std::unique_ptr<float[]>;

  /// With unspecified contents.
  Row take(std::size_t width) {
    if (spare_.empty()) {
      spare_.reserve(made_ + 1);  // so that giving back cannot fail
      spare_.push_back(std::make_unique_for_overwrite<float[]>(width));
      ++made_;
    }
    Row row = std::move(spare_.back());
    spare_.pop_back();
    return row;
  }
  void give_back(Row row) noexcept { spare_.push_back(std::move(row)); }
  /// That there are, taken ones among them.
  std::size_t made() const { return made_; }

 private:
  std::vector<Row> spare_;
  std::size_t made_ = 0;
};

/// Rows of vocab_size f32 probabilities, addressed by node of the candidate tree. Only nodes whose
/// row was asked for occupy memory; rows never move, and their memory is kept from step to step.
class DistributionTable {
 public:
  DistributionTable() : DistributionTable(0, 0) {}
  /// `spare`: of tables that share their memory; null: this one's own.
  DistributionTable(std::int32_t nodes, std::int64_t vocab_size,
                    std::shared_ptr<SpareRows> spare = nullptr)
      : vocab_size_(vocab_size),
        spare_(spare != nullptr ? std::move(spare) : std::make_shared<SpareRows>()) {
    grow_to(nodes);
  }
  DistributionTable(DistributionTable&&) = default;
  DistributionTable& operator=(DistributionTable&&) = delete;
  ~DistributionTable() { give_back(); }

  std::int64_t vocab_size() const { return vocab_size_; }
  /// Node ids that can be addressed: [0, rows()).
  std::int32_t rows() const { return static_cast<std::int32_t>(row_of_node_.size()); }
  void grow_to(std::int32_t nodes) {
    if (nodes > rows()) row_of_node_.resize(static_cast<std::size_t>(nodes), -1);
  }
  /// Takes the rows of all nodes away again.
  void reset() {
    row_of_node_.assign(row_of_node_.size(), -1);
    give_back();
  }

  bool has(std::int32_t node) const {
    return node < rows() && row_of_node_[static_cast<std::size_t>(node)] >= 0;
  }
  /// The node's row, given to it on the first call with unspecified contents.
  std::span<float> row(std::int32_t node) {
    std::int32_t& row = row_of_node_[static_cast<std::size_t>(node)];
    if (row < 0) {
      values_.push_back(spare_->take(width()));
      row = static_cast<std::int32_t>(values_.size()) - 1;
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
  void give_back() noexcept {
    for (SpareRows::Row& row : values_) spare_->give_back(std::move(row));
    values_.clear();
  }

  std::int64_t vocab_size_;
  std::vector<std::int32_t> row_of_node_;
  std::shared_ptr<SpareRows> spare_;
  std::vector<SpareRows::Row> values_;  ///< in use
};

}  // namespace coppice

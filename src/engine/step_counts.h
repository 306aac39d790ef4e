// What an engine's steps came to, since it was loaded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "coppice.h"

namespace coppice {

/// Written by whoever takes steps, read from any thread without waiting for one.
class StepCounts {
 public:
  void count_pass() {
    const std::lock_guard lock(mutex_);
    ++counts_.passes;
  }
  /// `accepted`: nodes of the path that count.
  void count_tree(const TokenTree& tree, std::span<const std::int32_t> accepted) {
    const std::lock_guard lock(mutex_);
    ++counts_.steps;
    counts_.drafted += tree.size();
    counts_.accepted += std::ssize(accepted);
    for (std::int32_t node = 1; node < tree.nodes(); ++node) {
      ++at_depth(counts_.drafted_by_depth, tree.depth[static_cast<std::size_t>(node)]);
    }
    counts_.accepted_by_depth.resize(counts_.drafted_by_depth.size());
    for (const std::int32_t node : accepted) {
      ++at_depth(counts_.accepted_by_depth, tree.depth[static_cast<std::size_t>(node)]);
    }
  }
  /// Everything else is 0.
  EngineStatistics read() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  static std::int64_t& at_depth(std::vector<std::int64_t>& counts, std::int32_t depth) {
    counts.resize(std::max(counts.size(), static_cast<std::size_t>(depth)));
    return counts[static_cast<std::size_t>(depth) - 1];
  }

  mutable std::mutex mutex_;
  EngineStatistics counts_;
};

}  // namespace coppice

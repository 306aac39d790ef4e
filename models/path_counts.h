// Penalties follow each tree path.
#pragma once

#include <cstdint>

#include "base/sampling_params.h"
#include "base/token_tree.h"
#include "kernels/logits.h"
#include "models/sequence_state.h"

namespace coppice {

/// While it lives, the text's counts also hold the tokens from below the root down to `node`, as
/// far as `params` want to know of them.
class PathCounts {
 public:
  PathCounts(SequenceState& text, const SamplingParams& params, const TokenTree& tree,
             std::int32_t node)
      : seen_(params.repetition_penalty == 1.0 ? nullptr : &text.counts),
        fresh_(params.counts_new() ? &text.new_counts : nullptr),
        tree_(tree),
        node_(node) {
    each([](TokenCounts& counts, TokenId token) { counts.add(token); });
  }
  ~PathCounts() {
    each([](TokenCounts& counts, TokenId token) { counts.remove(token); });
  }
  /// For process_logits(); null: of no token.
  const TokenCounts* seen() const { return seen_; }
  const TokenCounts* fresh() const { return fresh_; }
  PathCounts(const PathCounts&) = delete;
  PathCounts& operator=(const PathCounts&) = delete;

 private:
  template <typename Visit>
  void each(Visit visit) {
    if (seen_ == nullptr && fresh_ == nullptr) return;
    for (auto n = static_cast<std::size_t>(node_); tree_.parent[n] >= 0;
         n = static_cast<std::size_t>(tree_.parent[n])) {
      if (seen_ != nullptr) visit(*seen_, tree_.token[n]);
      if (fresh_ != nullptr) visit(*fresh_, tree_.token[n]);
    }
  }
  TokenCounts *const seen_, *const fresh_;
  const TokenTree& tree_;
  std::int32_t node_;
};

}  // namespace coppice

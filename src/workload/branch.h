// A branch of a tree of texts.
#pragma once

#include <vector>

#include "coppice.h"

namespace coppice::workload {

/// Whether forks share KV. Until they do, a fork is a copy.
inline constexpr bool branches_share = false;

class Branch {
 public:
  /// The first one.
  Branch(Engine& engine, std::vector<TokenId> prompt);
  /// One that begins where this one ends. Copies share nothing with others: `mark`, a number of its
  /// own, says what it begins with in place of the prompt's first token.
  Branch fork(Engine& engine) const;
  Branch copy(Engine& engine, std::int32_t mark) const;

  /// Has the request go on with it.
  void ask(Request& request);

 private:
  Sequence text_;
  std::vector<TokenId> given_;  ///< tokens that its next generate() is to be given
};

}  // namespace coppice::workload

// A branch of a tree of texts.
#pragma once

#include <memory>
#include <vector>

#include "coppice.h"

namespace coppice::workload {

class Branch {
 public:
  /// The first one. Shared: its KV is computed at once, and kept until the branch is gone.
  Branch(Engine& engine, std::vector<TokenId> prompt, bool shared);
  /// One that begins where this one ends, and shares its KV.
  Branch fork() const;
  /// The same that shares nothing: `mark`, a number of its own, changes its first token.
  Branch copy(Engine& engine, std::int32_t mark) const;

  /// Has the request go on with it.
  void ask(Request& request);

 private:
  explicit Branch(Sequence text) : text_(std::move(text)) {}

  std::unique_ptr<Prefix> prompt_;  ///< null but for a first one that is shared
  Sequence text_;
  std::vector<TokenId> given_;  ///< tokens that its next generate() is to be given
};

}  // namespace coppice::workload

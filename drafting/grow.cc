#include "drafting/grow.h"

#include <algorithm>

#include "drafting/grower.h"
#include "drafting/proposer.h"

namespace coppice {
namespace {

template <typename Call>
void note_failure(GrowingText& text, const Call& call) {
  try {
    call();
  } catch (...) {
    text.failure = std::current_exception();
  }
}

}  // namespace

void DraftPolicy::begin(const GrowthLimits& limits, TokenId root) {
  limits_ = limits;
  candidates_.reset(root, limits.rules, limits.rule_state);
  frontier_.clear();
  if (limits.proposer != nullptr) limits.proposer->begin();
  if (limits.max_size > 0 && limits.max_depth > 0 && limits.min_value <= 1.0)
    frontier_.push_back(0);
}

void grow_trees(std::span<GrowingText> texts, DraftPasses& passes, Grower* common) {
  const auto wants_some = [](const GrowingText& text) { return !text.frontier().empty(); };
  for (GrowingText& text : texts) {
    note_failure(text, [&] {
      text.policy.begin(text.limits, text.tree.token[0]);
      if (text.limits.proposer != nullptr) text.policy.propose(text.source);
    });
  }
  if (common != nullptr) common->grow();
  while (std::any_of(texts.begin(), texts.end(), wants_some)) {
    passes.evaluate(texts);
    for (GrowingText& text : texts) {
      if (wants_some(text)) note_failure(text, [&] { text.policy.take(text.source); });
    }
    if (common != nullptr) common->grow();
  }
  for (GrowingText& text : texts) {
    if (!text.failure) note_failure(text, [&] { text.policy.finish(text.tree); });
  }
}

void grow_tree(DraftPolicy& policy, TextDraft& draft, const GrowthLimits& limits, TokenTree& tree) {
  GrowingText text{policy, draft, limits, tree, nullptr};
  grow_trees(std::span(&text, 1), draft);
  if (text.failure) std::rethrow_exception(text.failure);
}

}  // namespace coppice

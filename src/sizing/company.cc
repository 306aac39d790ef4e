#include "sizing/company.h"

#include "sizing/constants.h"

namespace coppice {

void UsualStep::record(std::int32_t nodes, double tokens, std::int64_t draft_passes) {
  constexpr double left = SizingConstants::discount;
  weight_ = left * weight_ + 1.0;
  nodes_ = left * nodes_ + nodes;
  tokens_ = left * tokens_ + tokens;
  for (std::size_t k = 0; k < passes; ++k) {
    drafts_[k] = left * drafts_[k] + (static_cast<std::int64_t>(k) < draft_passes ? 1.0 : 0.0);
  }
}

void Company::join_adapting(const UsualStep& usual, double its_won) {
  ++adapting;
  won += its_won;
  for (std::size_t k = 0; k < drafts.size(); ++k) drafts[k] += usual.drafts(k);
  if (!usual.known()) return;
  ++known_;
  nodes_ += usual.nodes();
  tokens_ += usual.tokens();
}

void Company::join_given(const UsualStep& usual) {
  ++given;
  given_nodes_ += usual.nodes();
  given_tokens_ += usual.tokens();
  for (std::size_t k = 0; k < drafts.size(); ++k) drafts[k] += usual.drafts(k);
}

double Company::tokens() const {
  const double each = known_ > 0 ? tokens_ / known_ : 1.0;
  return each * adapting + given_tokens_ + (texts - adapting - given);
}

void StepWork::add(std::int32_t its_nodes, std::int64_t its_passes, std::int32_t length) {
  ++texts;
  nodes += its_nodes;
  drafting += its_passes > 0 ? 1 : 0;
  passes = std::max(passes, its_passes);
  turns += its_passes;
  kv_tokens += length;
}

}  // namespace coppice

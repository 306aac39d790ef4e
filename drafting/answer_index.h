// What an engine's earlier texts wrote, to be looked up by later ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafting/suffix_index.h"

namespace coppice {

/// Answers, in one suffix index. If they have more tokens than `most`, those that were least
/// recently added or used leave, until half is left.
class AnswerIndex {
 public:
  explicit AnswerIndex(std::int32_t most = 1 << 17) : most_(most), index_(2 * most) {}

  /// Where memory runs out, all answers leave.
  void add(std::span<const TokenId> answer);
  /// The answer was of use at this place (SuffixIndex::Follower::last).
  void note_use(std::int32_t place);
  const SuffixIndex& index() const { return index_; }
  /// Changes whenever answers have left: matches from before are void.
  std::int64_t version() const { return version_; }

 private:
  struct Answer {
    std::vector<TokenId> tokens;
    std::int32_t begin = 0;  ///< in the index
    std::int64_t used = 0;
  };
  void index(Answer& answer);
  void forget_half();

  std::int32_t most_;
  SuffixIndex index_;
  std::vector<Answer> answers_;  ///< in the index's order
  std::int64_t uses_ = 0, version_ = 0;
};

}  // namespace coppice

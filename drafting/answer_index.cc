#include "drafting/answer_index.h"

#include <algorithm>
#include <new>

namespace coppice {

void AnswerIndex::index(Answer& answer) {
  answer.begin = index_.size();
  for (const TokenId token : answer.tokens) index_.append(token);
  index_.append(-1);
}

// Those that were used last stay, as many as fit half of the room, in the order they had.
void AnswerIndex::forget_half() {
  std::sort(answers_.begin(), answers_.end(),
            [](const Answer& a, const Answer& b) { return a.used > b.used; });
  std::int32_t kept = 0;
  const auto first_to_go =
      std::find_if(answers_.begin(), answers_.end(), [&](const Answer& answer) {
        kept += static_cast<std::int32_t>(answer.tokens.size()) + 1;
        return kept > most_ / 2;
      });
  answers_.erase(first_to_go, answers_.end());
  std::sort(answers_.begin(), answers_.end(),
            [](const Answer& a, const Answer& b) { return a.begin < b.begin; });
  index_.clear();
  for (Answer& answer : answers_) index(answer);
  ++version_;
}

void AnswerIndex::add(std::span<const TokenId> answer) {
  answer = answer.first(std::min(answer.size(), static_cast<std::size_t>(most_ / 2)));
  const auto tokens = static_cast<std::int32_t>(answer.size());
  if (tokens == 0) return;
  try {
    if (index_.size() + tokens >= most_) forget_half();
    answers_.push_back({{answer.begin(), answer.end()}, 0, ++uses_});
    index(answers_.back());
  } catch (const std::bad_alloc&) {
    // Half an answer cannot be looked up in, and the text that it is of is not to suffer.
    answers_.clear();
    index_.clear();
    ++version_;
  }
}

void AnswerIndex::note_use(std::int32_t place) {
  const auto behind =
      std::upper_bound(answers_.begin(), answers_.end(), place,
                       [](std::int32_t at, const Answer& answer) { return at < answer.begin; });
  if (behind != answers_.begin()) (behind - 1)->used = ++uses_;
}

}  // namespace coppice

#include "drafting/answer_index.h"

#include <algorithm>

namespace coppice {

void AnswerIndex::index(Answer& answer) {
  answer.begin = index_.size();
  for (const TokenId token : answer.tokens) index_.append(token);
  index_.append(-1);
}

void AnswerIndex::add(std::span<const TokenId> answer) {
  answer = answer.first(std::min(answer.size(), static_cast<std::size_t>(most_ / 2)));
  const auto tokens = static_cast<std::int32_t>(answer.size());
  if (tokens == 0) return;
  if (index_.size() + tokens >= most_) {
    std::vector<std::int64_t> used;
    for (const Answer& old : answers_) used.push_back(old.used);
    std::vector<std::size_t> order(answers_.size());
    for (std::size_t a = 0; a < order.size(); ++a) order[a] = a;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return used[a] > used[b]; });
    std::int32_t kept = 0;
    std::vector<char> stays(answers_.size(), 0);
    for (const std::size_t a : order) {
      kept += static_cast<std::int32_t>(answers_[a].tokens.size()) + 1;
      if (kept > most_ / 2) break;
      stays[a] = 1;
    }
    std::vector<Answer> left;
    index_ = SuffixIndex(2 * most_);
    for (std::size_t a = 0; a < answers_.size(); ++a) {
      if (stays[a] == 0) continue;
      left.push_back(std::move(answers_[a]));
      index(left.back());
    }
    answers_ = std::move(left);
    ++version_;
  }
  answers_.push_back({{answer.begin(), answer.end()}, 0, ++uses_});
  index(answers_.back());
}

void AnswerIndex::note_use(std::int32_t place) {
  const auto behind =
      std::upper_bound(answers_.begin(), answers_.end(), place,
                       [](std::int32_t at, const Answer& answer) { return at < answer.begin; });
  if (behind != answers_.begin()) (behind - 1)->used = ++uses_;
}

}  // namespace coppice

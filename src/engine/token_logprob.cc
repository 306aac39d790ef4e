#include "engine/token_logprob.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace coppice {

TokenLogprob logprob_of(std::span<const float> probs, TokenId token, std::int32_t top) {
  const auto prob_of = [&](TokenId id) { return probs[static_cast<std::size_t>(id)]; };
  const auto log_of = [&](TokenId id) { return std::log(static_cast<double>(prob_of(id))); };
  TokenLogprob entry{token, log_of(token), {}};
  const auto count = std::min<std::ptrdiff_t>(top, std::ssize(probs));
  if (count == 0) return entry;
  std::vector<TokenId> ids(probs.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto best = std::span(ids).first(static_cast<std::size_t>(count));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](TokenId a, TokenId b) {
    return prob_of(a) != prob_of(b) ? prob_of(a) > prob_of(b) : a < b;
  });
  for (const TokenId id : best) {
    if (prob_of(id) > 0.0f) entry.top.emplace_back(id, log_of(id));
  }
  return entry;
}

}  // namespace coppice

#include "study/replay/entries.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

namespace coppice::study {
namespace {

// The tokens of the `count` largest positive scores, largest first, lower id first among equals.
template <typename Score>
std::vector<TokenId> largest(std::size_t vocab, Score score, std::int32_t count) {
  // Worst on top. Ids are negated, so that of equal scores the higher id is the worse.
  using Scored = std::pair<float, TokenId>;
  std::priority_queue<Scored, std::vector<Scored>, std::greater<>> best;
  for (std::size_t i = 0; i < vocab; ++i) {
    const Scored scored{score(i), -static_cast<TokenId>(i)};
    if (!(scored.first > 0.0f)) continue;
    if (best.size() == static_cast<std::size_t>(count)) {
      if (!(scored > best.top())) continue;
      best.pop();
    }
    best.push(scored);
  }
  std::vector<TokenId> tokens(best.size());
  for (std::size_t i = tokens.size(); i-- > 0; best.pop()) tokens[i] = -best.top().second;
  return tokens;
}

std::uint16_t rank_in(const std::vector<TokenId>& order, TokenId token) {
  const auto at = std::find(order.begin(), order.end(), token);
  return at == order.end() ? no_rank : static_cast<std::uint16_t>(at - order.begin());
}

}  // namespace

std::vector<TokenId> settled_children(std::span<const float> draft, std::span<const float> noise,
                                      std::int32_t count) {
  // Multiplied in float, as ChildDrawer does: ties must fall alike.
  const auto score = [&](std::size_t i) { return noise.empty() ? draft[i] : draft[i] * noise[i]; };
  return largest(draft.size(), score, count);
}

void append_node(const DrawnOrders& orders, std::span<const float> target,
                 std::span<const float> draft, std::int32_t top_k, TokenId target_token,
                 RecordedPosition& out) {
  std::vector<TokenId> ids = largest(
      draft.size(), [&](std::size_t i) { return std::max(draft[i], target[i]); }, top_k);
  ids.insert(ids.end(), orders.settled.begin(), orders.settled.end());
  ids.insert(ids.end(), orders.sampled.begin(), orders.sampled.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());

  // The rests are summed themselves, not taken from 1: what is left is often tiny.
  double draft_rest = 0.0, target_rest = 0.0, overlap = 0.0;
  auto recorded = ids.begin();
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (recorded != ids.end() && static_cast<std::size_t>(*recorded) == i) {
      ++recorded;
      continue;
    }
    draft_rest += static_cast<double>(draft[i]);
    target_rest += static_cast<double>(target[i]);
    overlap += static_cast<double>(std::min(draft[i], target[i]));
  }
  for (const TokenId token : ids) {
    out.token.push_back(token);
    out.draft.push_back(draft[static_cast<std::size_t>(token)]);
    out.target.push_back(target[static_cast<std::size_t>(token)]);
    out.settled_rank.push_back(rank_in(orders.settled, token));
    out.sampled_rank.push_back(rank_in(orders.sampled, token));
  }
  out.first_entry.push_back(static_cast<std::uint32_t>(out.token.size()));
  out.target_token.push_back(target_token);
  out.draft_rest.push_back(static_cast<float>(draft_rest));
  out.target_rest.push_back(static_cast<float>(target_rest));
  out.overlap.push_back(static_cast<float>(std::min({overlap, draft_rest, target_rest})));
}

}  // namespace coppice::study

#include "engine/opening_order.h"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace coppice {
namespace {

/// What fewer tokens, or bytes of text, have in common is not worth a change of order.
constexpr std::size_t least_tokens = 16, least_bytes = 64;

template <typename Sequence>
std::size_t common(const Sequence& a, const Sequence& b, std::size_t least) {
  const auto most = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  const auto same = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + most, b.begin()).first - a.begin());
  return same < least ? 0 : same;
}

/// Sorts requests by their prompt: its tokens or its text, the other is empty. Both are empty where
/// a request continues a sequence.
struct Key {
  explicit Key(const Request& request) {
    if (request.sequence != nullptr) return;
    tokens = request.tokens;
    text = request.prompt;
  }
  std::span<const TokenId> tokens;
  std::string_view text;

  bool operator<(const Key& other) const {
    if (text != other.text) return text < other.text;
    return std::lexicographical_compare(tokens.begin(), tokens.end(), other.tokens.begin(),
                                        other.tokens.end());
  }
  std::size_t shared_with(const Key& other) const {
    return common(tokens, other.tokens, least_tokens) + common(text, other.text, least_bytes);
  }
};

}  // namespace

std::vector<std::size_t> opening_order(std::span<const Request> requests) {
  const std::vector<Key> keys(requests.begin(), requests.end());
  std::vector<std::size_t> sorted(requests.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  // With the one before.
  std::vector<std::size_t> shared(requests.size(), 0);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    shared[i] = keys[sorted[i]].shared_with(keys[sorted[i - 1]]);
  }
  // Subtrees, the next one last: each falls into those of its children.
  struct Subtree {
    std::size_t begin, end, first;  ///< of `sorted`, and its first request
  };
  std::vector<Subtree> left;
  const auto add = [&](std::size_t begin, std::size_t end) {
    const auto of = [&](std::size_t at) {
      return sorted.begin() + static_cast<std::ptrdiff_t>(at);
    };
    left.push_back({begin, end, *std::min_element(of(begin), of(end))});
  };
  std::vector<std::size_t> order;
  if (!sorted.empty()) add(0, sorted.size());
  while (!left.empty()) {
    const Subtree tree = left.back();
    left.pop_back();
    if (tree.end == tree.begin + 1) {
      order.push_back(tree.first);
      continue;
    }
    std::size_t least = shared[tree.begin + 1];
    for (std::size_t i = tree.begin + 2; i < tree.end; ++i) least = std::min(least, shared[i]);
    const auto before = static_cast<std::ptrdiff_t>(left.size());
    std::size_t begin = tree.begin;
    for (std::size_t i = begin + 1; i < tree.end; ++i) {
      if (shared[i] != least) continue;
      add(begin, i);
      begin = i;
    }
    add(begin, tree.end);
    std::sort(left.begin() + before, left.end(),
              [](const Subtree& a, const Subtree& b) { return a.first > b.first; });
  }
  return order;
}

}  // namespace coppice

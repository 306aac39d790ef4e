#include "reference/oracle.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "drafting/positions.h"

namespace coppice {
namespace {

// Greedy growth is optimal. A tree of N nodes is a set of N paths that holds every path's
// prefixes, and is worth the sum of their w_T: at most the N largest w_T of all admitted paths.
// Greedy growth reaches that bound: order paths by w_T, and a path is preceded by its prefixes (a
// factor T <= 1 never increases w_T) and by its earlier siblings (ranked by T). A path outside the
// tree thus has a prefix, or a prefix's earlier sibling, of no smaller w_T in the heap; so the
// heap's first is the largest w_T left, and the N first taken are N largest, and a tree. Limits
// keep this: a path that they admit has admitted prefixes and earlier siblings.
class Oracle {
 public:
  Oracle(const GrowthLimits& limits, const DistributionAfter& target,
         const DistributionAfter& draft)
      : limits_(limits), target_(target), draft_(draft) {}

  // Heap order.
  auto first_on_top() const {
    return [this](const Position& a, const Position& b) { return before(tree_, b, a); };
  }

  TokenTree grow(TokenId root) {
    tree_.reset(root);
    open(0);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), first_on_top());
      const Position position = heap_.back();
      heap_.pop_back();
      const auto parent = static_cast<std::size_t>(position.parent);
      const Candidate& taken = candidates_[parent][static_cast<std::size_t>(position.rank)];
      const std::int32_t node =
          tree_.add(position.parent, taken.token, position.rank, taken.draft_prob, position.value);
      if (tree_.size() >= limits_.max_size) break;
      push(position.parent, position.rank + 1);
      open(node);
    }
    return std::move(tree_);
  }

 private:
  struct Candidate {
    TokenId token;
    float target_prob;
    float draft_prob;
  };

  // Ranks the children that `node` may get, and offers the first.
  void open(std::int32_t node) {
    const std::int32_t room = limits_.max_size - tree_.size();
    candidates_.emplace_back();
    if (room <= 0 || tree_.depth[static_cast<std::size_t>(node)] >= limits_.max_depth) return;
    path_.clear();
    for (std::int32_t n = node; n > 0; n = tree_.parent[static_cast<std::size_t>(n)]) {
      path_.push_back(tree_.token[static_cast<std::size_t>(n)]);
    }
    std::reverse(path_.begin(), path_.end());
    std::vector<Candidate>& children = candidates_.back();
    const std::span<const float> target_probs = target_(path_);
    for (std::size_t token = 0; token < target_probs.size(); ++token) {
      const float prob = target_probs[token];
      if (prob > 0.0f) children.push_back({static_cast<TokenId>(token), prob, prob});
    }
    if (draft_) {
      const std::span<const float> draft_probs = draft_(path_);
      for (Candidate& child : children) {
        const auto token = static_cast<std::size_t>(child.token);
        child.draft_prob = token < draft_probs.size() ? draft_probs[token] : 0.0f;
      }
      std::erase_if(children, [](const Candidate& child) { return !(child.draft_prob > 0.0f); });
    }
    const std::size_t ranked = std::min(children.size(), static_cast<std::size_t>(room));
    std::partial_sort(children.begin(), children.begin() + static_cast<std::ptrdiff_t>(ranked),
                      children.end(), [](const Candidate& a, const Candidate& b) {
                        return a.target_prob != b.target_prob ? a.target_prob > b.target_prob
                                                              : a.token < b.token;
                      });
    children.resize(ranked);
    push(node, 0);
  }

  void push(std::int32_t parent, std::int32_t rank) {
    const auto p = static_cast<std::size_t>(parent);
    const auto r = static_cast<std::size_t>(rank);
    if (r >= candidates_[p].size()) return;
    const double value = tree_.value[p] * static_cast<double>(candidates_[p][r].target_prob);
    if (!(value > 0.0) || value < limits_.min_value) return;
    heap_.push_back({value, tree_.depth[p] + 1, parent, rank});
    std::push_heap(heap_.begin(), heap_.end(), first_on_top());
  }

  const GrowthLimits& limits_;
  const DistributionAfter& target_;
  const DistributionAfter& draft_;
  TokenTree tree_;
  std::vector<std::vector<Candidate>> candidates_;  // by node, by rank
  std::vector<Position> heap_;                      // first on top
  std::vector<TokenId> path_;
};

}  // namespace

TokenTree oracle_tree(TokenId root, const GrowthLimits& limits, const DistributionAfter& target,
                      const DistributionAfter& draft) {
  return Oracle(limits, target, draft).grow(root);
}

}  // namespace coppice

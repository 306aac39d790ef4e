#include "reference/naive_dyspec.h"

#include <algorithm>
#include <numeric>

namespace coppice::testing {
namespace {

// A heap element: TreeInfo (the parent's paths and key), the residual R and the value v.
struct Element {
  std::vector<std::int32_t> ranks;  // of the position
  std::vector<TokenId> parent_tokens;
  std::uint64_t parent_key;
  std::vector<double> residual;
  double value;
  // For plain values:
  std::vector<float> draft;
  double parent_prob;
  double drawn;
};

bool structurally_before(const Element& a, const Element& b) {
  if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
  return a.ranks < b.ranks;
}

TokenId sample(const std::vector<double>& probs, double u) {
  const double wanted = u * std::accumulate(probs.begin(), probs.end(), 0.0);
  double sum = 0.0;
  TokenId last = -1;
  for (std::size_t i = 0; i < probs.size(); ++i) {
    if (!(probs[i] > 0.0)) continue;
    last = static_cast<TokenId>(i);
    sum += probs[i];
    if (sum > wanted) break;
  }
  return last;
}

}  // namespace

NaiveTree naive_dyspec(const DraftByPath& draft, const GrowthLimits& limits, const StepKey& key,
                       NaiveValues values, double tie) {
  NaiveTree tree;
  std::vector<Element> heap;
  const auto push_children_of = [&](const std::vector<std::int32_t>& ranks,
                                    const std::vector<TokenId>& tokens, std::uint64_t node_key,
                                    double node_prob, double value) {
    if (static_cast<std::int32_t>(ranks.size()) >= limits.max_depth) return;
    ++tree.draft_calls;
    std::vector<float> row = draft(tokens);
    std::vector<std::int32_t> first = ranks;
    first.push_back(0);
    heap.push_back({first, tokens, node_key, std::vector<double>(row.begin(), row.end()), value,
                    row, node_prob, 0.0});
  };
  push_children_of({}, {}, root_node_key, 1.0, 1.0);
  while (static_cast<std::int32_t>(tree.nodes.size()) < limits.max_size && !heap.empty()) {
    double largest = 0.0;
    for (const Element& element : heap) largest = std::max(largest, element.value);
    if (!(largest > 0.0) || largest < limits.min_value) break;
    std::size_t best = heap.size();
    for (std::size_t i = 0; i < heap.size(); ++i) {
      if (heap[i].value < largest * (1.0 - tie)) continue;
      if (best == heap.size() || structurally_before(heap[i], heap[best])) best = i;
    }
    Element element = heap[best];
    heap.erase(heap.begin() + static_cast<std::ptrdiff_t>(best));
    const auto rank = static_cast<std::uint64_t>(element.ranks.back());
    const TokenId y =
        sample(element.residual, uniform(RandomStream::draft, key, element.parent_key, rank));
    if (y < 0) continue;  // D has no mass left
    const auto at = static_cast<std::size_t>(y);

    NaiveNode node{element.ranks, element.parent_tokens, element.value};
    node.tokens.push_back(y);
    tree.nodes.push_back(node);
    const double draft_prob = static_cast<double>(element.draft[at]);
    const double node_prob = element.parent_prob * draft_prob;
    double child_value = element.value * element.residual[at];
    double sibling_value = element.value * (1.0 - element.residual[at]);
    element.drawn += draft_prob;
    if (values == NaiveValues::plain) {
      child_value = std::min(node_prob, element.value);
      sibling_value =
          std::min(element.value, element.parent_prob * std::max(0.0, 1.0 - element.drawn));
    }
    const std::uint64_t node_key = child_node_key(element.parent_key, element.ranks.back());
    const std::vector<std::int32_t> ranks = element.ranks;
    element.residual[at] = 0.0;
    const double left = std::accumulate(element.residual.begin(), element.residual.end(), 0.0);
    if (left > 0.0) {
      for (double& r : element.residual) r /= left;
    }
    element.value = sibling_value;
    ++element.ranks.back();
    if (left > 0.0) heap.push_back(element);
    push_children_of(ranks, node.tokens, node_key, node_prob, child_value);
  }
  return tree;
}

}  // namespace coppice::testing

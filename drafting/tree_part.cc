#include "drafting/tree_part.h"

namespace coppice {

void TreePart::copy(const TokenTree& whole, std::span<const std::int32_t> nodes, TokenTree& part) {
  part.reset(whole.token[0]);
  index_.assign(whole.token.size(), 0);
  children_.assign(whole.token.size(), 0);
  for (const std::int32_t node : nodes) {
    const auto i = static_cast<std::size_t>(node);
    const auto parent = static_cast<std::size_t>(whole.parent[i]);
    index_[i] = part.add(index_[parent], whole.token[i], children_[parent]++, whole.draft_prob[i],
                         whole.value[i], whole.belief[i], whole.uniform[i]);
    part.candidate.back() = whole.candidate[i];
    part.origin.back() = whole.origin[i];
  }
}

}  // namespace coppice

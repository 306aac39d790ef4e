#include "base/token_tree.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace coppice {

void TokenTree::reset(TokenId root_token, const TokenRules* of_text, std::int32_t root_state) {
  rules = of_text;
  rule_state.assign(1, root_state);
  token.assign(1, root_token);
  parent.assign(1, -1);
  depth.assign(1, 0);
  rank.assign(1, 0);
  draft_prob.assign(1, 1.0f);
  belief.assign(1, 1.0f);
  uniform.assign(1, -1.0f);
  path_prob.assign(1, 1.0);
  value.assign(1, 1.0);
  candidate.assign(1, 0);
  origin.assign(1, Origin::model);
  key.assign(1, root_node_key);
  first_child.assign(1, -1);
  last_child.assign(1, -1);
  next_sibling.assign(1, -1);
}

void TokenTree::reserve(std::int32_t nodes_wanted) {
  const auto n = static_cast<std::size_t>(nodes_wanted);
  token.reserve(n);
  parent.reserve(n);
  depth.reserve(n);
  rank.reserve(n);
  draft_prob.reserve(n);
  belief.reserve(n);
  uniform.reserve(n);
  path_prob.reserve(n);
  value.reserve(n);
  candidate.reserve(n);
  origin.reserve(n);
  key.reserve(n);
  rule_state.reserve(n);
  first_child.reserve(n);
  last_child.reserve(n);
  next_sibling.reserve(n);
}

std::int32_t TokenTree::add(std::int32_t parent_node, TokenId node_token, std::int32_t sibling_rank,
                            float probability, double position_value, float believed,
                            float judged_by) {
  const std::int32_t node = nodes();
  const auto p = static_cast<std::size_t>(parent_node);
  const std::int32_t state =  // first: it may throw
      rules == nullptr    ? 0
      : rule_state[p] < 0 ? -1
                          : rules->advance(rule_state[p], node_token);
  rule_state.push_back(state);
  token.push_back(node_token);
  parent.push_back(parent_node);
  depth.push_back(depth[p] + 1);
  rank.push_back(sibling_rank);
  draft_prob.push_back(probability);
  belief.push_back(believed < 0.0f ? probability : believed);
  uniform.push_back(judged_by);
  path_prob.push_back(path_prob[p] * static_cast<double>(probability));
  value.push_back(position_value);
  candidate.push_back(node);
  origin.push_back(Origin::model);
  key.push_back(child_node_key(key[p], sibling_rank));
  if (last_child[p] < 0) {
    first_child[p] = node;
  } else {
    next_sibling[static_cast<std::size_t>(last_child[p])] = node;
  }
  last_child[p] = node;
  first_child.push_back(-1);
  last_child.push_back(-1);
  next_sibling.push_back(-1);
  return node;
}

std::int32_t TokenTree::add_certain(std::int32_t parent_node, TokenId node_token,
                                    std::int32_t sibling_rank, double position_value,
                                    double chance) {
  const std::int32_t node =
      add(parent_node, node_token, sibling_rank, 1.0f, position_value, static_cast<float>(chance));
  origin.back() = Origin::lookup;
  return node;
}

void TokenTree::assign_part(const TokenTree& whole, std::span<const std::int32_t> nodes) {
  reset(whole.token[0], whole.rules, whole.rule_state[0]);
  part_node_.assign(whole.token.size(), 0);
  for (const std::int32_t node : nodes) {
    const auto i = static_cast<std::size_t>(node);
    const std::int32_t above = part_node_[static_cast<std::size_t>(whole.parent[i])];
    const std::int32_t before = last_child[static_cast<std::size_t>(above)];
    part_node_[i] =
        add(above, whole.token[i], before < 0 ? 0 : rank[static_cast<std::size_t>(before)] + 1,
            whole.draft_prob[i], whole.value[i], whole.belief[i], whole.uniform[i]);
    candidate.back() = whole.candidate[i];
    origin.back() = whole.origin[i];
  }
}

std::int32_t TokenTree::child_with(std::int32_t node, TokenId wanted) const {
  std::int32_t child = first_child[static_cast<std::size_t>(node)];
  while (child >= 0 && token[static_cast<std::size_t>(child)] != wanted) {
    child = next_sibling[static_cast<std::size_t>(child)];
  }
  return child;
}

std::int32_t TokenTree::height() const {
  return depth.empty() ? 0 : *std::max_element(depth.begin(), depth.end());
}

void TokenTree::validate(std::int32_t vocab_size) const {
  const std::size_t n = token.size();
  const auto broken = [](std::size_t node, const char* what) {
    throw_failure(cat("token tree: node ", node, ": ", what));
  };
  if (n == 0) broken(0, "the root is missing");
  if (parent.size() != n || depth.size() != n || rank.size() != n || draft_prob.size() != n ||
      belief.size() != n || uniform.size() != n || path_prob.size() != n || value.size() != n ||
      candidate.size() != n || origin.size() != n || key.size() != n || rule_state.size() != n ||
      first_child.size() != n || last_child.size() != n || next_sibling.size() != n) {
    broken(0, "arrays differ in length");
  }
  if (parent[0] != -1 || depth[0] != 0) broken(0, "the root has a parent or a depth");
  std::vector<std::int32_t> children(n, 0), last(n, -1);
  for (std::size_t i = 0; i < n; ++i) {
    if (token[i] < 0 || token[i] >= vocab_size) broken(i, "token outside the vocabulary");
    if (i == 0) continue;
    if (parent[i] < 0 || parent[i] >= static_cast<std::int32_t>(i)) {
      broken(i, "its parent does not come before it");
    }
    const auto p = static_cast<std::size_t>(parent[i]);
    if (depth[i] != depth[p] + 1) broken(i, "depth is not its parent's plus one");
    if (rank[i] != children[p]++) broken(i, "sibling ranks are not contiguous in node order");
    const auto node = static_cast<std::int32_t>(i);
    const std::int32_t before = last[p];
    if ((before < 0 ? first_child[p] : next_sibling[static_cast<std::size_t>(before)]) != node) {
      broken(i, "no link leads to it");
    }
    last[p] = node;
    if (!(draft_prob[i] >= 0.0f && draft_prob[i] <= 1.0f))
      broken(i, "draft probability not in [0, 1]");
    for (std::size_t j = p + 1; j < i; ++j) {
      if (parent[j] == parent[i] && token[j] == token[i]) broken(i, "repeats a sibling's token");
    }
  }
}

}  // namespace coppice

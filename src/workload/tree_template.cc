#include "workload/tree_template.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::workload {

TreeTemplate few_shot(std::int64_t prompt_tokens, std::int32_t branches, std::int64_t iterations) {
  const auto most_branches = static_cast<std::int32_t>(most_nodes - 1);
  if (prompt_tokens < 1 || prompt_tokens > most_tokens) {
    throw_usage(cat("few-shot: a prompt of ", prompt_tokens, " tokens; use 1 to ", most_tokens));
  }
  if (branches < 1 || branches > most_branches) {
    throw_usage(cat("few-shot: ", branches, " branches; use 1 to ", most_branches));
  }
  if (iterations < 2 || iterations > (most_tokens - prompt_tokens) / branches) {
    throw_usage(cat("few-shot: ", iterations,
                    " iterations; use at least 2 (the first is the prompt's), and at most ",
                    most_tokens, " tokens in all"));
  }
  TreeTemplate tree;
  tree.name = cat("few-shot with ", branches, " branches");
  tree.nodes.push_back({-1, prompt_tokens, 1 - prompt_tokens, 0});
  tree.nodes.resize(static_cast<std::size_t>(branches) + 1, {0, iterations - 1, 1, iterations - 1});
  return tree;
}

TreeTemplate shrunk(const TreeTemplate& tree, std::int64_t divisor) {
  TreeTemplate small = tree;
  for (std::size_t n = 0; n < small.nodes.size(); ++n) {
    const TemplateNode& whole = tree.nodes[n];
    TemplateNode& node = small.nodes[n];
    node.tokens = (whole.tokens + divisor - 1) / divisor;
    if (n == 0) {
      node.begin = 1 - node.tokens;
      continue;
    }
    const auto parent = static_cast<std::size_t>(whole.parent);
    const std::int64_t pause = whole.begin - tree.nodes[parent].end - 1;
    node.begin = small.nodes[parent].end + 1 + pause / divisor;
    node.end = node.begin + node.tokens - 1;
  }
  return small;
}

TreeTemplate with_prompt(TreeTemplate tree, std::int64_t prompt_tokens) {
  TemplateNode& root = tree.nodes.front();
  root.tokens = prompt_tokens;
  root.begin = root.end + 1 - prompt_tokens;
  return tree;
}

}  // namespace coppice::workload

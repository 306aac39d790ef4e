#include "study/grid/token_probs.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "verify/children.h"

namespace coppice::study {

std::vector<float> token_probs(const StepView& step, const SamplingParams& params) {
  const TokenTree& tree = step.tree;
  std::vector<float> probs(static_cast<std::size_t>(tree.nodes()), 1.0f);
  ChildLinks links;
  links.assign(tree);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    std::int32_t child = links.first_child(node);
    if (child < 0) continue;
    const std::span<const float> row = step.target.distribution_at(node, params);
    for (; child >= 0; child = links.next_sibling(child)) {
      const auto c = static_cast<std::size_t>(child);
      probs[c] = row[static_cast<std::size_t>(tree.token[c])];
    }
  }
  return probs;
}

}  // namespace coppice::study

// A judged tree as columns.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "c/handles.h"
#include "c/options.h"

using namespace coppice;
using namespace coppice::c;

namespace {

// The view, and what it points to.
struct StoredTree : coppice_tree {
  std::vector<std::int32_t> tokens, parents, depths, ranks, states, counts_allowed;
  std::vector<double> draft_probs, path_probs, values, target_probs;
  std::vector<std::uint8_t> accepted_flags, looked_up_flags, forced_flags;

  explicit StoredTree(const JudgedTree& of) : coppice_tree{} {
    for (const TreeNode& node : of.nodes) {
      tokens.push_back(node.token);
      parents.push_back(node.parent);
      depths.push_back(node.depth);
      ranks.push_back(node.rank);
      draft_probs.push_back(node.draft_prob);
      path_probs.push_back(node.path_prob);
      values.push_back(node.value);
      target_probs.push_back(node.target_prob);
      accepted_flags.push_back(node.accepted);
      looked_up_flags.push_back(node.looked_up);
      forced_flags.push_back(node.forced);
      states.push_back(node.state);
      counts_allowed.push_back(node.allowed);
    }
    count = of.nodes.size();
    token = tokens.data();
    parent = parents.data();
    depth = depths.data();
    rank = ranks.data();
    draft_prob = draft_probs.data();
    path_prob = path_probs.data();
    value = values.data();
    target_prob = target_probs.data();
    accepted = accepted_flags.data();
    looked_up = looked_up_flags.data();
    forced = forced_flags.data();
    state = states.data();
    allowed = counts_allowed.data();
    draft_passes = of.draft_passes;
    bonus = of.bonus;
    acceptance = name_of(of.acceptance);
  }
};

}  // namespace

coppice_status coppice_judge_tree(coppice_engine* engine, const coppice_request* request,
                                  coppice_tree** tree) {
  return guarded([&] {
    need(engine, "engine");
    need(tree, "tree");
    const Request own = request_of(request);
    if (own.sequence != nullptr || own.n != 1 || own.callback) {
      throw_usage(
          "request: a tree has no sequence, samples or callback; give a prompt and options");
    }
    if (!own.prompt.empty() && !own.tokens.empty()) {
      throw_usage("prompt: both a text and token ids are given; use one of them");
    }
    const JudgedTree judged = own.tokens.empty()
                                  ? engine->engine.judge_tree(own.prompt, own.options)
                                  : engine->engine.judge_tree(std::span(own.tokens), own.options);
    *tree = std::make_unique<StoredTree>(judged).release();
  });
}

void coppice_tree_free(coppice_tree* tree) { delete static_cast<StoredTree*>(tree); }

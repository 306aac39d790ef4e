#include "engine/decode.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/running_sequence.h"
#include "engine/scheduler.h"
#include "engine/step.h"

namespace coppice {
namespace {

bool is_forced(const TokenTree& tree, std::int32_t parent, TokenId token) {
  const auto mask = tree.mask(parent);
  if (mask == nullptr) return false;
  if (mask->only == token) return true;
  const std::vector<TokenId> run =
      tree.rules->forced(tree.rule_state[static_cast<std::size_t>(parent)]);
  return !run.empty() && run.front() == token;
}

}  // namespace

Generation decode(Engine::Impl& engine, SequenceState& state, const GenerateOptions& options,
                  const PieceCallback& callback) {
  const SettledRequest request(engine, options);
  RunningSequence sequence(engine, state, request, callback);
  const double start = now_seconds();
  write_to_end(*engine.scheduler, sequence);
  if (sequence.failure) std::rethrow_exception(sequence.failure);
  return sequence.finish(request.planning_seconds + now_seconds() - start);
}

JudgedTree judged_tree(const TokenTree& tree, const Verdict& verdict, TargetRows& target) {
  const std::vector<std::int32_t>& path = verdict.path;
  JudgedTree judged;
  judged.bonus = verdict.bonus;
  for (std::size_t n = 0; n < tree.token.size(); ++n) {
    TreeNode node;
    node.token = tree.token[n];
    node.parent = tree.parent[n];
    node.depth = tree.depth[n];
    node.rank = tree.rank[n];
    node.draft_prob = static_cast<double>(tree.draft_prob[n]);
    node.path_prob = tree.path_prob[n];
    node.value = tree.value[n];
    // Read from the parent's row.
    if (n > 0) {
      node.target_prob = static_cast<double>(
          target.distribution(tree.parent[n])[static_cast<std::size_t>(tree.token[n])]);
    }
    node.accepted =
        n == 0 || std::find(path.begin(), path.end(), static_cast<std::int32_t>(n)) != path.end();
    node.looked_up = tree.is_certain(static_cast<std::int32_t>(n));
    if (tree.rules != nullptr) {
      const auto mask = tree.mask(static_cast<std::int32_t>(n));
      node.state = tree.rule_state[n];
      node.allowed = mask == nullptr ? 0 : mask->allowed;
      node.forced = node.looked_up && is_forced(tree, tree.parent[n], node.token);
    }
    judged.nodes.push_back(node);
  }
  return judged;
}

JudgedTree judge_first_tree(Engine::Impl& engine, SequenceState& state,
                            const GenerateOptions& options) {
  const SettledRequest request(engine, options);
  const PieceCallback no_callback;
  RunningSequence sequence(engine, state, request, no_callback);
  const std::lock_guard lock(engine.mutex);
  const DeviceScope scope(*engine.device);
  const std::int32_t wanted = state.length() + engine.options.max_tree_size;
  engine.cache->evict({wanted, wanted});
  if (!engine.target_runner->prefill(state)) {
    throw_failure("tree: too few KV slots for the prompt; raise kv_tokens (--kv-tokens)");
  }
  DraftStartPolicy::Batch alone;
  DraftGaps gaps;
  sequence.join(alone, gaps);
  while (std::optional<DraftPrompt> prompt = sequence.draft_prompt(alone, gaps)) {
    engine.draft_runner->prefill({&*prompt, 1});
    sequence.take_pass(*prompt, 0.0, 0.0);
  }
  const std::int64_t passes_of_prompt = sequence.account.draft_passes;
  RunningSequence* const sequences = &sequence;
  StepPlan plan;
  plan_step(engine, {&sequences, 1}, plan);
  const std::unique_ptr<TreeJudge> judge = engine.make_judge();
  Step step(engine, *judge, plan);
  step.grow();
  if (plan.short_of_slots || !step.judge()) {
    throw_failure("tree: too few KV slots for the tree; raise kv_tokens (--kv-tokens)");
  }
  if (sequence.failure) std::rethrow_exception(sequence.failure);
  JudgedTree judged = judged_tree(sequence.tree, sequence.verdict, step.target(0));
  judged.acceptance = request.options.acceptance;
  judged.draft_passes = sequence.account.draft_passes - passes_of_prompt;
  return judged;
}

}  // namespace coppice

#include "engine/decode.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/step.h"
#include "engine/text_run.h"

namespace coppice {
namespace {

/// The engine for one step: others take theirs in between.
struct Turn {
  explicit Turn(Engine::Impl& engine) : lock(engine.mutex), scope(*engine.device) {}
  const std::lock_guard<std::mutex> lock;
  const DeviceScope scope;
};

// False: too few KV slots.
bool take_step(TextRun& text) {
  const Turn turn(text.engine);
  Step step(text);
  step.grow();
  if (!step.judge()) return false;
  step.commit();
  step.account();
  return true;
}

// Where tokens before the root lack KV, the last of them and the root take one pass, and the first
// token is sampled from the root's row, as in a plain step. Else there is nothing to do. False: too
// few slots.
bool prefill_target(TextRun& text) {
  const Turn turn(text.engine);
  const double start = now_seconds(), observed_before = text.account.observer_seconds;
  const auto with_first_token = [&] {
    TargetRunner& target = *text.engine.target_runner;
    if (TargetRunner::late_rows(text.state) == 0) return true;
    if (!target.prefill_to_last_pass(text.state)) return false;
    Step step(text);
    if (!step.judge()) return false;
    step.commit();
    text.account.first_with_prefill = true;
    return true;
  };
  const bool fits = with_first_token();
  text.account.seconds.prefill +=
      now_seconds() - start - (text.account.observer_seconds - observed_before);
  return fits;
}

void prefill_draft(TextRun& text) {
  // A tree is for two tokens at least.
  if (!text.speculator.can_follow(text.state) || text.tokens_left() < 2) return;
  const Stopwatch timing(text.account.seconds.prefill);
  text.account.draft_passes += text.speculator.prefill(text.state);
}

// The draft's turn comes when the first token, which does not need it, has been handed on.
void prefill(TextRun& text) {
  if (!prefill_target(text)) return text.end_between_steps(FinishReason::memory);
  if (text.account.first_with_prefill) text.hand_on();
  if (text.ended()) return;
  const Turn turn(text.engine);
  prefill_draft(text);
}

}  // namespace

Generation decode(Engine::Impl& engine, SequenceState& state, const GenerateOptions& options,
                  const PieceCallback& callback) {
  const SettledRequest request(engine, options);
  TextRun text(engine, state, request, callback);
  const double start = now_seconds();
  if (!text.ended()) prefill(text);
  while (!text.ended()) {
    if (take_step(text)) {
      text.hand_on();
    } else {
      text.end_between_steps(FinishReason::memory);
    }
  }
  return text.finish(request.planning_seconds + now_seconds() - start);
}

JudgedTree judge_first_tree(Engine::Impl& engine, SequenceState& state,
                            const GenerateOptions& options) {
  const SettledRequest request(engine, options);
  const PieceCallback no_callback;
  TextRun text(engine, state, request, no_callback);
  const Turn turn(engine);
  if (!engine.target_runner->prefill(state)) {
    throw_failure("tree: too few KV slots for the prompt; raise kv_tokens");
  }
  prefill_draft(text);
  const std::int64_t passes_of_prompt = text.account.draft_passes;
  Step step(text);
  step.grow();
  if (!step.judge()) throw_failure("tree: too few KV slots for the tree; raise kv_tokens");
  const TokenTree& tree = text.tree;
  const std::vector<std::int32_t>& path = text.verdict.path;
  JudgedTree judged;
  judged.acceptance = request.options.acceptance;
  judged.bonus = text.verdict.bonus;
  judged.draft_passes = text.account.draft_passes - passes_of_prompt;
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
          step.target().distribution(tree.parent[n])[static_cast<std::size_t>(tree.token[n])]);
    }
    node.accepted =
        n == 0 || std::find(path.begin(), path.end(), static_cast<std::int32_t>(n)) != path.end();
    judged.nodes.push_back(node);
  }
  return judged;
}

}  // namespace coppice

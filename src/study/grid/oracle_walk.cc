#include "study/grid/oracle_walk.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "drafting/oracle.h"
#include "engine/access.h"
#include "engine/step_view.h"
#include "study/number_text.h"
#include "verify/children.h"

namespace coppice::study {
namespace {

[[noreturn]] void throw_no_slots() {
  throw_failure("oracle: too few KV slots; raise --kv-tokens, or give --oracle-positions 0");
}

/// The target's processed distribution after a path from the text's end.
class TargetAfter {
 public:
  TargetAfter(TargetRunner& target, SequenceState& state, const SamplingParams& params)
      : target_(target), state_(state), params_(params) {}

  std::span<const float> operator()(std::span<const TokenId> path) {
    path_tree_.reset(state_.tokens.back());
    std::int32_t node = 0;
    for (const TokenId token : path) node = path_tree_.add(node, token, 0, 1.0f, 1.0);
    const auto pass = target_.pass(state_, path_tree_, params_);
    if (!pass) throw_no_slots();
    pass->wait();
    return pass->text().distribution(node);
  }

 private:
  TargetRunner& target_;
  SequenceState& state_;
  const SamplingParams& params_;
  TokenTree path_tree_;
};

}  // namespace

std::string OracleCell::key() const {
  return cat("oracle size=", size, " temperature=", number_text(temperature),
             pair.empty() ? "" : " pair=", pair);
}

OracleWalk walk_oracle(Engine& engine, std::span<const TokenId> prompt,
                       std::span<const TokenId> text, const GenerateOptions& request,
                       std::int32_t size, std::int32_t positions) {
  EngineAccess access(engine);
  const SamplingParams& params = request.sampling;
  SequenceState state = access.new_text(prompt);
  OracleWalk walk;
  const auto with_prefill = static_cast<std::size_t>(tokens_with_prefill(prompt.size()));
  for (const TokenId token : text.first(std::min(with_prefill, text.size()))) state.append(token);
  text = text.subspan(std::min(with_prefill, text.size()));
  while (walk.positions < positions && !text.empty()) {
    const EngineAccess::Turn turn = access.turn();
    GrowthLimits limits;
    limits.max_size = size;
    limits.max_depth = std::min(size, access.target().model->max_positions() - state.length());
    if (limits.max_depth < 1) break;
    if (!turn.target.prefill(state)) throw_no_slots();
    TargetAfter target(turn.target, state, params);
    const TokenTree tree = oracle_tree(state.tokens.back(), limits, std::ref(target));
    walk.expected += std::accumulate(tree.value.begin(), tree.value.end(), 0.0);
    ++walk.positions;
    // The accepted path, then the bonus token.
    ChildLinks links;
    links.assign(tree);
    std::int32_t node = 0;
    while (node >= 0 && !text.empty()) {
      node = links.child_with(tree, node, text.front());
      state.append(text.front());
      text = text.subspan(1);
    }
  }
  return walk;
}

}  // namespace coppice::study

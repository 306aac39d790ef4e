#include "server/prompt_logprobs.h"

#include <algorithm>

#include "base/error.h"
#include "engine/access.h"
#include "engine/engine_impl.h"
#include "engine/token_logprob.h"

namespace coppice::server {
namespace {

/// Leaves the text's KV to others, in a turn of its own.
class Released {
 public:
  Released(EngineAccess& access, SequenceState& state) : access_(access), state_(state) {}
  ~Released() {
    const EngineAccess::Turn turn = access_.turn();
    state_.release();
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  EngineAccess& access_;
  SequenceState& state_;
};

}  // namespace

std::vector<TokenLogprob> prompt_logprobs(Engine& engine, std::span<const TokenId> prompt,
                                          std::int32_t top) {
  EngineAccess access(engine);
  SequenceState state = access.new_state(prompt.first(1));
  const Released released(access, state);
  const auto rows = static_cast<std::size_t>(access.target().model->options().max_rows);
  std::vector<TokenLogprob> entries;
  entries.reserve(prompt.size());
  entries.push_back({prompt[0], 0.0, {}});
  TokenTree chain;
  std::vector<std::int32_t> path;
  // A pass judges the text as a tree of one path.
  for (std::size_t root = 0; root + 1 < prompt.size();) {
    const std::size_t nodes = std::min(rows, prompt.size() - 1 - root);
    const EngineAccess::Turn turn = access.turn();
    EngineAccess::impl(engine).cache->evict({static_cast<std::int32_t>(nodes), 0});
    state.begin_tree(chain);
    path.clear();
    for (std::size_t i = 1; i < nodes; ++i) {
      path.push_back(
          chain.add_certain(static_cast<std::int32_t>(i) - 1, prompt[root + i], 0, 1.0, 1.0));
    }
    const TargetRunner::Pass pass =
        turn.target.pass(state, chain, SamplingParams{.temperature = 1.0});
    if (!pass) {
      throw_failure(
          "too few KV slots for the prompt's log-probabilities now; ask again later, or "
          "raise --kv-tokens");
    }
    turn.target.wait();
    TargetRows& judged = pass->text();
    for (std::size_t i = 0; i < nodes; ++i) {
      entries.push_back(
          logprob_of(judged.distribution(static_cast<std::int32_t>(i)), prompt[root + i + 1], top));
    }
    judged.commit(path);
    for (std::size_t i = 1; i <= nodes; ++i) state.append(prompt[root + i]);
    root += nodes;
  }
  return entries;
}

}  // namespace coppice::server

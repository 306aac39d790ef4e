#include "workload/speculation_replay.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/step_seconds.h"
#include "base/stopwatch.h"
#include "engine/access.h"
#include "workload/speculation_record.h"

namespace coppice::workload {
namespace {

// Siblings have tokens of their own.
TokenTree random_tree(const TreeShape& shape, TokenId root, std::int64_t vocab_size,
                      std::mt19937_64& random) {
  TokenTree tree;
  tree.reset(root);
  tree.reserve(shape.size() + 1);
  std::vector<std::uint64_t> first(static_cast<std::size_t>(shape.size()) + 1);
  for (std::uint64_t& number : first) number = random();
  const auto vocab = static_cast<std::uint64_t>(vocab_size);
  for (std::int32_t node = 1; node <= shape.size(); ++node) {
    const std::int32_t parent = shape.parent(node), rank = shape.rank(node);
    const std::uint64_t token =
        (first[static_cast<std::size_t>(parent)] % vocab + static_cast<std::uint64_t>(rank)) %
        vocab;
    tree.add(parent, static_cast<TokenId>(token), rank, 0.0f, 0.0);
  }
  return tree;
}

}  // namespace

void replay(Engine& engine, const TreeShape& shape, const std::vector<TokenId>& prompt,
            const std::vector<std::int32_t>& accepted, const ReplaySettings& settings,
            ReplayReport& report) {
  EngineAccess access(engine);
  if (shape.size() > access.options().max_tree_size) {
    throw_usage(cat("speculation: a tree of ", shape.size(), " nodes is larger than the engine's ",
                    access.options().max_tree_size));
  }
  const std::int64_t tokens = std::accumulate(accepted.begin(), accepted.end(), std::int64_t{0});
  const std::int64_t longest = std::ssize(prompt) + tokens + shape.height();
  if (longest > engine.context_length()) {
    throw_usage(cat("speculation: prompt, accepted tokens and tree reach ", longest,
                    " tokens, more than the target's context of ", engine.context_length(),
                    "; ask for fewer with --prompt-tokens and --new-tokens, or for --count-only"));
  }
  const double start = now_seconds();
  const auto turn = access.turn();
  SequenceState text = access.new_state(prompt);
  const auto out_of_memory = [] {
    throw_failure("speculation: too few KV slots for the text and its tree; give more --kv-tokens");
  };
  StepSeconds spent;
  {
    const Stopwatch timing(report.seconds.prefill);
    if (!turn.target.prefill(text)) out_of_memory();
    turn.target.wait();
  }
  report.prompt_tokens += std::ssize(prompt);
  const auto judge = access.make_judge();
  std::mt19937_64 random(settings.options.seed);
  std::int64_t written = 0;
  bool finished = true;
  for (const std::int32_t length : accepted) {
    if (settings.stop.stop_requested()) {
      finished = false;
      break;
    }
    const TokenTree tree = random_tree(shape, text.tokens.back(), engine.vocab_size(), random);
    Verdict verdict;
    TextTree judged;
    judged.state = &text;
    judged.tree = &tree;
    judged.rule = AcceptanceRule::greedy;
    judged.key.step = text.steps++;
    judged.verdict = &verdict;
    const TargetRunner::Pass pass = judge->judge({&judged, 1}, spent);
    if (!pass) out_of_memory();
    ++report.passes;
    const KvPool& pool = *access.target().pool;
    report.peak_kv =
        std::max<std::int64_t>(report.peak_kv, pool.layout().slots() - pool.free_slots());
    if (length > 0) {
      const std::vector<std::int32_t> path = path_of(shape, length - 1);
      pass->text().commit(path);
      for (const std::int32_t node : path) text.append(tree.token[static_cast<std::size_t>(node)]);
      text.append(verdict.bonus);
    }
    written += length;
    report.generated += length;
    if (settings.progress) settings.progress(written);
  }
  const double took = now_seconds() - start;
  report.seconds.verify += spent.verify;
  report.seconds.sampling += spent.judging + spent.construction;
  report.seconds.total += took;
  report.trees += finished ? 1 : 0;
  report.finished = report.finished && finished;
  const Seconds& s = report.seconds;
  report.seconds.other = std::max(0.0, s.total - s.prefill - s.draft - s.verify - s.sampling);
}

}  // namespace coppice::workload

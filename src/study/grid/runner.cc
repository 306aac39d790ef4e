#include "study/grid/runner.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.h"
#include "study/grid/node_counts.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

constexpr std::int32_t warm_up_tokens = 8;

/// What is left to do for one prompt in one round.
struct PromptWork {
  const std::string& id;
  std::size_t prompt;  ///< its place
  std::int32_t round;
  std::vector<const Cell*> cells = {};
};

/// The same order on every platform, whatever else is left to do.
void shuffle(std::vector<const Cell*>& cells, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t left = cells.size(); left > 1; --left) {
    std::swap(cells[left - 1], cells[random() % left]);
  }
}

std::vector<PromptWork> left_to_do(const Results& results) {
  const StudyPlan& plan = results.plan();
  std::vector<PromptWork> all;
  for (std::int32_t round = 0; round < plan.rounds; ++round) {
    for (std::size_t p = 0; p < plan.prompts.size(); ++p) {
      PromptWork left{plan.prompts[p].id, p, round};
      for (const Cell& cell : plan.cells) left.cells.push_back(&cell);
      // Before those that are done are left out, so that an interruption changes no order.
      shuffle(left.cells, stream_of(cat(left.id, ' ', round)));
      std::erase_if(left.cells,
                    [&](const Cell* cell) { return results.has(cell->key(), left.id, round); });
      if (!left.cells.empty()) all.push_back(std::move(left));
    }
  }
  return all;
}

}  // namespace

std::optional<Result> run_cell(Engine& engine, const GenerateOptions& request, const Turns& turns,
                               const std::function<bool()>& stop, TracedText* trace) {
  Result result;
  Components& seconds = result.seconds;
  const auto note_step = [&](const StepView& step) {
    if (!step.is_step()) return;
    result.nodes.add(step.tree, step.kept_path(), step.ends_in_tree(), step.calibration);
    if (trace != nullptr) trace->add(step);
    static_cast<StepSeconds&>(seconds) += step.seconds;
    result.tree_sizes.push_back(step.tree.size());
    result.looked_up += std::ranges::count(step.tree.origin, Origin::lookup);
    result.accepted.push_back(static_cast<std::int32_t>(step.kept_path().size()));
    result.kept.push_back(step.kept);
  };
  const PieceCallback callback = [&](const Piece&) { return !stop || !stop(); };
  const Observed observed(engine, note_step);
  Sequence sequence = engine.new_sequence();
  double decode = 0.0;
  for (const std::vector<TokenId>& tokens : turns) {
    Generation generation = sequence.generate(tokens, request, callback);
    const FinishReason reason = generation.finish_reason;
    if (reason == FinishReason::cancelled) return std::nullopt;
    const Statistics& s = generation.statistics;
    result.turns.push_back({s.prompt_tokens, s.prefill_tokens, std::move(generation.tokens),
                            std::move(generation.text), name_of(reason)});
    result.draft_passes += s.draft_passes;
    seconds.prefill += s.seconds.prefill;
    decode += s.decode_seconds();
    result.device = generation.used.device;
    result.dtype = generation.used.dtype;
    if (reason == FinishReason::context || reason == FinishReason::memory) break;
  }
  seconds.other = std::max(0.0, decode - seconds.decode());
  return result;
}

std::size_t texts_left(const Results& results) {
  std::size_t texts = 0;
  for (const PromptWork& one : left_to_do(results)) texts += one.cells.size();
  return texts;
}

bool run_study(Engine& engine, const StudyWork& work, Results& results, const StudyHooks& hooks) {
  const auto run_text = [&](GenerateOptions request, const PromptWork& prompt, TracedText* trace) {
    request.stream = stream_of(prompt.id);
    return run_cell(engine, request, work.prompts[prompt.prompt], hooks.stop, trace);
  };
  const std::vector<PromptWork> left = left_to_do(results);
  const std::size_t texts = texts_left(results);
  std::size_t done = 0;
  // The first passes of a kind fill caches, and measure costs where sizes need them.
  std::size_t warmed = 0;
  for (const auto& [key, request] : work.requests) {
    if (hooks.stopped() || left.empty()) break;
    hooks.tell("warming up", static_cast<double>(warmed++),
               static_cast<double>(work.requests.size()));
    GenerateOptions few = request;
    few.max_new_tokens = std::min(few.max_new_tokens, warm_up_tokens);
    run_text(few, left.front(), nullptr);
  }
  for (const PromptWork& prompt : left) {
    for (const Cell* cell : prompt.cells) {
      if (hooks.stopped()) return false;
      TracedText trace{cell->key(), prompt.id, work.run, {}};
      const bool traced = work.trace != nullptr && prompt.round == 0;
      std::optional<Result> result =
          run_text(work.requests.at(trace.cell), prompt, traced ? &trace : nullptr);
      if (!result) return false;
      result->cell = trace.cell;
      result->prompt = prompt.id;
      result->round = prompt.round;
      result->run = work.run;
      // First: what the results lack is run, and traced, again.
      if (traced) work.trace->append(trace);
      results.add(std::move(*result));
      ++done;
      hooks.tell("studying", static_cast<double>(done), static_cast<double>(texts));
    }
  }
  return true;
}

}  // namespace coppice::study

#include "study/grid/cell_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "study/grid/token_probs.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

void note_nodes(const StepView& step, NodeCounts& counts, TraceRun* trace) {
  std::vector<float> target_prob = token_probs(step, counted_params(step.target_params));
  counts.add(step.tree, step.verdict.path, target_prob, step.calibration);
  if (trace == nullptr) return;
  // What is counted is what the step was judged by, but for temperature 0.
  if (step.target_params.temperature == 0.0) target_prob = token_probs(step, step.target_params);
  trace->add(step, target_prob);
}

}  // namespace

std::optional<Result> run_cell(Engine& engine, const CellRun& run) {
  Result result;
  result.cell = run.cell.key();
  Components& seconds = result.seconds;
  const auto note_step = [&](const StepView& step) {
    if (!step.is_step()) return;
    note_nodes(step, result.nodes, run.trace);
    seconds.draft += step.seconds.draft;
    seconds.drawing += step.seconds.drawing;
    seconds.construction += step.seconds.construction;
    seconds.verify += step.seconds.verify;
    seconds.judging += step.seconds.judging;
    result.tree_sizes.push_back(step.tree.size());
    result.accepted.push_back(static_cast<std::int32_t>(step.verdict.path.size()));
  };
  GenerateOptions request = run.cell.request(run.shared);
  if (run.acceptance_vector != nullptr) request.acceptance_vector = *run.acceptance_vector;
  request.stream = run.stream;
  const PieceCallback callback = [&](const Piece&) { return !run.stop || !run.stop(); };
  const Observed observed(engine, note_step);
  Sequence sequence = engine.new_sequence();
  double decode = 0.0;
  for (const std::vector<TokenId>& tokens : run.turns) {
    Generation generation = sequence.generate(tokens, request, callback);
    const FinishReason reason = generation.finish_reason;
    if (reason == FinishReason::cancelled) return std::nullopt;
    const Statistics& s = generation.statistics;
    result.turns.push_back({s.prompt_tokens, s.prefill_tokens, std::move(generation.tokens),
                            std::move(generation.text), name_of(reason)});
    result.draft_passes += s.draft_passes;
    seconds.prefill += s.seconds.prefill;
    decode += s.seconds.total - s.seconds.load - s.seconds.prefill;
    result.device = s.device;
    result.dtype = s.dtype;
    if (reason == FinishReason::context || reason == FinishReason::memory) break;
  }
  seconds.other = std::max(0.0, decode - seconds.decode());
  return result;
}

}  // namespace coppice::study

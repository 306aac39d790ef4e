#include "study/cell_run.h"

#include <algorithm>
#include <vector>

#include "study/observed.h"
#include "study/token_probs.h"

namespace coppice::study {
namespace {

void note_nodes(const StepView& step, NodeCounts& counts, TraceRun* trace) {
  std::vector<float> target_prob = token_probs(step, counted_params(step.target_params));
  counts.add(step.tree, step.verdict.path, target_prob);
  if (trace == nullptr) return;
  // What is counted is what the step was judged by, but for temperature 0.
  if (step.target_params.temperature == 0.0) target_prob = token_probs(step, step.target_params);
  trace->add(step, target_prob);
}

}  // namespace

std::optional<Record> run_cell(Engine& engine, const CellRun& run) {
  Record record;
  Components& seconds = record.seconds;
  const auto note_step = [&](const StepView& step) {
    if (!step.is_step()) return;
    const auto accepted = static_cast<std::int32_t>(step.verdict.path.size());
    record.judged_good += accepted + 1;
    record.drafted += step.tree.size();
    note_nodes(step, record.nodes, run.trace);
    seconds.draft += step.seconds.draft;
    seconds.drawing += step.seconds.drawing;
    seconds.construction += step.seconds.construction;
    seconds.verify += step.seconds.verify;
    seconds.judging += step.seconds.judging;
    if (run.keep_steps) {
      record.tree_sizes.push_back(step.tree.size());
      record.accepted.push_back(accepted);
    }
  };
  GenerateOptions request = run.cell.request(run.shared);
  request.stream = static_cast<std::uint64_t>(run.prompt_index);
  const PieceCallback callback = [&](const Piece&) { return !run.stop || !run.stop(); };
  const Observed observed(engine, note_step);
  const Generation generation = engine.generate(run.prompt, request, callback);
  if (generation.finish_reason == FinishReason::cancelled) return std::nullopt;

  const Statistics& s = generation.statistics;
  record.cell = run.cell.key();
  record.prompt = run.prompt_index;
  record.kind = run.kind;
  record.prompt_tokens = s.prompt_tokens;
  record.tokens = static_cast<std::int64_t>(generation.tokens.size());
  record.prefill_tokens = s.prefill_tokens;
  record.finish_reason = name_of(generation.finish_reason);
  record.steps = s.steps;
  record.draft_passes = s.draft_passes;
  seconds.prefill = s.seconds.prefill;
  const double decode = s.seconds.total - s.seconds.load - s.seconds.prefill;
  seconds.other = std::max(0.0, decode - seconds.decode());
  record.device = s.device;
  record.dtype = s.dtype;
  return record;
}

}  // namespace coppice::study

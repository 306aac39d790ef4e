#include "study/study.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/access.h"
#include "study/grid/acceptance_cells.h"
#include "study/grid/runner.h"
#include "study/grid/study_file.h"
#include "study/prompts/prompts.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

std::vector<Engine> load_engines(const StudyRequest& request, const ModelPair& pair,
                                 const StudyFolder& folder, const StudyHooks& hooks) {
  EngineOptions options = request.engine;
  options.target = pair.target;
  options.draft = pair.draft;
  if (options.cost_table.empty()) {
    options.cost_table =
        folder.file(pair.name.empty() ? "costs.json" : cat("costs-", pair.name, ".json"));
  }
  // Several jobs share the cores.
  if (request.jobs > 1 && options.threads == 0) options.threads = 1;
  options.progress = [&](const LoadEvent& event) {
    const std::string of = pair.name.empty() ? "" : cat(" of ", pair.name);
    if (hooks.progress) hooks.progress(cat("loading ", event.what, of), event.fraction);
  };
  std::vector<Engine> engines;
  const auto prompts = static_cast<std::int32_t>(request.prompts.size());
  for (std::int32_t job = 0; job < std::min(request.jobs, prompts); ++job) {
    engines.push_back(Engine::load(options));
    if (request.jobs > 1 && !EngineAccess(engines[0]).device().shares_host_memory()) {
      throw_usage("--jobs: several jobs need a CPU each; a GPU runs one (--jobs 1)");
    }
  }
  return engines;
}

StudyWork work_of(const StudyRequest& request, const ModelPair& pair, Engine& engine) {
  PromptUse use;
  use.most = request.prompt_tokens;
  StudyWork work;
  work.pair = pair.name;
  work.shared = request.shared;
  work.prompts = to_turns(engine, request.prompts_file, request.prompts, use);
  work.oracle_positions = request.oracle_positions;
  return work;
}

// Times of two devices must not meet in one table ("auto" may mean another one today).
void check_device(const Results& results, const Provenance& now) {
  for (const Result& result : results.results()) {
    if (result.device == now.device && result.dtype == now.dtype) continue;
    throw_usage(cat("--out holds results of ", result.device, " ", result.dtype, ", this is ",
                    now.device, " ", now.dtype, "; continue there, or name another folder"));
  }
}

void open_trace(const StudyRequest& request, const Results& results,
                std::optional<TraceWriter>& trace) {
  if (request.trace.empty()) return;
  if (!results.results().empty() && !std::filesystem::exists(request.trace)) {
    throw_usage(cat("--trace ", quote(request.trace.string()),
                    ": no such file, and --out holds results already: a trace begins with its "
                    "study. Leave --trace out, study in a new folder, or name the trace that this "
                    "study was begun with"));
  }
  trace.emplace(request.trace);
}

void check_trace_name(const StudyRequest& request, const std::filesystem::path& out) {
  const std::filesystem::path& trace = request.trace;
  if (trace.empty()) return;
  std::error_code ignored;
  const bool costs = !request.engine.cost_table.empty() &&
                     std::filesystem::weakly_canonical(trace, ignored) ==
                         std::filesystem::weakly_canonical(request.engine.cost_table, ignored);
  if (!costs && !is_of_a_study(out, trace)) return;
  throw_usage(cat("--trace ", quote(trace.string()), ": the study keeps its ",
                  costs ? "costs" : "own files", " there; name another file"));
}

}  // namespace

StudyOutcome conduct(const StudyRequest& request, const std::filesystem::path& out,
                     const StudyHooks& hooks) {
  const std::vector<ModelPair> pairs = request.all_pairs();
  StudyFolder folder(out);
  check_trace_name(request, out);
  StudyFile file = study_file_of(request);
  folder.settle(file);
  write_file(folder.file(prompts_name), to_jsonl(request.prompts), resumes_when_free);
  // Read before the models are loaded: damage is told at once.
  Results results(folder.file(results_name), file.plan, Access::append);
  std::optional<TraceWriter> trace;
  open_trace(request, results, trace);
  double units = 0.0, units_done = 0.0;  // of all pairs
  for (const ModelPair& pair : pairs) units += static_cast<double>(units_left(results, pair.name));
  const auto note_done = [&] {
    units_done += 1.0;
    if (hooks.progress) hooks.progress("studying", units_done / units);
  };
  const RunHooks run_hooks = {note_done, hooks.stop};
  StudyOutcome unfinished;
  unfinished.continued = folder.continued();
  for (const ModelPair& pair : pairs) {
    CellAcceptance acceptance(request, pair, folder.path());
    if (units_left(results, pair.name) == 0) {
      acceptance.add_notes(file.notes);
      continue;
    }
    std::vector<Engine> engines = load_engines(request, pair, folder, hooks);
    StudyWork work = work_of(request, pair, engines.front());
    file.runs.push_back(provenance_of(engines.front(), request.command, pair.name, request.jobs));
    check_device(results, file.runs.back());
    if (!acceptance.give(engines.front(), hooks)) return unfinished;
    work.requests = acceptance.requests();
    // Two may begin within a second.
    work.run = cat(file.runs.back().date, ' ', std::random_device()());
    if (trace) work.trace = &*trace;
    acceptance.add_notes(file.notes);
    folder.write(file);
    if (!run_study(engines, work, results, run_hooks)) return unfinished;
  }
  folder.write(file);
  if (hooks.progress) hooks.progress("summing up", 0.0);
  StudyOutcome outcome = publish(folder.path(), file, results);
  outcome.continued = folder.continued();
  return outcome;
}

StudyOutcome publish(const std::filesystem::path& folder, const StudyFile& file,
                     const Results& results) {
  StudyOutcome outcome;
  outcome.finished = true;
  outcome.file = file;
  outcome.summary = summarise(results);
  for (const Result& result : results.results()) {
    const std::string& reason = result.turns.back().finish_reason;
    const bool cut =
        reason == name_of(FinishReason::memory) || reason == name_of(FinishReason::context);
    outcome.cut_short += cut ? 1 : 0;
    outcome.device = result.device;
    outcome.dtype = result.dtype;
  }
  outcome.texts = static_cast<std::int64_t>(results.results().size());
  outcome.others = results.others();
  const std::size_t asked = file.plan.cells.size() * file.plan.prompts.size() *
                            static_cast<std::size_t>(file.plan.rounds);
  outcome.missing = static_cast<std::int64_t>(asked) - outcome.texts;
  outcome.prompts = static_cast<std::int32_t>(complete_prompts(results).size());
  write_file(folder / "summary.csv", to_csv(summary_csv(outcome.summary)), resumes_when_free);
  write_report(folder, facts_of(file), outcome.summary, results);
  return outcome;
}

}  // namespace coppice::study

#include "study/study.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine_impl.h"
#include "study/prompt_tokens.h"
#include "study/runner.h"
#include "study/study_folder.h"
#include "study/study_report.h"

namespace coppice::study {
namespace {

std::vector<Engine> load_engines(const StudyRequest& request, const StudyFolder& folder,
                                 const StudyHooks& hooks) {
  EngineOptions options = request.engine;
  if (options.cost_table.empty()) options.cost_table = folder.file("costs.json");
  // Several jobs share the cores.
  if (request.jobs > 1 && options.threads == 0) options.threads = 1;
  options.progress = [&](const LoadEvent& event) {
    if (hooks.progress) hooks.progress(cat("loading ", event.what), event.fraction);
  };
  std::vector<Engine> engines;
  const auto prompts = static_cast<std::int32_t>(request.prompts.size());
  for (std::int32_t job = 0; job < std::min(request.jobs, prompts); ++job) {
    engines.push_back(Engine::load(options));
    if (request.jobs > 1 && !engines[0].impl().device->shares_host_memory()) {
      throw_usage("--jobs: several jobs need a CPU each; a GPU runs one (--jobs 1)");
    }
  }
  return engines;
}

std::vector<PromptTokens> tokenized(const StudyRequest& request, Engine& engine) {
  PromptUse use;
  use.most = request.prompt_tokens;
  auto tokens = to_tokens(engine, request.prompts_file, request.prompts, use);
  std::vector<PromptTokens> all;
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    all.push_back({request.prompts[p].kind, std::move(tokens[p])});
  }
  return all;
}

StudyWork work_of(const StudyRequest& request, Engine& engine) {
  StudyWork work;
  work.shared = request.shared;
  work.prompts = tokenized(request, engine);
  work.oracle_positions = request.oracle_positions;
  work.oracle_sizes = request.oracle_sizes;
  work.plan.cells = request.cells;
  work.plan.prompts = static_cast<std::int32_t>(work.prompts.size());
  if (work.oracle_positions == 0 || work.oracle_sizes.empty()) return work;
  std::vector<double>& temperatures = work.plan.oracle_temperatures;
  for (const Cell& cell : request.cells) {
    const bool known =
        std::find(temperatures.begin(), temperatures.end(), cell.temperature) != temperatures.end();
    if (cell.temperature > 0.0 && !known) temperatures.push_back(cell.temperature);
  }
  return work;
}

// Times of two devices must not meet in one table ("auto" may mean another one today).
void check_device(const Results& results, const std::string& device, const std::string& dtype) {
  for (const Record& record : results.records()) {
    if (record.device == device && record.dtype == dtype) continue;
    throw_usage(cat("--out holds results of ", record.device, " ", record.dtype, ", this is ",
                    device, " ", dtype, "; continue there, or name another folder"));
  }
}

std::optional<TraceWriter> trace_of(const StudyRequest& request, const Results& results) {
  if (request.trace.empty()) return std::nullopt;
  if (!results.records().empty() && !std::filesystem::exists(request.trace)) {
    throw_usage(cat("--trace ", quote(request.trace.string()),
                    ": it is not there, but --out holds results, of runs that left no trace; name "
                    "the trace they were begun with, or another folder"));
  }
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const Cell& cell : request.cells) cells.push_back(cell.key());
  return std::make_optional<TraceWriter>(
      request.trace, nlohmann::ordered_json{{"runs", cells}},
      [&](std::uint32_t run, std::uint32_t prompt) {
        return run < request.cells.size() && prompt < request.prompts.size() &&
               results.has(request.cells[run], static_cast<std::int32_t>(prompt));
      });
}

}  // namespace

StudyOutcome conduct(const StudyRequest& request, const std::filesystem::path& out,
                     const StudyHooks& hooks) {
  StudyFolder folder(out);
  folder.settle(settings_of(request));
  // Read before the models are loaded: damage is told at once.
  ResultsStore store(folder.file(results_name));
  std::vector<Engine> engines = load_engines(request, folder, hooks);
  const Engine::Impl& engine = engines.front().impl();
  StudyOutcome outcome;
  outcome.continued = folder.continued();
  outcome.device = engine.device->name();
  outcome.dtype = name_of(engine.device->compute_dtype());
  StudyWork work = work_of(request, engines.front());
  Results results(std::move(store), work.plan);
  check_device(results, outcome.device, outcome.dtype);
  std::optional<TraceWriter> trace = trace_of(request, results);
  if (trace) work.trace = &*trace;

  RunHooks run_hooks;
  run_hooks.stop = hooks.stop;
  run_hooks.progress = [&](double fraction) {
    if (hooks.progress) hooks.progress("studying", fraction);
  };
  outcome.finished = run_study(engines, work, results, run_hooks);
  if (!outcome.finished) return outcome;
  if (hooks.progress) hooks.progress("summing up", 0.0);
  outcome.summary = summarise(request.cells, results);
  for (const Record& record : results.records()) {
    const std::string& reason = record.finish_reason;
    const bool cut =
        reason == name_of(FinishReason::memory) || reason == name_of(FinishReason::context);
    outcome.cut_short += cut ? 1 : 0;
  }
  outcome.texts = static_cast<std::int64_t>(results.records().size());
  write_file(folder.file("summary.csv"), to_csv(summary_csv(outcome.summary)));
  write_report(folder.path(), request, outcome.device, outcome.dtype, outcome.summary, results);
  return outcome;
}

}  // namespace coppice::study

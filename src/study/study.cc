#include "study/study.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

#include "base/error.h"
#include "engine/constraint_impl.h"
#include "engine/load_words.h"
#include "study/grid/acceptance_cells.h"
#include "study/grid/runner.h"
#include "study/prompts/prompts.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

Engine load_engine(const StudyRequest& request, const StudyFolder& folder,
                   const StudyHooks& hooks) {
  EngineOptions options = request.engine;
  if (options.cost_table.empty()) options.cost_table = folder.file(costs_name);
  options.prefix_cache = false;  // each cell is measured by itself
  options.progress = [&](const LoadEvent& event) { hooks.tell(words_of(event), event.fraction); };
  return Engine::load(options);
}

// Times of two devices must not meet in one table ("auto" may mean another one today).
void check_device(const Results& results, const Provenance& now) {
  for (const Result& result : results.results()) {
    if (result.device == now.device && result.dtype == now.dtype) continue;
    throw_usage(cat("--out holds results of ", result.device, " ", result.dtype, ", this is ",
                    now.device, " ", now.dtype, "; continue there, or name another folder"));
  }
}

/// A trace has all texts of the study that are there already, and no other study's. It is none of
/// the study's own files.
void open_trace(const StudyRequest& request, const StudyFolder& folder, const StudyFile& file,
                const Results& results, std::optional<TraceWriter>& trace) {
  std::error_code ignored;
  const auto home = std::filesystem::weakly_canonical(folder.path(), ignored);
  const auto place = std::filesystem::weakly_canonical(request.trace, ignored);
  if (std::ranges::mismatch(home, place).in1 == home.end()) {
    throw_usage(cat("--trace ", quote(request.trace.string()),
                    ": the study keeps its own files in that folder; name a file elsewhere"));
  }
  trace.emplace(request.trace, [&](const TracedNames& there) {
    const auto refuse = [&](const std::string& why) {
      throw_usage(cat("--trace ", quote(request.trace.string()), ": ", why,
                      ". Leave --trace out, name the trace that this study was begun with, or "
                      "study in a new folder with a new trace"));
    };
    for (const Result& one : results.results()) {
      if (one.round > 0 || there.contains({one.cell, one.prompt, one.run})) continue;
      refuse(cat("it lacks a text that --out has the result of (", one.cell, ", prompt ",
                 one.prompt, "): a trace begins with its study"));
    }
    for (const auto& [cell, prompt, run] : there) {
      if (std::ranges::find(file.runs, run, &Provenance::id) != file.runs.end()) continue;
      refuse(cat("it holds texts of another study (of the run ", run, ")"));
    }
  });
}

}  // namespace

StudyOutcome conduct(const StudyRequest& request, const std::filesystem::path& out,
                     const StudyHooks& hooks) {
  StudyFolder folder(out);
  StudyFile file = study_file_of(request);
  folder.settle(file);
  write_own_file(folder.file(prompts_name), to_jsonl(request.prompts), resumes_when_free);
  // Read before the models are loaded: damage is told at once.
  Results results(folder.file(results_name), file.plan, Access::append);
  StudyWork work;
  std::optional<TraceWriter> trace;
  if (!request.trace.empty()) open_trace(request, folder, file, results, trace);
  if (trace) work.trace = &*trace;
  StudyOutcome unfinished;
  unfinished.continued = folder.continued();
  CellAcceptance acceptance(request, folder.file(acceptance_name));
  if (texts_left(results) > 0) {
    Engine engine = load_engine(request, folder, hooks);
    PromptUse use;
    use.most = request.prompt_tokens;
    work.prompts = to_turns(engine, request.prompts_file, request.prompts, use);
    file.runs.push_back(provenance_of(engine, request.command));
    check_device(results, file.runs.back());
    if (!acceptance.give(engine, hooks)) return unfinished;
    work.requests = acceptance.requests();
    if (request.constraint != nullptr) {
      const Constraint constraint = ConstraintAccess::make(engine, request.constraint);
      for (auto& [key, options] : work.requests) options.constraint = constraint;
    }
    work.run = file.runs.back().id;
    folder.write(file);
    if (!run_study(engine, work, results, hooks)) return unfinished;
  }
  acceptance.add_notes(file.notes);
  folder.write(file);
  hooks.tell("summing up", 0.0);
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
    outcome.cut_short += is_cut(result.turns.back()) ? 1 : 0;
    outcome.device = result.device;
    outcome.dtype = result.dtype;
  }
  outcome.texts = static_cast<std::int64_t>(results.results().size());
  outcome.others = results.others();
  std::set<std::tuple<std::string, std::string, std::int32_t>> there;  // whatever run wrote them
  for (const Result& one : results.results()) there.emplace(one.cell, one.prompt, one.round);
  const std::size_t asked = file.plan.cells.size() * file.plan.prompts.size() *
                            static_cast<std::size_t>(file.plan.rounds);
  outcome.missing = static_cast<std::int64_t>(asked - there.size());
  outcome.prompts = static_cast<std::int32_t>(complete_prompts(results).size());
  write_report(folder, facts_of(file), file.left_out, outcome.summary);
  return outcome;
}

}  // namespace coppice::study

// Works through a study's grid: one prompt under one cell, and all of them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/grid/grid.h"
#include "study/grid/results.h"
#include "study/grid/trace.h"

namespace coppice::study {

/// Generates and observes, turn by turn, each after the answers to those before it; a turn that
/// the context or the KV memory ended is the last one. nullopt if `stop` ended it. The names of the
/// result are left to the caller. `trace` receives every step; may be null. No other generation may
/// run on the engine meanwhile.
std::optional<Result> run_cell(Engine& engine, const GenerateOptions& request, const Turns& turns,
                               const std::function<bool()>& stop, TracedText* trace = nullptr);

struct StudyWork {
  std::string run;                                  ///< Result::run
  std::map<std::string, GenerateOptions> requests;  ///< by Cell::key(), of every cell of the plan
  std::vector<Turns> prompts;                       ///< [plan.prompts]
  TraceWriter* trace = nullptr;                     ///< receives the texts of round 0; may be null
};

/// Texts that `results` lacks of what the plan asks.
std::size_t texts_left(const Results& results);

/// Runs what `results` lacks: round by round, in each prompt by prompt, and for each prompt all
/// cells one after the other, so that whatever slows the machine for a while slows all cells alike.
/// The order of the cells is drawn anew for every prompt and round, so that none always follows the
/// same other one; it depends on nothing but these. Before, each cell is run for a few tokens. A
/// result that is there stays, whatever ends the work. True: all is done; false: stopped.
bool run_study(Engine& engine, const StudyWork& work, Results& results, const StudyHooks& hooks);

}  // namespace coppice::study

// Works through a study's grid.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/cell.h"
#include "study/results.h"
#include "study/trace.h"

namespace coppice::study {

struct PromptTokens {
  std::string kind;
  std::vector<TokenId> tokens;  ///< not empty
};

struct StudyWork {
  StudyPlan plan;
  SharedOptions shared;
  std::vector<PromptTokens> prompts;  ///< plan.prompts
  std::int32_t oracle_positions = 0;  ///< most steps of a walk; 0: no walks
  std::vector<std::int32_t> oracle_sizes;
  /// Receives every generation that counts, numbered by its cell's place in the plan; may be null.
  TraceWriter* trace = nullptr;
};

struct RunHooks {
  std::function<void(double fraction)>
      progress;                ///< 0 to 1, of what was left to do; one call at a time
  std::function<bool()> stop;  ///< asked often, by all workers
};

/// Runs what `results` lacks: prompt by prompt, and for each prompt all cells one after the other,
/// so that whatever slows the machine for a while slows all cells alike; then the oracle's walks.
/// With several engines, each on its own thread, prompts are shared out; results do not depend on
/// which engine ran what, but times do. Before it counts, an engine runs each cell for a few
/// tokens. A result that is there stays, whatever ends the work. True: all is done; false: stopped.
/// Throws the first error of any worker.
bool run_study(std::vector<Engine>& engines, const StudyWork& work, Results& results,
               const RunHooks& hooks);

}  // namespace coppice::study

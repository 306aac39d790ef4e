// Sums of replayed steps by text, made by several threads.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "kernels/cpu/workers.h"
#include "study/replay/replay.h"

namespace coppice::study {

/// What is summed over the steps of a text.
enum StepColumn : std::size_t {
  steps,
  tokens,  ///< judged good, bonus included
  lowest,
  highest,
  drafted,
  passes,
  unrecorded,   ///< its tree wants nodes that are not on record
  ended_short,  ///< the accepted path ended at one that lacks such nodes
  doubtful
};
inline constexpr std::size_t step_columns = doubtful + 1;

/// By column, then by text.
using StepSums = std::array<std::vector<double>, step_columns>;

/// Replays every text with seeds 0 to `seeds` - 1. `stop` is asked before each text, by one thread
/// at a time; texts that it leaves out are not in the sums. These are of whole numbers, and so the
/// same in any order and for any number of workers. Rethrows what a worker throws.
StepSums sum_steps(const Replayer& replayer, const Recording& recording, std::int32_t seeds,
                   const std::function<bool()>& stop, cpu::Workers& workers);

}  // namespace coppice::study

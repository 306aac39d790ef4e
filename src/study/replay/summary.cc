#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/check_speculation.h"
#include "study/figures/table.h"
#include "study/number_text.h"
#include "study/replay/replay.h"

namespace coppice::study {
namespace {

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
constexpr std::size_t step_columns = doubtful + 1;

using TextSums = std::array<double, step_columns>;
/// By column, then by text.
using StepSums = std::array<std::vector<double>, step_columns>;

void add(const ReplayedStep& step, TextSums& sums) {
  const TextSums one = {1.0,
                        static_cast<double>(step.accepted_length),
                        static_cast<double>(step.bounds.lowest),
                        static_cast<double>(step.bounds.highest),
                        static_cast<double>(step.tree_size),
                        static_cast<double>(step.draft_passes),
                        step.complete ? 0.0 : 1.0,
                        step.bounds.ended_short ? 1.0 : 0.0,
                        step.bounds.doubtful ? 1.0 : 0.0};
  for (std::size_t c = 0; c < step_columns; ++c) sums[c] += one[c];
}

/// Replays every text with seeds 0 to `seeds` - 1. `stop` is asked before each text, by one thread
/// at a time; texts that it leaves out are not in the sums. These are of whole numbers, and so the
/// same for any number of workers. Rethrows what a worker throws.
StepSums sum_steps(const Replayer& replayer, const Recording& recording, std::int32_t seeds,
                   const std::function<bool()>& stop, cpu::Workers& workers) {
  std::vector<std::unique_ptr<Replayer>> replayers(workers.threads());
  std::vector<std::optional<TextSums>> sums(recording.texts.size());
  std::mutex mutex;  // of the two below
  bool stopped = false;
  std::exception_ptr failure;
  const auto may_go_on = [&] {
    const std::lock_guard lock(mutex);
    stopped = stopped || failure || (stop && stop());
    return !stopped;
  };
  const auto count = static_cast<std::int64_t>(sums.size());
  workers.run(count, workers.threads(), [&](std::int64_t text, int worker) {
    try {
      if (!may_go_on()) return;
      std::unique_ptr<Replayer>& own = replayers[worker];
      if (!own) own = std::make_unique<Replayer>(replayer);
      TextSums of_text{};
      own->replay(recording.texts[text], 0, seeds,
                  [&](std::uint64_t, const ReplayedStep& step) { add(step, of_text); });
      sums[text] = of_text;
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  StepSums columns;
  for (const auto& text : sums) {
    for (std::size_t c = 0; text && c < step_columns; ++c) columns[c].push_back((*text)[c]);
  }
  return columns;
}

// "-" for no number.
std::string number(const char* format, double value) {
  return std::isfinite(value) ? line(format, value) : "-";
}

std::string size_text(const ReplayRow& row) {
  return row.requested_size > 0 ? std::to_string(row.requested_size) : "fixed";
}

}  // namespace

ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop, cpu::Workers* workers) {
  const Replayer replayer(recording, options);
  const GenerateOptions& settled = replayer.options();
  const bool greedy = settled.sampling.temperature == 0.0;
  const bool sampled = !greedy && settled.acceptance == Acceptance::rejection;
  ReplayRow row;
  row.policy = name_of(settled.speculation);
  row.acceptance = greedy ? "greedy" : name_of(settled.acceptance);
  row.requested_size = asked_size(settled.speculation);
  row.temperature = settled.sampling.temperature;
  row.fixed_shape = replayer.has_fixed_shape();
  cpu::Workers alone(1);
  const StepSums columns = sum_steps(replayer, recording, sampled ? seeds : 1, stop,
                                     workers != nullptr ? *workers : alone);
  std::array<double, step_columns> totals{};
  for (std::size_t c = 0; c < step_columns; ++c) {
    for (const double value : columns[c]) totals[c] += value;
  }
  const auto per_step = [&](StepColumn c) { return totals[c] / totals[steps]; };
  row.steps = static_cast<std::int64_t>(totals[steps]);
  row.accepted_length = bootstrap(columns[tokens], columns[steps]);
  Values accepted = columns[tokens];  // draft tokens
  for (std::size_t t = 0; t < accepted.size(); ++t) accepted[t] -= columns[steps][t];
  row.accepted_share = bootstrap(accepted, columns[drafted]);
  row.lowest = per_step(lowest);
  row.highest = per_step(highest);
  row.draft_passes = per_step(passes);
  row.tree_size = per_step(drafted);
  row.unrecorded_share = per_step(unrecorded);
  row.short_share = per_step(ended_short);
  row.doubtful_share = per_step(doubtful);
  return row;
}

std::string replay_table(const std::vector<ReplayRow>& rows) {
  Table table{{{"policy", Align::left}, {"size", Align::left}, {"acceptance", Align::left}}, {}};
  add_columns(table, {"accepted length [95%]", "bounds", "per draft token", "passes", "tree",
                      "unrecorded", "ended short", "doubtful", "steps"});
  for (const ReplayRow& row : rows) {
    const bool as_grown = !row.fixed_shape && row.unrecorded_share > 0.0;
    const std::string about = as_grown ? "~" : "";
    // No number where nothing was drafted, and none at all without a step.
    table.rows.push_back(
        {row.policy, size_text(row), row.acceptance, with_interval(row.accepted_length, 3),
         std::isfinite(row.lowest) ? line("%.3f to %.3f", row.lowest, row.highest) : "-",
         number("%.3f", row.accepted_share.value), about + number("%.2f", row.draft_passes),
         about + number("%.1f", row.tree_size), number("%.2f%%", 100.0 * row.unrecorded_share),
         number("%.2f%%", 100.0 * row.short_share), number("%.2f%%", 100.0 * row.doubtful_share),
         std::to_string(row.steps)});
  }
  return to_plain_text(table);
}

std::string replay_csv(const std::vector<ReplayRow>& rows) {
  Table table;
  add_columns(table, {"policy", "tree_size", "acceptance", "temperature", "steps",
                      "accepted_length", "accepted_length_low", "accepted_length_high", "lowest",
                      "highest", "accepted_share", "draft_passes", "tree_size_mean",
                      "unrecorded_share", "short_share", "doubtful_share"});
  for (const ReplayRow& row : rows) {
    std::vector<std::string> cells = {row.policy, size_text(row), row.acceptance};
    for (const double figure :
         {row.temperature, static_cast<double>(row.steps), row.accepted_length.value,
          row.accepted_length.low, row.accepted_length.high, row.lowest, row.highest,
          row.accepted_share.value, row.draft_passes, row.tree_size, row.unrecorded_share,
          row.short_share, row.doubtful_share}) {
      // As JSON and numpy read it; empty for no number.
      cells.push_back(std::isfinite(figure) ? line("%.9g", figure) : "");
    }
    table.rows.push_back(std::move(cells));
  }
  return to_csv(table);
}

}  // namespace coppice::study

#include "study/replay/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "base/stopwatch.h"
#include "study/replay/sums.h"

namespace coppice::study {
namespace {

std::string formatted(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

// For a table.
std::string shown(const char* format, double number) {
  return std::isfinite(number) ? formatted(format, number) : "-";
}

// As JSON and numpy read it; empty where there is no number.
std::string csv_number(double number) {
  return std::isfinite(number) ? formatted("%.9g", number) : "";
}

std::string size_text(const ReplayRow& row) {
  return row.requested_size > 0 ? std::to_string(row.requested_size) : "fixed";
}

}  // namespace

ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop, cpu::Workers* workers) {
  const Replayer replayer(recording, options);
  const GenerateOptions& settled = replayer.options();
  const bool greedy = settled.temperature == 0.0;
  const bool sampled = !greedy && settled.acceptance == Acceptance::rejection;
  ReplayRow row;
  row.policy = name_of(settled.policy);
  row.acceptance = greedy ? "greedy" : name_of(settled.acceptance);
  row.requested_size = settled.tree_size;
  row.temperature = settled.temperature;
  row.fixed_shape = replayer.has_fixed_shape();
  const double start = now_seconds();
  cpu::Workers alone(1);
  const StepSums columns = sum_steps(replayer, recording, sampled ? seeds : 1, stop,
                                     workers != nullptr ? *workers : alone);
  const double seconds = now_seconds() - start;
  std::array<double, step_columns> totals{};
  for (std::size_t c = 0; c < step_columns; ++c) {
    for (const double value : columns[c]) totals[c] += value;
  }
  const auto per_step = [&](StepColumn c) { return totals[c] / totals[steps]; };
  row.steps = static_cast<std::int64_t>(totals[steps]);
  const std::array made = {columns[steps], columns[tokens]};
  row.accepted_length =
      bootstrap(made, [](std::span<const double> sums) { return sums[1] / sums[0]; });
  const std::array used = {columns[steps], columns[tokens], columns[drafted]};
  row.accepted_share =
      bootstrap(used, [](std::span<const double> sums) { return (sums[1] - sums[0]) / sums[2]; });
  row.lowest = per_step(lowest);
  row.highest = per_step(highest);
  row.draft_passes = per_step(passes);
  row.tree_size = per_step(drafted);
  row.unrecorded_share = per_step(unrecorded);
  row.short_share = per_step(ended_short);
  row.doubtful_share = per_step(doubtful);
  row.steps_per_second = seconds > 0.0 ? totals[steps] / seconds : 0.0;
  return row;
}

std::string replay_table(const std::vector<ReplayRow>& rows) {
  std::vector<std::vector<std::string>> cells = {
      {"policy", "size", "acceptance", "accepted length [95%]", "bounds", "per draft token",
       "passes", "tree", "unrecorded", "ended short", "doubtful", "steps", "steps/s"}};
  for (const ReplayRow& row : rows) {
    const Estimate& length = row.accepted_length;
    const bool as_grown = !row.fixed_shape && row.unrecorded_share > 0.0;
    const std::string about = as_grown ? "~" : "";
    std::string interval = shown("%.3f", length.value);
    if (std::isfinite(length.low)) {
      interval += formatted(" [%.3f, ", length.low) + formatted("%.3f]", length.high);
    }
    cells.push_back(
        {row.policy, size_text(row), row.acceptance, interval,
         std::isfinite(row.lowest)
             ? formatted("%.3f to ", row.lowest) + formatted("%.3f", row.highest)
             : "-",
         // No number where nothing was drafted, and none at all without a step.
         shown("%.3f", row.accepted_share.value), about + shown("%.2f", row.draft_passes),
         about + shown("%.1f", row.tree_size), shown("%.2f%%", 100.0 * row.unrecorded_share),
         shown("%.2f%%", 100.0 * row.short_share), shown("%.2f%%", 100.0 * row.doubtful_share),
         std::to_string(row.steps), formatted("%.0f", row.steps_per_second)});
  }
  std::vector<std::size_t> widths(cells[0].size(), 0);
  for (const auto& line : cells) {
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  constexpr std::size_t words = 3;  // columns of words stand to the left
  std::string out;
  for (const auto& line : cells) {
    std::string text;
    for (std::size_t c = 0; c < line.size(); ++c) {
      const std::string space(widths[c] - line[c].size(), ' ');
      text += (c == 0 ? "" : "  ") + (c < words ? line[c] + space : space + line[c]);
    }
    out += text + "\n";
  }
  return out;
}

std::string replay_csv(const std::vector<ReplayRow>& rows) {
  std::string out =
      "policy,tree_size,acceptance,temperature,steps,accepted_length,accepted_length_low,"
      "accepted_length_high,lowest,highest,accepted_share,draft_passes,tree_size_mean,"
      "unrecorded_share,short_share,doubtful_share,steps_per_second\n";
  for (const ReplayRow& row : rows) {
    out += row.policy + "," + size_text(row) + "," + row.acceptance;
    for (const double number :
         {row.temperature, static_cast<double>(row.steps), row.accepted_length.value,
          row.accepted_length.low, row.accepted_length.high, row.lowest, row.highest,
          row.accepted_share.value, row.draft_passes, row.tree_size, row.unrecorded_share,
          row.short_share, row.doubtful_share, row.steps_per_second}) {
      out += "," + csv_number(number);
    }
    out += "\n";
  }
  return out;
}

}  // namespace coppice::study

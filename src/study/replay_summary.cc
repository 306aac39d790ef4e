#include "study/replay_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>

#include "base/stopwatch.h"

namespace coppice::study {
namespace {

enum Column : std::size_t { steps, tokens, lowest, highest, drafted, passes, cut_short, doubtful };
constexpr std::size_t column_count = doubtful + 1;

std::string formatted(const char* format, double number) {
  char text[64];
  std::snprintf(text, sizeof text, format, number);
  return text;
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
                     const std::function<bool()>& stop) {
  Replayer replayer(recording, options);
  const GenerateOptions& settled = replayer.options();
  const bool greedy = settled.temperature == 0.0;
  const bool sampled = !greedy && settled.acceptance == Acceptance::rejection;
  ReplayRow row;
  row.policy = name_of(settled.policy);
  row.acceptance = greedy ? "greedy" : name_of(settled.acceptance);
  row.requested_size = settled.tree_size;
  row.temperature = settled.temperature;
  std::vector<std::vector<double>> columns(column_count);
  const double start = now_seconds();
  for (const RecordedText& text : recording.texts) {
    if (stop && stop()) break;
    std::vector<double> sums(column_count, 0.0);
    for (std::int32_t seed = 0; seed < (sampled ? seeds : 1); ++seed) {
      for (const ReplayedStep& step : replayer.replay(text, static_cast<std::uint64_t>(seed))) {
        sums[steps] += 1.0;
        sums[tokens] += step.accepted_length;
        sums[lowest] += step.bounds.lowest;
        sums[highest] += step.bounds.highest;
        sums[drafted] += step.tree_size;
        sums[passes] += step.draft_passes;
        sums[cut_short] += step.bounds.ended_short ? 1.0 : 0.0;
        sums[doubtful] += step.bounds.doubtful ? 1.0 : 0.0;
      }
    }
    for (std::size_t c = 0; c < column_count; ++c) columns[c].push_back(sums[c]);
  }
  const double seconds = now_seconds() - start;
  std::vector<double> totals(column_count, 0.0);
  for (std::size_t c = 0; c < column_count; ++c) {
    for (const double value : columns[c]) totals[c] += value;
  }
  const auto per_step = [&](Column c) { return totals[c] / totals[steps]; };
  row.steps = static_cast<std::int64_t>(totals[steps]);
  row.accepted_length =
      bootstrap(columns, [](std::span<const double> sums) { return sums[tokens] / sums[steps]; });
  row.accepted_share = bootstrap(columns, [](std::span<const double> sums) {
    return (sums[tokens] - sums[steps]) / sums[drafted];
  });
  row.lowest = per_step(lowest);
  row.highest = per_step(highest);
  row.draft_passes = per_step(passes);
  row.tree_size = per_step(drafted);
  row.short_share = per_step(cut_short);
  row.doubtful_share = per_step(doubtful);
  row.steps_per_second = seconds > 0.0 ? totals[steps] / seconds : 0.0;
  return row;
}

std::string replay_table(const std::vector<ReplayRow>& rows) {
  std::vector<std::vector<std::string>> cells = {
      {"policy", "size", "acceptance", "accepted length [95%]", "bounds", "per draft token",
       "passes", "tree", "cut short", "doubtful", "steps", "steps/s"}};
  for (const ReplayRow& row : rows) {
    const Estimate& length = row.accepted_length;
    std::string interval = formatted("%.3f", length.value);
    if (std::isfinite(length.low)) {
      interval += formatted(" [%.3f, ", length.low) + formatted("%.3f]", length.high);
    }
    cells.push_back({row.policy, size_text(row), row.acceptance, interval,
                     formatted("%.3f to ", row.lowest) + formatted("%.3f", row.highest),
                     // No number where nothing was drafted.
                     std::isfinite(row.accepted_share.value)
                         ? formatted("%.3f", row.accepted_share.value)
                         : "-",
                     formatted("%.2f", row.draft_passes), formatted("%.1f", row.tree_size),
                     formatted("%.2f%%", 100.0 * row.short_share),
                     formatted("%.2f%%", 100.0 * row.doubtful_share), std::to_string(row.steps),
                     formatted("%.0f", row.steps_per_second)});
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
      "accepted_length_high,lowest,highest,accepted_share,draft_passes,tree_size_mean,short_share,"
      "doubtful_share,steps_per_second\n";
  for (const ReplayRow& row : rows) {
    out += row.policy + "," + size_text(row) + "," + row.acceptance;
    for (const double number :
         {row.temperature, static_cast<double>(row.steps), row.accepted_length.value,
          row.accepted_length.low, row.accepted_length.high, row.lowest, row.highest,
          row.accepted_share.value, row.draft_passes, row.tree_size, row.short_share,
          row.doubtful_share, row.steps_per_second}) {
      out += "," + csv_number(number);
    }
    out += "\n";
  }
  return out;
}

}  // namespace coppice::study

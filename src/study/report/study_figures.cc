#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

// How settings compare.

/// An estimate of every row against its tree size: lines over fixed sizes; sizes that are chosen
/// from costs stand alone, at their mean. `speeds`: what compares times of two runs has a star.
Chart over_sizes(const FigureGroup& group, const char* y_label, Estimate SummaryRow::*figure,
                 bool speeds = false) {
  Chart chart;
  chart.x = {.label = "tree size (draft tokens)", .scale = Scale::log2};
  chart.y = {.label = y_label};
  chart.side_by_side = true;
  for (const std::string& policy : group.policies) {
    Series by_size{policy, {}, group.style(policy)};
    Series chosen{cat(policy, " auto"), {}, group.style(policy)};
    chosen.style->open = true;
    for (const SummaryRow* row : group.rows) {
      if (row->cell.name() != policy) continue;
      const Estimate& e = row->*figure;
      const std::int32_t asked = row->cell.asked_size();
      const double x = asked > 0 ? asked : row->tree_size;
      (asked > 0 ? by_size : chosen)
          .points.push_back({x, e.value, e.low, e.high, speeds && row->other_runs > 0});
    }
    for (Series* one : {&by_size, &chosen}) {
      std::ranges::sort(one->points, {}, &Point::x);
      if (!one->points.empty()) chart.series.push_back(std::move(*one));
    }
  }
  return chart;
}

Figure accepted_length(const FigureGroup& group) {
  return group.named(
      "accepted_length",
      over_sizes(group, "accepted length (tokens per target pass)", &SummaryRow::accepted_length),
      "Accepted length against tree size, the bonus token included; 95% intervals over prompts. "
      "Sizes that a policy chooses itself (auto, outlined) stand at their mean. No tree can bring "
      "more than its size plus one.");
}

Figure speedup(const FigureGroup& group) {
  Chart chart = over_sizes(group, "speed-up over plain decoding", &SummaryRow::speedup, true);
  chart.references = {{1.0, "plain decoding"}};
  std::string caption =
      "Speed-up over plain decoding of the same prompts in the same run against tree size: ratio "
      "of sums, prefill left out; 95% intervals over prompts.";
  const auto crosses_runs = [](const SummaryRow* row) { return row->other_runs > 0; };
  if (std::ranges::any_of(group.rows, crosses_runs)) {
    caption +=
        " A star marks a setting that is compared with plain decoding of another run: the machine "
        "may have been faster or slower then.";
  }
  std::set<std::string> runs;
  for (const SummaryRow* row : group.rows) runs.insert(row->run);
  if (runs.size() > 1) {
    caption +=
        " Settings are of several runs, each compared with its own plain decoding: where they "
        "differ, the machine's state may have, too.";
  }
  return group.named("speedup", chart, caption);
}

/// A row for each setting, a column for each accepted length.
Figure accepted_lengths(const FigureGroup& group) {
  constexpr std::size_t most_lengths = 16;
  std::size_t longest = 1;
  for (const SummaryRow* row : group.rows) longest = std::max(longest, row->lengths.size());
  const std::size_t columns = std::min(longest - 1, most_lengths);
  Chart chart;
  chart.x.label = "tokens that a step brought";
  for (std::size_t c = 1; c <= columns; ++c) {
    chart.x.names.push_back(cat(c == columns && longest - 1 > columns ? "≥" : "", c));
  }
  std::vector<double> shares;
  for (const SummaryRow* row : group.rows) {
    chart.y.names.push_back(cat(row->cell.label(), ": ", fixed(row->accepted_length.value, 2)));
    std::vector<double> counts(columns, 0.0);
    for (std::size_t length = 1; length < row->lengths.size(); ++length) {
      counts[std::min(length, columns) - 1] += static_cast<double>(row->lengths[length]);
    }
    for (const double count : counts) {
      shares.push_back(count > 0.0 ? count / static_cast<double>(row->steps)
                                   : std::numeric_limits<double>::quiet_NaN());
    }
  }
  chart.tiles = tiles_of(shares, columns);
  for (Tile& tile : chart.tiles) tile.words = fixed(100 * tile.value, 0);
  chart.colours = {.label = "share of steps", .low = 0.0, .per_cent = true};
  return group.named("accepted_lengths", chart,
                     "Distribution of accepted lengths, the bonus token included: of all steps the "
                     "share that brought so long a piece of text, in per cent. Behind each "
                     "setting's name its mean.");
}

/// The row of each policy's largest tree of fixed size; if none is fixed, of its automatic one.
std::vector<const SummaryRow*> largest_trees(const FigureGroup& group) {
  std::vector<const SummaryRow*> largest;
  for (const std::string& policy : group.policies) {
    const SummaryRow* own = nullptr;
    for (const SummaryRow* row : group.rows) {
      const bool larger = own == nullptr || row->cell.asked_size() > own->cell.asked_size();
      if (row->cell.name() == policy && larger) own = row;
    }
    if (own != nullptr) largest.push_back(own);
  }
  return largest;
}

/// A line for each policy's largest tree over the depths; of fewer than `least` passes none.
Figure by_depth(const FigureGroup& group, const char* name, const char* y_label,
                Estimate DepthRate::*rate, std::int64_t least, const std::string& caption) {
  constexpr std::size_t most_depths = 16;
  Chart chart;
  chart.x = {.label = "depth d (draft tokens accepted one after the other)",
             .low = 1.0,
             .high = 2.0,
             .whole = true};
  chart.y = {.label = y_label, .low = 0.0, .high = 1.0, .per_cent = true};
  chart.side_by_side = true;
  const std::vector<const SummaryRow*> rows = largest_trees(group);
  for (const SummaryRow* row : rows) {
    Series series{row->cell.label(), {}, group.style(row->cell.name())};
    for (std::size_t d = 0; d < std::min(row->depths.size(), most_depths); ++d) {
      if (row->depths[d].before < least) break;
      const Estimate& e = row->depths[d].*rate;
      series.points.push_back({static_cast<double>(d + 1), e.value, e.low, e.high});
      chart.x.high = std::max(*chart.x.high, series.points.back().x);
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return group.named(name, chart,
                     cat(caption, " Each policy's largest tree, down to depth ", most_depths,
                         "; 95% intervals over prompts."),
                     counted(rows));
}

Figure acceptance_by_depth(const FigureGroup& group) {
  return by_depth(group, "acceptance_by_depth", "passes whose accepted path reaches d",
                  &DepthRate::share, 1,
                  "Acceptance by depth: of all target passes the share whose accepted path reaches "
                  "depth d.");
}

Figure acceptance_given_depth(const FigureGroup& group) {
  return by_depth(group, "acceptance_given_depth", "reach d, of passes that reach d - 1",
                  &DepthRate::given, least_counted,
                  cat("Conditional acceptance by depth: of the target passes whose accepted path "
                      "reaches depth d - 1, the share that reaches d. A tree that ends there "
                      "counts as one that does not. Depths that fewer than ",
                      least_counted, " passes came to are left out."));
}

// How good the draft is.

double rate_of(const Examined& e) {
  return static_cast<double>(e.accepted) / static_cast<double>(e.examined);
}

/// Counts of the group's rows, of one policy or of all.
NodeCounts counts_of(const FigureGroup& group, const std::string& policy = {}) {
  NodeCounts counts;
  for (const SummaryRow* row : group.rows) {
    if (policy.empty() || row->cell.name() == policy) counts += row->nodes;
  }
  return counts;
}

/// The group's n, with how many draft tokens its judges came to.
std::string n_of_judged(const FigureGroup& group) {
  return cat(counted(group.rows), ", ", grouped(counts_of(group).total().examined),
             " judged draft tokens");
}

/// A line for each policy of which points_of() its counts makes some.
template <typename PointsOf>
std::vector<Series> series_of(const FigureGroup& group, const PointsOf& points_of) {
  std::vector<Series> all;
  for (const std::string& policy : group.policies) {
    Series series{policy, points_of(counts_of(group, policy)), group.style(policy)};
    if (!series.points.empty()) all.push_back(std::move(series));
  }
  return all;
}

/// Acceptance rates of bins at their mean probabilities, but for those of too few cases.
Chart rates_of(const FigureGroup& group, const char* label, const char* diagonal,
               Bins NodeCounts::*bins) {
  Chart chart;
  chart.x = {.label = label, .low = 0.0, .high = 1.0};
  chart.y = {.label = "acceptance rate", .low = 0.0, .high = 1.0};
  chart.side_by_side = true;
  chart.references = {{{}, diagonal}};
  chart.series = series_of(group, [&](const NodeCounts& counts) {
    std::vector<Point> points;
    for (const auto& [bin, e] : counts.*bins) {
      if (e.examined < least_counted) continue;
      const auto n = static_cast<double>(e.examined), k = static_cast<double>(e.accepted);
      using boost::math::binomial;  // intervals by Clopper and Pearson
      points.push_back({e.estimate / n, rate_of(e), binomial::find_lower_bound_on_p(n, k, 0.025),
                        binomial::find_upper_bound_on_p(n, k, 0.025)});
    }
    return points;
  });
  return chart;
}

std::string left_out() {
  return cat(" Bins of fewer than ", least_counted,
             " tokens are left out; 95% intervals by Clopper and Pearson.");
}

Figure acceptance_by_draft_probability(const FigureGroup& group) {
  return group.named(
      "acceptance_by_draft_probability",
      rates_of(group, "draft probability", "as probable", &NodeCounts::by_draft_prob),
      "Acceptance rate of draft tokens against the draft's probability of them, "
      "after DySpec's figure 2; all sizes together. Only tokens that the judge came "
      "to count." +
          left_out(),
      n_of_judged(group));
}

Figure calibration_of_growth(const FigureGroup& group) {
  const bool by_number = group.acceptance == Acceptance::rejection && group.temperature > 0.0;
  return group.named(
      "calibration_of_growth",
      rates_of(group, "chance that growth reckoned with", "as reckoned", &NodeCounts::by_chance),
      cat("Calibration of what trees grow by: acceptance rate of judged children against their "
          "chance by what the text had taught until then, from ",
          by_number ? "the draft's probability and the number that judged them"
                    : "the belief in them, which knows the noise",
          "; all sizes together.", left_out()),
      n_of_judged(group));
}

Figure length_by_number(const FigureGroup& group) {
  Chart chart;
  chart.x = {.label = "number u that judged the root's first child", .low = 0.0, .high = 1.0};
  chart.y = {.label = "accepted length (tokens per target pass)"};
  chart.series = series_of(group, [](const NodeCounts& counts) {
    std::vector<Point> points;
    for (const auto& [bin, one] : counts.by_number) {
      if (one.steps < least_counted) continue;
      points.push_back({(static_cast<double>(bin) + 0.5) / static_cast<double>(number_bins),
                        static_cast<double>(one.tokens) / static_cast<double>(one.steps)});
    }
    return points;
  });
  return group.named(
      "length_by_number", chart,
      cat("Accepted length of a step against the number u that judged the first child of its "
          "root, all sizes together: the child is refused where u is large, and a tree that knows "
          "this has others there. Bins of fewer than ",
          least_counted, " steps are left out."));
}

Figure acceptance_by_place(const FigureGroup& group) {
  constexpr std::int32_t depths_shown = 12, ranks_shown = 8;
  const NodeCounts counts = counts_of(group);
  std::int32_t depths = 0, ranks = 0;
  std::vector<double> values(depths_shown * ranks_shown, std::numeric_limits<double>::quiet_NaN());
  for (const auto& [place, e] : counts.by_position) {
    const auto [depth, rank] = place;
    if (e.examined < least_counted || depth > depths_shown || rank >= ranks_shown) continue;
    depths = std::max(depths, depth);
    ranks = std::max(ranks, rank + 1);
    values[static_cast<std::size_t>(rank * depths_shown + depth - 1)] = rate_of(e);
  }
  Chart chart;
  chart.x.label = "depth";
  chart.y.label = "sibling rank";
  for (std::int32_t d = 1; d <= depths; ++d) chart.x.names.push_back(cat(d));
  for (std::int32_t r = 1; r <= ranks; ++r) chart.y.names.push_back(cat(r));
  chart.tiles = tiles_of(values, depths_shown);
  for (Tile& tile : chart.tiles) tile.words = fixed(tile.value, 2);
  chart.colours = {.label = "acceptance rate", .low = 0.0, .high = 1.0};
  return group.named(
      "acceptance_by_place", chart,
      cat("Acceptance rate by depth and sibling rank (1: drawn first), all policies and sizes "
          "together; places that the judge came to fewer than ",
          least_counted, " times are empty."),
      n_of_judged(group));
}

}  // namespace

std::vector<Figure> figures_of(const FigureGroup& group) {
  return {accepted_length(group),        speedup(group),
          accepted_lengths(group),       acceptance_by_depth(group),
          acceptance_given_depth(group), acceptance_by_draft_probability(group),
          acceptance_by_place(group),    calibration_of_growth(group),
          length_by_number(group)};
}

}  // namespace coppice::study

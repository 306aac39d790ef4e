#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <limits>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

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
          left_out());
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
          "; all sizes together.", left_out()));
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
          least_counted, " times are empty."));
}

}  // namespace

std::vector<Figure> figures_of_draft(const FigureGroup& group) {
  return {acceptance_by_draft_probability(group), acceptance_by_place(group),
          calibration_of_growth(group), length_by_number(group)};
}

}  // namespace coppice::study

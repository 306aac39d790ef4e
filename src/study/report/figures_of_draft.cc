#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

constexpr double missing = std::numeric_limits<double>::quiet_NaN();

double share(double part, double whole) { return whole > 0.0 ? part / whole : missing; }

double rate_of(const Examined& e) {
  return share(static_cast<double>(e.accepted), static_cast<double>(e.examined));
}

double bin_middle(std::size_t bin, std::size_t bins) {
  return (static_cast<double>(bin) + 0.5) / static_cast<double>(bins);
}

/// Counts of the group's rows, of one policy or of all.
NodeCounts counts_of(const FigureGroup& group, const std::string& policy = {}) {
  NodeCounts counts;
  for (const SummaryRow* row : group.rows) {
    if (policy.empty() || row->cell.name() == policy) counts += row->nodes;
  }
  return counts;
}

/// Weights by bins of some probability (rows) and of the draft's (columns), each column normalised;
/// and their mean by column.
Chart over_draft_probability(const char* y_label, std::vector<double> weights,
                             std::vector<Point> means) {
  constexpr std::size_t bins = probability_bins;
  for (std::size_t d = 0; d < bins; ++d) {
    double sum = 0.0;
    for (std::size_t row = 0; row < bins; ++row) sum += weights[row * bins + d];
    for (std::size_t row = 0; row < bins; ++row) {
      double& weight = weights[row * bins + d];
      weight = weight > 0.0 ? weight / sum : missing;  // where nothing fell stays white
    }
  }
  Chart chart;
  chart.x = {.label = "draft probability", .low = 0.0, .high = 1.0};
  chart.y = {.label = y_label, .low = 0.0, .high = 1.0};
  chart.tiles = tiles_of(weights, bins, 1.0 / static_cast<double>(bins));
  chart.colours = {.label = "share of the column"};
  chart.series = {{"mean", std::move(means), SeriesStyle{strong_ink, "", Marker::circle, true}}};
  return chart;
}

/// A prompt's acceptance rate in each column, with the weight of the tokens behind it.
Figure acceptance_by_draft_probability(const FigureGroup& group, const NodeCounts& counts) {
  std::map<std::string, NodeCounts> by_prompt;
  for (const Result& record : group.results->results()) {
    const auto is_of = [&](const SummaryRow* row) {
      return record.cell.starts_with(row->cell.row_key() + " seed=");
    };
    if (std::ranges::any_of(group.rows, is_of)) by_prompt[record.prompt] += record.nodes;
  }
  std::vector<double> weights(probability_bins * probability_bins, 0.0);
  std::vector<Point> means;
  for (std::size_t d = 0; d < probability_bins; ++d) {
    for (const auto& [prompt, nodes] : by_prompt) {
      if (!nodes.by_draft_prob.contains(d)) continue;
      const Examined& e = nodes.by_draft_prob.at(d);
      weights[probability_bin(rate_of(e)) * probability_bins + d] +=
          static_cast<double>(e.examined);
    }
  }
  for (const auto& [bin, e] : counts.by_draft_prob) {
    means.push_back({bin_middle(bin, probability_bins), rate_of(e)});
  }
  return group.named(
      "acceptance_by_draft_probability",
      over_draft_probability("acceptance rate", std::move(weights), std::move(means)),
      "Acceptance rate of a prompt's draft tokens against the draft's probability of them, after "
      "DySpec's figure 2 (left): each prompt's rate, weighted by its tokens, each column "
      "normalised; all policies and sizes together. Only tokens that the judge came to count.");
}

Figure target_by_draft_probability(const FigureGroup& group, const NodeCounts& counts) {
  std::vector<double> weights(probability_bins * probability_bins, 0.0);
  std::vector<Point> means;
  std::map<std::size_t, std::pair<double, double>> sums;  // by column: of probabilities, of tokens
  for (const auto& [place, tokens] : counts.joint) {
    const auto [d, t] = place;
    const auto count = static_cast<double>(tokens);
    weights[t * probability_bins + d] = count;
    sums[d].first += count * bin_middle(t, probability_bins);
    sums[d].second += count;
  }
  for (const auto& [d, sum] : sums) {
    means.push_back({bin_middle(d, probability_bins), sum.first / sum.second});
  }
  return group.named(
      "target_by_draft_probability",
      over_draft_probability("target probability", std::move(weights), std::move(means)),
      cat("The target's probability of drafted tokens against the draft's, after DySpec's figure "
          "2 (right), each column normalised; all nodes of all trees.",
          group.temperature == 0.0 ? " The target's is taken at temperature 1." : ""));
}

/// Adds a line for each policy of which points_of() its counts makes some.
template <typename PointsOf>
void add_policies(const FigureGroup& group, Chart& chart, const PointsOf& points_of) {
  for (const std::string& policy : group.policies) {
    Series series{policy, points_of(counts_of(group, policy)), group.style(policy)};
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
}

/// Acceptance rates of bins at their mean estimates, but for those of too few cases.
std::vector<Point> rates(const Bins& bins) {
  std::vector<Point> points;
  for (const auto& [bin, e] : bins) {
    if (e.examined < least_counted) continue;
    const auto n = static_cast<double>(e.examined), k = static_cast<double>(e.accepted);
    using boost::math::binomial;  // intervals by Clopper and Pearson
    points.push_back({e.estimate / n, rate_of(e), binomial::find_lower_bound_on_p(n, k, 0.025),
                      binomial::find_upper_bound_on_p(n, k, 0.025)});
  }
  return points;
}

Figure calibration(const FigureGroup& group) {
  Chart chart;
  chart.x = {.label = "estimated chance of acceptance", .scale = Scale::log2, .high = 1.0};
  chart.y = {.label = "acceptance rate", .scale = Scale::log2, .high = 1.0};
  chart.side_by_side = true;
  chart.references = {{{}, "as estimated"}};
  add_policies(group, chart, [](const NodeCounts& counts) {
    std::vector<Point> points = rates(counts.by_estimate);
    std::ranges::reverse(points);  // the bins' estimates fall
    return points;
  });
  const bool learned = std::ranges::any_of(group.rows, [](const SummaryRow* row) {
    return row->cell.policy == Policy::dyspec && !row->cell.plain_values;
  });
  return group.named(
      "calibration", chart,
      cat("Calibration of the draft: acceptance rate against the chance that DySpec reckons "
          "with, the draft's probability of the token over what its earlier siblings left "
          "(equations 9 to 11). Bins halve; those of fewer than ",
          least_counted, " tokens are left out; 95% intervals by Clopper and Pearson.",
          learned ? " This chance it is for policies with learned acceptance too, not the one "
                    "that they grow by, which has a figure of its own."
                  : ""));
}

Figure chances_of_growth(const FigureGroup& group) {
  Chart chart;
  chart.x = {.label = "chance that growth reckoned with", .low = 0.0, .high = 1.0};
  chart.y = {.label = "acceptance rate", .low = 0.0, .high = 1.0};
  chart.references = {{{}, "as reckoned"}};
  add_policies(group, chart, [](const NodeCounts& counts) { return rates(counts.by_chance); });
  const bool by_number = group.acceptance == Acceptance::rejection && group.temperature > 0.0;
  return group.named(
      "calibration_of_growth", chart,
      cat("Calibration of what trees grow by: acceptance rate of judged children against their "
          "chance by what the text had taught until then, from ",
          by_number ? "the draft's probability and the number that judged them"
                    : "the belief in them, which knows the noise",
          "; all sizes together. Bins of fewer than ", least_counted,
          " tokens are left out; 95% intervals by Clopper and Pearson."));
}

Figure length_by_number(const FigureGroup& group) {
  Chart chart;
  chart.x = {.label = "number u that judged the root's first child", .low = 0.0, .high = 1.0};
  chart.y = {.label = "accepted length (tokens per target pass)"};
  add_policies(group, chart, [](const NodeCounts& counts) {
    std::vector<Point> points;
    for (const auto& [b, one] : counts.by_number) {
      if (one.steps < least_counted) continue;
      points.push_back({bin_middle(b, number_bins),
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

Figure acceptance_by_place(const FigureGroup& group, const NodeCounts& counts) {
  constexpr std::int32_t depths_shown = 12, ranks_shown = 8;
  std::int32_t depths = 0, ranks = 0;
  const auto is_shown = [&](const std::pair<std::int32_t, std::int32_t>& place, const Examined& e) {
    return e.examined >= least_counted && place.first <= depths_shown && place.second < ranks_shown;
  };
  for (const auto& [place, e] : counts.by_position) {
    if (!is_shown(place, e)) continue;
    depths = std::max(depths, place.first);
    ranks = std::max(ranks, place.second + 1);
  }
  std::vector<double> values(static_cast<std::size_t>(depths * ranks), missing);
  for (const auto& [place, e] : counts.by_position) {
    if (!is_shown(place, e)) continue;
    values[static_cast<std::size_t>(place.second * depths + place.first - 1)] = rate_of(e);
  }
  Chart chart;
  chart.x.label = "depth";
  chart.y.label = "sibling rank";
  for (std::int32_t d = 1; d <= depths; ++d) chart.x.names.push_back(cat(d));
  for (std::int32_t r = 1; r <= ranks; ++r) chart.y.names.push_back(cat(r));
  chart.tiles = tiles_of(values, static_cast<std::size_t>(depths));
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
  const NodeCounts counts = counts_of(group);
  return {acceptance_by_draft_probability(group, counts),
          target_by_draft_probability(group, counts),
          calibration(group),
          acceptance_by_place(group, counts),
          chances_of_growth(group),
          length_by_number(group)};
}

}  // namespace coppice::study

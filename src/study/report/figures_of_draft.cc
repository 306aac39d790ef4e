#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

double share(double part, double whole) {
  return whole > 0.0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

double rate_of(const Examined& e) {
  return share(static_cast<double>(e.accepted), static_cast<double>(e.examined));
}

double bin_middle(std::size_t bin, std::size_t bins) {
  return (static_cast<double>(bin) + 0.5) / static_cast<double>(bins);
}

/// 95% interval of a rate by Wilson's score (Wilson 1927).
std::pair<double, double> wilson(double rate, double n) {
  constexpr double z = 1.959964;
  const double middle = (rate + z * z / (2 * n)) / (1 + z * z / n);
  const double reach = z / (1 + z * z / n) * std::sqrt(rate * (1 - rate) / n + z * z / (4 * n * n));
  return {middle - reach, middle + reach};
}

/// Counts of the group's rows, of one policy or of all.
NodeCounts counts_of(const FigureGroup& group, const std::string& policy = {}) {
  NodeCounts counts;
  for (const SummaryRow* row : group.rows) {
    if (policy.empty() || row->cell.name() == policy) counts += row->nodes;
  }
  return counts;
}

HeatMap over_draft_probability(const char* y_label) {
  HeatMap map;
  map.x_label = "draft probability";
  map.y_label = y_label;
  for (std::size_t b = 0; b <= probability_bins; ++b) {
    map.edges.push_back(static_cast<double>(b) / static_cast<double>(probability_bins));
  }
  map.cells.assign(probability_bins * probability_bins, 0.0);
  map.zero_is_empty = true;
  map.value = {"share of the column"};
  map.line_name = "mean";
  return map;
}

/// A prompt's acceptance rate in each column, with the weight of the tokens behind it.
Figure acceptance_by_draft_probability(const FigureGroup& group, const NodeCounts& counts) {
  std::map<std::int32_t, NodeCounts> by_prompt;
  for (const Result& record : group.results->results()) {
    const auto is_of = [&](const SummaryRow* row) {
      return record.cell.starts_with(row->cell.row_key() + " seed=");
    };
    if (std::ranges::any_of(group.rows, is_of)) by_prompt[record.prompt] += record.nodes;
  }
  HeatMap map = over_draft_probability("acceptance rate");
  for (std::size_t d = 0; d < probability_bins; ++d) {
    for (const auto& [prompt, nodes] : by_prompt) {
      const Examined& e = nodes.by_draft_prob[d];
      if (e.examined == 0) continue;
      map.cells[probability_bin(rate_of(e)) * probability_bins + d] +=
          static_cast<double>(e.examined);
    }
    map.line.push_back({bin_middle(d, probability_bins), rate_of(counts.by_draft_prob[d])});
  }
  return group.named(
      "acceptance_by_draft_probability", to_svg(map),
      "Acceptance rate of a prompt's draft tokens against the draft's probability of them, after "
      "DySpec's figure 2 (left): each prompt's rate, weighted by its tokens, each column "
      "normalised; all policies and sizes together. Only tokens that the judge came to count.");
}

Figure target_by_draft_probability(const FigureGroup& group, const NodeCounts& counts) {
  HeatMap map = over_draft_probability("target probability");
  for (std::size_t d = 0; d < probability_bins; ++d) {
    double tokens = 0.0, sum = 0.0;
    for (std::size_t t = 0; t < probability_bins; ++t) {
      const auto count = static_cast<double>(counts.joint[d][t]);
      map.cells[t * probability_bins + d] = count;
      tokens += count;
      sum += count * bin_middle(t, probability_bins);
    }
    map.line.push_back({bin_middle(d, probability_bins), share(sum, tokens)});
  }
  return group.named(
      "target_by_draft_probability", to_svg(map),
      cat("The target's probability of drafted tokens against the draft's, after DySpec's figure "
          "2 (right), each column normalised; all nodes of all trees.",
          group.temperature == 0.0 ? " The target's is taken at temperature 1." : ""));
}

/// Adds a line for each policy of which points_of() its counts makes some.
template <typename PointsOf>
void add_policies(const FigureGroup& group, LineChart& chart, const PointsOf& points_of) {
  for (const std::string& policy : group.policies) {
    Series series{policy, points_of(counts_of(group, policy)), SeriesKind::measured,
                  group.style(policy)};
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
}

/// Acceptance rates of bins at their mean estimates, but for those of too few cases.
std::vector<Point> rates(std::span<const Examined> bins) {
  std::vector<Point> points;
  for (const Examined& e : bins) {
    if (e.examined < least_counted) continue;
    const auto count = static_cast<double>(e.examined);
    const auto [low, high] = wilson(rate_of(e), count);
    points.push_back({e.estimate / count, rate_of(e), low, high});
  }
  return points;
}

Figure calibration(const FigureGroup& group) {
  LineChart chart;
  chart.x = {"estimated chance of acceptance", Scale::log2, {}, 1.0};
  chart.y = {"acceptance rate", Scale::log2, {}, 1.0};
  chart.side_by_side = true;
  chart.references = {{ReferenceLine::Kind::diagonal, 0.0, "as estimated"}};
  add_policies(group, chart, [](const NodeCounts& counts) {
    std::vector<Point> points = rates(counts.by_estimate);
    std::ranges::reverse(points);  // the bins' estimates fall
    return points;
  });
  if (chart.series.empty()) return {};
  const bool learned = std::ranges::any_of(group.rows, [](const SummaryRow* row) {
    return row->cell.policy == Policy::dyspec && !row->cell.plain_values;
  });
  return group.named(
      "calibration", to_svg(chart),
      cat("Calibration of the draft: acceptance rate against the chance that DySpec reckons "
          "with, the draft's probability of the token over what its earlier siblings left "
          "(equations 9 to 11). Bins halve; those of fewer than ",
          least_counted, " tokens are left out; 95% intervals by Wilson's score.",
          learned ? " This chance it is for policies with learned acceptance too, not the one "
                    "that they grow by, which has a figure of its own."
                  : ""));
}

Figure chances_of_growth(const FigureGroup& group) {
  LineChart chart;
  chart.x = {"chance that growth reckoned with", Scale::linear, 0.0, 1.0};
  chart.y = {"acceptance rate", Scale::linear, 0.0, 1.0};
  chart.references = {{ReferenceLine::Kind::diagonal, 0.0, "as reckoned"}};
  add_policies(group, chart, [](const NodeCounts& counts) { return rates(counts.by_chance); });
  if (chart.series.empty()) return {};
  const bool by_number = group.acceptance == Acceptance::rejection && group.temperature > 0.0;
  return group.named(
      "calibration_of_growth", to_svg(chart),
      cat("Calibration of what trees grow by: acceptance rate of judged children against their "
          "chance by what the text had taught until then, from ",
          by_number ? "the draft's probability and the number that judged them"
                    : "the belief in them, which knows the noise",
          "; all sizes together. Bins of fewer than ", least_counted,
          " tokens are left out; 95% intervals by Wilson's score."));
}

Figure length_by_number(const FigureGroup& group) {
  LineChart chart;
  chart.x = {"number u that judged the root's first child", Scale::linear, 0.0, 1.0};
  chart.y = {"accepted length (tokens per target pass)"};
  add_policies(group, chart, [](const NodeCounts& counts) {
    std::vector<Point> points;
    for (std::size_t b = 0; b < number_bins; ++b) {
      const StepCount& one = counts.by_number[b];
      if (one.steps < least_counted) continue;
      points.push_back({bin_middle(b, number_bins),
                        static_cast<double>(one.tokens) / static_cast<double>(one.steps)});
    }
    return points;
  });
  if (chart.series.empty()) return {};
  return group.named(
      "length_by_number", to_svg(chart),
      cat("Accepted length of a step against the number u that judged the first child of its "
          "root, all sizes together: the child is refused where u is large, and a tree that knows "
          "this has others there. Bins of fewer than ",
          least_counted, " steps are left out."));
}

/// Acceptance rate by depth and rank, and over its estimate.
std::vector<Figure> by_place(const FigureGroup& group, const NodeCounts& counts) {
  constexpr std::int32_t depths_shown = 12, ranks_shown = 8;
  std::int32_t depths = 0, ranks = 0;
  for (const auto& [place, e] : counts.by_position) {
    if (e.examined < least_counted) continue;
    depths = std::max(depths, std::min(place.first, depths_shown));
    ranks = std::max(ranks, std::min(place.second + 1, ranks_shown));
  }
  if (depths == 0) return {};
  HeatMap rate;
  rate.x_label = "depth";
  rate.y_label = "sibling rank";
  rate.value = {"acceptance rate", Scale::linear, 0.0, 1.0};
  rate.print_values = true;
  rate.height = 160.0 + 30.0 * static_cast<double>(ranks);
  for (std::int32_t d = 1; d <= depths; ++d) rate.x_names.push_back(cat(d));
  for (std::int32_t r = 1; r <= ranks; ++r) rate.y_names.push_back(cat(r));
  rate.cells.assign(static_cast<std::size_t>(depths * ranks), share(0.0, 0.0));
  HeatMap ratio = rate;
  ratio.value = {"acceptance rate / estimate"};
  ratio.centre = 1.0;
  for (const auto& [place, e] : counts.by_position) {
    const auto [depth, rank] = place;
    if (depth > depths || rank >= ranks || e.examined < least_counted) continue;
    const auto at = static_cast<std::size_t>(rank * depths + depth - 1);
    rate.cells[at] = rate_of(e);
    ratio.cells[at] = share(static_cast<double>(e.accepted), e.estimate);
  }
  return {group.named("acceptance_by_place", to_svg(rate),
                      cat("Acceptance rate by depth and sibling rank (1: drawn first), all "
                          "policies and sizes together; places that the judge came to fewer than ",
                          least_counted, " times are empty.")),
          group.named("calibration_by_place", to_svg(ratio),
                      "Calibration by depth and sibling rank: accepted tokens over those expected "
                      "from the estimate. Above 1 the draft is too modest there, below 1 too "
                      "sure.")};
}

}  // namespace

std::vector<Figure> figures_of_draft(const FigureGroup& group) {
  const NodeCounts counts = counts_of(group);
  std::vector<Figure> figures;
  if (counts.total().examined > 0) {
    figures = {acceptance_by_draft_probability(group, counts),
               target_by_draft_probability(group, counts)};
  }
  figures.push_back(calibration(group));
  if (!figures.back().svg.empty()) {
    for (Figure& one : by_place(group, counts)) figures.push_back(std::move(one));
  }
  figures.push_back(chances_of_growth(group));
  figures.push_back(length_by_number(group));
  std::erase_if(figures, [](const Figure& one) { return one.svg.empty(); });
  return figures;
}

}  // namespace coppice::study

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/report/study_figures.h"

namespace coppice::study {
namespace {

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

class DraftFigures {
 public:
  explicit DraftFigures(const FigureGroup& group) : group_(group) {}

  std::vector<NamedFigure> all() {
    draft_probability();
    calibration();
    chances_of_growth();
    length_by_number();
    return std::move(figures_);
  }

 private:
  void add(const std::string& what, std::string svg, std::string caption) {
    figures_.push_back(group_.named(what, std::move(svg), std::move(caption)));
  }

  NodeCounts counts_of_group() const {
    NodeCounts counts;
    for (const SummaryRow* row : group_.rows) counts += row->nodes;
    return counts;
  }

  static std::vector<double> probability_edges() {
    std::vector<double> edges;
    for (std::size_t b = 0; b <= probability_bins; ++b) {
      edges.push_back(static_cast<double>(b) / static_cast<double>(probability_bins));
    }
    return edges;
  }

  static HeatMap over_draft_probability(const char* y_label) {
    HeatMap map;
    map.x = {"draft probability"};
    map.y = {y_label};
    map.x_edges = map.y_edges = probability_edges();
    map.cells.assign(probability_bins * probability_bins, 0.0);
    map.normalise = Normalise::by_column;
    map.zero_is_empty = true;
    map.value = {"share of the column"};
    return map;
  }

  static double bin_middle(std::size_t bin) {
    return (static_cast<double>(bin) + 0.5) / static_cast<double>(probability_bins);
  }

  void draft_probability() {
    const NodeCounts counts = counts_of_group();
    if (counts.total().examined == 0) return;
    // A prompt's acceptance rate in each column, with the weight of the tokens behind it.
    std::map<std::int32_t, NodeCounts> by_prompt;
    for (const Result& record : group_.results->results()) {
      const bool in_group =
          std::any_of(group_.rows.begin(), group_.rows.end(), [&](const auto* row) {
            Cell cell = row->cell;
            return record.cell.starts_with(cell.row_key() + " seed=");
          });
      if (in_group) by_prompt[record.prompt] += record.nodes;
    }
    HeatMap acceptance = over_draft_probability("acceptance rate");
    for (const auto& [prompt, nodes] : by_prompt) {
      for (std::size_t d = 0; d < probability_bins; ++d) {
        const Examined& e = nodes.by_draft_prob[d];
        if (e.examined == 0) continue;
        const double rate = static_cast<double>(e.accepted) / static_cast<double>(e.examined);
        acceptance.cells[probability_bin(rate) * probability_bins + d] +=
            static_cast<double>(e.examined);
      }
    }
    for (std::size_t d = 0; d < probability_bins; ++d) {
      const Examined& e = counts.by_draft_prob[d];
      acceptance.line.push_back({bin_middle(d), e.examined > 0 ? static_cast<double>(e.accepted) /
                                                                     static_cast<double>(e.examined)
                                                               : no_value});
    }
    acceptance.line_name = "mean";
    add("acceptance_by_draft_probability", to_svg(acceptance),
        "Acceptance rate of a prompt's draft tokens against the draft's probability of them, after "
        "DySpec's figure 2 (left): each prompt's rate, weighted by its tokens, each column "
        "normalised; all policies and sizes together. Only tokens that the judge came to count.");

    HeatMap target = over_draft_probability("target probability");
    for (std::size_t d = 0; d < probability_bins; ++d) {
      double tokens = 0.0, sum = 0.0;
      for (std::size_t t = 0; t < probability_bins; ++t) {
        const auto count = static_cast<double>(counts.joint[d][t]);
        target.cells[t * probability_bins + d] = count;
        tokens += count;
        sum += count * bin_middle(t);
      }
      target.line.push_back({bin_middle(d), tokens > 0.0 ? sum / tokens : no_value});
    }
    target.line_name = "mean";
    add("target_by_draft_probability", to_svg(target),
        cat("The target's probability of drafted tokens against the draft's, after DySpec's figure "
            "2 (right), each column normalised; all nodes of all trees.",
            group_.temperature == 0.0 ? " The target's is taken at temperature 1." : ""));
  }

  NodeCounts counts_of(const std::string& policy) const {
    NodeCounts counts;
    for (const SummaryRow* row : group_.rows) {
      if (row->cell.name() == policy) counts += row->nodes;
    }
    return counts;
  }

  /// Acceptance rates of bins at their mean estimates, from the last bin down where `falling`.
  template <std::size_t n>
  Series rates(const std::string& policy, const std::array<Examined, n>& bins, bool falling) const {
    Series series{policy, {}, SeriesKind::measured, group_.style(policy)};
    for (std::size_t i = 0; i < n; ++i) {
      const Examined& e = bins[falling ? n - 1 - i : i];
      if (e.examined < least_counted) continue;
      const auto count = static_cast<double>(e.examined);
      const double rate = static_cast<double>(e.accepted) / count;
      const auto [low, high] = wilson(rate, count);
      series.points.push_back({e.estimate / count, rate, low, high});
    }
    return series;
  }

  void chances_of_growth() {
    LineChart chart;
    chart.x = {"chance that growth reckoned with", Scale::linear, 0.0, 1.0};
    chart.y = {"acceptance rate", Scale::linear, 0.0, 1.0};
    chart.references = {{ReferenceLine::Kind::diagonal, 0.0, "as reckoned"}};
    for (const std::string& policy : group_.policies) {
      Series series = rates(policy, counts_of(policy).by_chance, false);
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    if (chart.series.empty()) return;
    const bool by_number = group_.acceptance == Acceptance::rejection && group_.temperature > 0.0;
    add("calibration_of_growth", to_svg(chart),
        cat("Calibration of what trees grow by: acceptance rate of judged children against their "
            "chance by what the text had taught until then, from ",
            by_number ? "the draft's probability and the number that judged them"
                      : "the belief in them, which knows the noise",
            "; all sizes together. Bins of fewer than ", least_counted,
            " tokens are left out; 95% intervals by Wilson's score."));
  }

  void length_by_number() {
    LineChart chart;
    chart.x = {"number u that judged the root's first child", Scale::linear, 0.0, 1.0};
    chart.y = {"accepted length (tokens per target pass)"};
    for (const std::string& policy : group_.policies) {
      const NodeCounts counts = counts_of(policy);
      Series series{policy, {}, SeriesKind::measured, group_.style(policy)};
      for (std::size_t b = 0; b < number_bins; ++b) {
        const StepCount& one = counts.by_number[b];
        if (one.steps < least_counted) continue;
        series.points.push_back({(static_cast<double>(b) + 0.5) / static_cast<double>(number_bins),
                                 static_cast<double>(one.tokens) / static_cast<double>(one.steps)});
      }
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    if (chart.series.empty()) return;
    add("length_by_number", to_svg(chart),
        cat("Accepted length of a step against the number u that judged the first child of its "
            "root, all sizes together: the child is refused where u is large, and a tree that "
            "knows "
            "this has others there. Bins of fewer than ",
            least_counted, " steps are left out."));
  }

  void calibration() {
    LineChart chart;
    chart.x = {"estimated chance of acceptance", Scale::log2, {}, 1.0};
    chart.y = {"acceptance rate", Scale::log2, {}, 1.0};
    chart.side_by_side = true;
    chart.references = {{ReferenceLine::Kind::diagonal, 0.0, "as estimated"}};
    for (const std::string& policy : group_.policies) {
      Series series = rates(policy, counts_of(policy).by_estimate, true);
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    if (chart.series.empty()) return;
    const bool learned =
        std::any_of(group_.rows.begin(), group_.rows.end(), [](const SummaryRow* row) {
          return row->cell.policy == Policy::dyspec && !row->cell.plain_values;
        });
    add("calibration", to_svg(chart),
        cat("Calibration of the draft: acceptance rate against the chance that DySpec reckons "
            "with, the draft's probability of the token over what its earlier siblings left "
            "(equations 9 to 11). Bins halve; those of fewer than ",
            least_counted, " tokens are left out; 95% intervals by Wilson's score.",
            learned ? " This chance it is for policies with learned acceptance too, not the one "
                      "that they grow by, which has a figure of its own."
                    : ""));
    by_place();
  }

  /// 95% interval of a rate by Wilson's score (Wilson 1927).
  static std::pair<double, double> wilson(double rate, double n) {
    constexpr double z = 1.959964;
    const double middle = (rate + z * z / (2 * n)) / (1 + z * z / n);
    const double reach =
        z / (1 + z * z / n) * std::sqrt(rate * (1 - rate) / n + z * z / (4 * n * n));
    return {middle - reach, middle + reach};
  }

  void by_place() {
    constexpr std::int32_t most_depths = 12, most_ranks = 8;
    const NodeCounts counts = counts_of_group();
    std::int32_t depths = 0, ranks = 0;
    for (const auto& [place, e] : counts.by_position) {
      if (e.examined < least_counted) continue;
      depths = std::max(depths, std::min(place.first, most_depths));
      ranks = std::max(ranks, std::min(place.second + 1, most_ranks));
    }
    if (depths == 0) return;
    HeatMap rate;
    rate.x = {"depth"};
    rate.y = {"sibling rank"};
    rate.value = {"acceptance rate", Scale::linear, 0.0, 1.0};
    rate.print_values = true;
    rate.height = 160.0 + 30.0 * static_cast<double>(ranks);
    for (std::int32_t d = 1; d <= depths; ++d) rate.x_names.push_back(cat(d));
    for (std::int32_t r = 1; r <= ranks; ++r) rate.y_names.push_back(cat(r));
    rate.cells.assign(static_cast<std::size_t>(depths * ranks), no_value);
    HeatMap ratio = rate;
    ratio.value = {"acceptance rate / estimate"};
    ratio.centre = 1.0;
    for (const auto& [place, e] : counts.by_position) {
      const auto [depth, rank] = place;
      if (depth > depths || rank >= ranks || e.examined < least_counted) continue;
      const auto at = static_cast<std::size_t>(rank * depths + depth - 1);
      const auto accepted = static_cast<double>(e.accepted);
      rate.cells[at] = accepted / static_cast<double>(e.examined);
      if (e.estimate > 0.0) ratio.cells[at] = accepted / e.estimate;
    }
    add("acceptance_by_place", to_svg(rate),
        cat("Acceptance rate by depth and sibling rank (1: drawn first), all policies and sizes "
            "together; places that the judge came to fewer than ",
            least_counted, " times are empty."));
    add("calibration_by_place", to_svg(ratio),
        "Calibration by depth and sibling rank: accepted tokens over those expected from the "
        "estimate. Above 1 the draft is too modest there, below 1 too sure.");
  }

  const FigureGroup& group_;
  std::vector<NamedFigure> figures_;
};

}  // namespace

std::vector<NamedFigure> figures_of_draft(const FigureGroup& group) {
  return DraftFigures(group).all();
}

}  // namespace coppice::study

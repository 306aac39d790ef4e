#include "study/study_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "study/figures/heat_map.h"
#include "study/figures/line_chart.h"
#include "study/figures/stacked_bars.h"
#include "study/figures/step_chart.h"
#include "study/figures/style.h"

namespace coppice::study {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// The speculative rows of one temperature and acceptance rule.
struct Group {
  double temperature;
  Acceptance acceptance;
  std::vector<const SummaryRow*> rows;
  const SummaryRow* plain = nullptr;

  std::string heading() const {
    return cat("Temperature ", number_text(temperature), ", ", name_of(acceptance), " acceptance");
  }
  std::string file(const std::string& what) const {
    return cat(what, "_t", number_text(temperature), "_", name_of(acceptance));
  }
};

std::vector<Group> groups_of(const Summary& summary) {
  std::vector<Group> groups;
  for (const SummaryRow& row : summary.rows) {
    const auto same = [&](const Group& g) {
      return g.temperature == row.cell.temperature && g.acceptance == row.cell.acceptance;
    };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) {
      groups.push_back({row.cell.temperature, row.cell.acceptance, {}, nullptr});
      group = groups.end() - 1;
    }
    if (row.cell.plain()) {
      group->plain = &row;
    } else {
      group->rows.push_back(&row);
    }
  }
  return groups;
}

/// Policies in the order studied, and the style that each has in all figures.
std::vector<std::string> policies_of(const Summary& summary) {
  std::vector<std::string> policies;
  for (const SummaryRow& row : summary.rows) {
    if (row.cell.plain()) continue;
    const std::string policy = row.cell.name();
    if (std::find(policies.begin(), policies.end(), policy) == policies.end()) {
      policies.push_back(policy);
    }
  }
  return policies;
}

class Figures {
 public:
  Figures(const Summary& summary, const Results& results, const Group& group)
      : summary_(summary), results_(results), group_(group), policies_(policies_of(summary)) {}

  std::vector<NamedFigure> all() {
    against_size();
    time_by_component();
    draft_probability();
    calibration();
    steps();
    return std::move(figures_);
  }

 private:
  void add(const std::string& what, std::string svg, std::string caption) {
    figures_.push_back({group_.file(what), std::move(svg), std::move(caption)});
  }

  /// Lines over requested tree sizes; sizes that are chosen or given stand alone, at their mean.
  std::vector<Series> series_of(Estimate SummaryRow::*figure) const {
    std::vector<Series> series;
    for (std::size_t p = 0; p < policies_.size(); ++p) {
      const std::size_t style = style_number(policies_[p], policies_);
      Series fixed{policies_[p], {}, SeriesKind::measured, style};
      Series own{cat(policies_[p], " auto"), {}, SeriesKind::measured, style, true};
      for (const SummaryRow* row : group_.rows) {
        if (row->cell.name() != policies_[p]) continue;
        const Estimate& e = row->*figure;
        const bool requested = row->cell.tree_size > 0;
        const double x = requested ? row->cell.tree_size : row->tree_size;
        if (!requested && !(row->cell.widths.empty() && row->cell.tree.empty())) {
          own.name = policies_[p];
        }
        (requested ? fixed : own).points.push_back({x, e.value, e.low, e.high});
      }
      for (Series* one : {&fixed, &own}) {
        std::sort(one->points.begin(), one->points.end(),
                  [](const Point& a, const Point& b) { return a.x < b.x; });
        if (!one->points.empty()) series.push_back(std::move(*one));
      }
    }
    return series;
  }

  void against_size() {
    if (group_.rows.empty()) return;
    LineChart accepted;
    accepted.x = {"tree size (draft tokens)", Scale::log2};
    accepted.y = {"accepted length (tokens per target pass)"};
    accepted.series = series_of(&SummaryRow::accepted_length);
    Series oracle{"oracle", {}, SeriesKind::ceiling};
    for (const OracleRow& row : summary_.oracle) {
      if (row.temperature == group_.temperature) {
        oracle.points.push_back({static_cast<double>(row.size), row.accepted_length.value});
      }
    }
    std::string caption =
        "Accepted length against tree size, the bonus token included, with 95% intervals over "
        "prompts. Sizes that a policy chooses itself stand at their mean.";
    if (!oracle.points.empty()) {
      accepted.series.push_back(std::move(oracle));
      caption +=
          " Dashed: expected length of the best trees in hindsight, chosen by the target's own "
          "probabilities, along text of the target. No tree that is chosen without the randomness "
          "of the target's choice can do better; rejection and coupled noise share it and may, "
          "with a very good draft.";
    } else if (group_.temperature == 0.0) {
      caption += " At temperature 0 the ceiling is the tree size plus one.";
    }
    accepted.side_by_side = true;
    add("accepted_length", to_svg(accepted), caption);

    LineChart speed;
    speed.x = accepted.x;
    speed.side_by_side = true;
    speed.y = {"speed-up over plain decoding"};
    speed.series = series_of(&SummaryRow::speedup);
    speed.references = {{ReferenceLine::Kind::horizontal, 1.0, "plain decoding"}};
    add("speedup", to_svg(speed),
        "Speed-up over plain decoding of the same prompts in the same run against tree size, "
        "prefill left out, with 95% intervals over prompts.");
  }

  void time_by_component() {
    StackedBars bars;
    bars.value_label = "share of time after prefill";
    bars.parts = {"draft", "drawing children", "tree construction", "target", "judging", "other"};
    const auto add_bar = [&](const SummaryRow& row, std::string group, std::string label) {
      const Components& t = row.seconds;
      bars.bars.push_back({std::move(group),
                           std::move(label),
                           {t.draft, t.drawing, t.construction, t.verify, t.judging, t.other},
                           cat(std::llround(row.microseconds_per_step(t.decode())), " us/step")});
    };
    if (group_.plain != nullptr) add_bar(*group_.plain, "plain", "");
    for (const SummaryRow* row : group_.rows) {
      const Cell& cell = row->cell;
      const bool shaped = !cell.widths.empty() || !cell.tree.empty();
      add_bar(*row, cell.name(),
              shaped ? "given" : (cell.tree_size > 0 ? cat(cell.tree_size) : "auto"));
    }
    add("time", to_svg(bars),
        "Where the time of a step goes, after DySpec's figure 4; behind the bars, a step's whole "
        "time. Where a device draws children and judges behind the models' passes, that counts as "
        "theirs.");
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
    for (const Result& record : results_.results()) {
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
                                                               : nan});
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
      target.line.push_back({bin_middle(d), tokens > 0.0 ? sum / tokens : nan});
    }
    target.line_name = "mean";
    add("target_by_draft_probability", to_svg(target),
        cat("The target's probability of drafted tokens against the draft's, after DySpec's figure "
            "2 (right), each column normalised; all nodes of all trees.",
            group_.temperature == 0.0 ? " The target's is taken at temperature 1." : ""));
  }

  void calibration() {
    LineChart chart;
    chart.x = {"estimated chance of acceptance", Scale::log2, {}, 1.0};
    chart.y = {"acceptance rate", Scale::log2, {}, 1.0};
    chart.side_by_side = true;
    chart.references = {{ReferenceLine::Kind::diagonal, 0.0, "as estimated"}};
    for (std::size_t p = 0; p < policies_.size(); ++p) {
      NodeCounts counts;
      for (const SummaryRow* row : group_.rows) {
        if (row->cell.name() == policies_[p]) counts += row->nodes;
      }
      Series series{policies_[p], {}, SeriesKind::measured, style_number(policies_[p], policies_)};
      for (std::size_t b = octave_bins; b-- > 0;) {
        const Examined& e = counts.by_estimate[b];
        if (e.examined < least_counted) continue;
        const auto n = static_cast<double>(e.examined);
        const double rate = static_cast<double>(e.accepted) / n;
        const auto [low, high] = wilson(rate, n);
        series.points.push_back({e.estimate / n, rate, low, high});
      }
      if (!series.points.empty()) chart.series.push_back(std::move(series));
    }
    if (chart.series.empty()) return;
    const bool learned = std::any_of(group_.rows.begin(), group_.rows.end(),
                                     [](const SummaryRow* row) { return row->cell.calibrate; });
    add("calibration", to_svg(chart),
        cat("Calibration of the draft: acceptance rate against the chance that DySpec reckons "
            "with, the draft's probability of the token over what its earlier siblings left "
            "(equations 9 to 11). Bins halve; those of fewer than ",
            least_counted, " tokens are left out; 95% intervals by Wilson's score.",
            learned ? " This chance it is for policies with learned acceptance too, not the one "
                      "that they grow by."
                    : ""));
    by_place();
  }

  static constexpr std::int64_t least_counted = 20;

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
    rate.cells.assign(static_cast<std::size_t>(depths * ranks), nan);
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

  /// Each policy's largest trees.
  void steps() {
    for (const std::string& policy : policies_) {
      const SummaryRow* largest = nullptr;
      for (const SummaryRow* row : group_.rows) {
        if (row->cell.name() != policy) continue;
        if (largest == nullptr || row->tree_size > largest->tree_size) largest = row;
      }
      if (largest == nullptr) continue;
      const Result* record = nullptr;
      for (const Result& one : results_.results()) {
        const bool first = one.prompt == 0 && one.round == 0;
        if (first && one.cell == largest->cell.key()) record = &one;
      }
      if (record == nullptr) continue;
      StepChart chart;
      const auto values = [](const std::vector<std::int32_t>& list) {
        return std::vector<double>(list.begin(), list.end());
      };
      chart.panels = {{"tree size", {{"tree size", values(record->tree_sizes)}}},
                      {"accepted tokens", {{"accepted", values(record->accepted)}}}};
      add(cat("steps_",
              largest->cell.label() == policy ? policy : file_name(largest->cell.label())),
          to_svg(chart),
          cat("Draft tokens of the tree and those accepted (the bonus token not counted) in each "
              "step of the first prompt's text: ",
              largest->cell.label(), ", after DySpec's figure 5."));
    }
  }

  static std::string file_name(std::string label) {
    std::replace(label.begin(), label.end(), ' ', '_');
    return label;
  }

  const Summary& summary_;
  const Results& results_;
  const Group& group_;
  std::vector<std::string> policies_;
  std::vector<NamedFigure> figures_;
};

}  // namespace

std::vector<NamedSection> report_sections(const Summary& summary, const Results& results) {
  std::vector<NamedSection> sections;
  for (const Group& group : groups_of(summary)) {
    if (group.rows.empty()) continue;
    sections.push_back({group.heading(), Figures(summary, results, group).all()});
  }
  return sections;
}

}  // namespace coppice::study

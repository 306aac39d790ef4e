#include <algorithm>
#include <utility>

#include "base/error.h"
#include "study/figures/style.h"
#include "study/number_text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

std::vector<std::string> policies_of(const Summary& summary) {
  std::vector<std::string> policies;
  for (const SummaryRow& row : summary.rows) {
    if (row.cell.plain()) continue;
    const std::string policy = row.cell.name();
    if (std::ranges::find(policies, policy) == policies.end()) {
      policies.push_back(policy);
    }
  }
  return policies;
}

std::vector<FigureGroup> groups_of(const Summary& summary, const Results& results) {
  std::vector<FigureGroup> groups;
  const std::vector<std::string> policies = policies_of(summary);
  for (const SummaryRow& row : summary.rows) {
    const Cell& cell = row.cell;
    auto group = std::ranges::find_if(groups, [&](const FigureGroup& g) { return g.holds(cell); });
    if (group == groups.end()) {
      groups.push_back({.summary = &summary,
                        .results = &results,
                        .pair = cell.pair,
                        .temperature = cell.temperature,
                        .acceptance = cell.acceptance,
                        .policies = policies});
      group = groups.end() - 1;
    }
    if (cell.plain()) {
      group->plain = &row;
    } else {
      group->rows.push_back(&row);
    }
  }
  // Policy by policy, automatic sizes first, then ascending.
  for (FigureGroup& group : groups) {
    std::ranges::stable_sort(group.rows, {}, [&](const SummaryRow* row) {
      return std::pair(std::ranges::find(policies, row->cell.name()), row->cell.asked_size());
    });
  }
  return groups;
}

}  // namespace

std::string FigureGroup::heading() const {
  return cat(pair.empty() ? "" : pair + ", ", pair.empty() ? "Temperature " : "temperature ",
             number_text(temperature), ", ", name_of(acceptance), " acceptance");
}

bool FigureGroup::holds(const Cell& cell) const {
  return cell.pair == pair && cell.temperature == temperature && cell.acceptance == acceptance;
}

Figure FigureGroup::named(const std::string& what, const Chart& chart, std::string caption) const {
  if (chart.series.empty() && chart.tiles.empty()) return {};
  std::string file = cat(what, pair.empty() ? "" : "_" + pair, "_t", number_text(temperature), "_",
                         name_of(acceptance));
  // Names of pairs and policies are the user's, and may hold anything.
  for (char& c : file) {
    const bool plain_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    if (!plain_letter) c = '_';
  }
  return {std::move(file), to_svg(chart), std::move(caption)};
}

SeriesStyle FigureGroup::style(const std::string& policy) const {
  return series_style(style_number(policy, policies));
}

const SummaryRow* FigureGroup::largest(const std::string& policy) const {
  const SummaryRow* found = nullptr;
  for (const SummaryRow* row : rows) {
    if (row->cell.name() != policy) continue;
    if (found == nullptr || row->tree_size > found->tree_size) found = row;
  }
  return found;
}

std::string FigureGroup::prompts() const {
  const std::int32_t count = rows.empty() ? 0 : rows.front()->prompts;
  return cat(count, count == 1 ? " prompt" : " prompts");
}

std::vector<Section> report_sections(const Summary& summary, const Results& results) {
  std::vector<Section> sections;
  for (const FigureGroup& group : groups_of(summary, results)) {
    if (group.rows.empty()) continue;
    Section section{group.heading(), {}};
    for (const auto make :
         {figures_by_size, figures_of_pairs, figures_of_steps, figures_of_draft}) {
      for (Figure& figure : make(group)) {
        if (!figure.svg.empty()) section.blocks.push_back(std::move(figure));
      }
    }
    sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace coppice::study

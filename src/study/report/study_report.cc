#include "study/report/study_report.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

/// By temperature and rule.
std::vector<FigureGroup> groups_of(const Summary& summary) {
  std::vector<std::string> policies;
  for (const SummaryRow& row : summary.rows) {
    const std::string policy = row.cell.name();
    const bool known = std::ranges::find(policies, policy) != policies.end();
    if (!row.cell.plain() && !known) policies.push_back(policy);
  }
  std::vector<FigureGroup> groups;
  for (const SummaryRow& row : summary.rows) {
    if (row.cell.plain()) continue;
    auto group = std::ranges::find_if(groups, [&](const FigureGroup& g) {
      return g.temperature == row.cell.temperature && g.acceptance == row.cell.acceptance;
    });
    if (group == groups.end()) {
      groups.push_back({row.cell.temperature, row.cell.acceptance, {}, policies});
      group = groups.end() - 1;
    }
    group->rows.push_back(&row);
  }
  // Policy by policy, automatic sizes first, then ascending.
  for (FigureGroup& group : groups) {
    std::ranges::stable_sort(group.rows, {}, [&](const SummaryRow* row) {
      return std::pair(std::ranges::find(policies, row->cell.name()), row->cell.asked_size());
    });
  }
  return groups;
}

std::string words_of_rule(const Cell& cell) {
  return cat("temperature ", number_text(cell.temperature), ", ", name_of(cell.acceptance),
             " acceptance");
}

/// A section for each group, with the figures that have data.
std::vector<Section> figure_sections(const Summary& summary) {
  std::vector<Section> sections;
  for (const FigureGroup& group : groups_of(summary)) {
    Section& section = sections.emplace_back();
    section.heading = cat("Temperature ", number_text(group.temperature), ", ",
                          name_of(group.acceptance), " acceptance");
    section.figures = figures_of(group);
    std::erase_if(section.figures, [](const Figure& figure) { return figure.svg.empty(); });
  }
  return sections;
}

void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  // One that leads elsewhere is not ours to fill.
  if (std::filesystem::is_symlink(folder, error)) require_own_name(folder);
  std::filesystem::create_directory(folder, error);
  if (error) throw_write_failure(folder, error.value());
}

}  // namespace

Figure FigureGroup::named(const std::string& what, const Chart& chart, const std::string& caption,
                          std::string n) const {
  if (chart.series.empty() && chart.tiles.empty()) return {};
  Chart noted = chart;
  noted.note = cat("n: ", n.empty() ? counted(rows) : n);
  return {cat(what, "_t", number_text(temperature), "_", name_of(acceptance)), to_svg(noted),
          cat(caption, " ", noted.note, ".")};
}

SeriesStyle FigureGroup::style(const std::string& policy) const {
  return series_style(style_number(policy));
}

std::string agreement_sentence(const Summary& summary) {
  std::int64_t texts = 0, departing = 0;
  for (const Agreement& one : summary.agreements) {
    texts += one.texts;
    departing += static_cast<std::int64_t>(one.divergences.size());
  }
  if (texts == 0) return {};
  if (departing == 0) {
    return cat("All ", texts,
               " texts that must repeat plain decoding's do so, token for token (temperature 0, "
               "and coupled acceptance with the same seed).");
  }
  return cat(departing, " of ", texts,
             " texts that must repeat plain decoding's depart from it; `coppice audit` tells "
             "near-ties of rounding from faults.");
}

std::string other_runs_sentence(const Summary& summary) {
  std::int64_t texts = 0, all = 0;
  for (const SummaryRow& row : summary.rows) {
    texts += row.other_runs;
    all += row.runs;
  }
  if (texts == 0) return {};
  return cat("A star marks speeds of ", texts, " of ", all,
             " texts that are compared with plain decoding of another run: the machine may have "
             "been faster or slower then. A study in a new folder compares times of one run.");
}

std::string runs_sentence(const Summary& summary) {
  if (summary.runs.empty()) return {};
  std::string words = cat("Of ", summary.runs.size(),
                          " runs, each is compared with its own plain decoding, which has a row of "
                          "each: ");
  for (std::size_t i = 0; i < summary.runs.size(); ++i) {
    words += cat(i == 0 ? "" : ", ", "run ", i + 1, " began ", summary.runs[i]);
  }
  return words +
         ". Their tokens/s are those of their own hour; compare speed-ups. A star marks "
         "speed-ups of two runs that are compared.";
}

std::string sequoia_sentence(const Summary& summary, const std::vector<std::string>& left_out) {
  std::set<std::string> with, without;
  for (const SummaryRow& row : summary.rows) {
    if (row.cell.policy == Policy::sequoia) with.insert(words_of_rule(row.cell));
  }
  for (const SummaryRow& row : summary.rows) {
    const std::string rule = words_of_rule(row.cell);
    if (!row.cell.plain() && !with.contains(rule)) without.insert(rule);
  }
  if (without.empty()) return {};
  std::string why;
  for (const std::string& line : left_out) {
    if (line.starts_with("left out: sequoia")) why += cat(why.empty() ? "" : "; ", line);
  }
  if (why.empty()) why = "no setting of it was asked for (--policies)";
  if (with.empty()) return cat("Sequoia was not run: ", why, ".");
  std::string where;
  for (const std::string& rule : without) where += cat(where.empty() ? "" : "; ", rule);
  return cat("Sequoia was not run at ", where, ": ", why, ".");
}

void write_report(const std::filesystem::path& folder, const Facts& facts,
                  const std::vector<std::string>& left_out, const Summary& summary) {
  create_folder(folder / "figures");
  create_folder(folder / "tables");
  write_own_file(folder / "summary.csv", to_csv(summary_csv(summary)), resumes_when_free);
  write_own_file(folder / "depths.csv", to_csv(depths_csv(summary)), resumes_when_free);
  ReportPage page;
  page.title = "Speculative decoding: a study of token trees";
  page.intro = {
      cat("n: ", counted(summary.rows), "."),
      "Accepted length counts the tokens kept per target pass after prefill, the target's own "
      "bonus "
      "token and an end token included; what a tree held behind an end token does not count. Plain "
      "decoding is that of the same prompts in the same run, under "
      "the same temperature and acceptance rule. All figures are ratios of sums over prompts, if "
      "nothing else is said; 95% intervals are the percentile bootstrap's over prompts, with tails "
      "expanded for small samples. Fewer than ",
      cat("Speed-up: ", speedup_definition, "."),
      cat("Spec-Bench's speed-up: ", specbench_definition, ".")};
  page.intro[1] += cat(least_prompts, " prompts have no interval.");
  for (const Verdict& verdict : summary.verdicts) {
    page.verdict.push_back(verdict_sentence(summary, verdict));
  }
  for (const std::string& sentence :
       {sequoia_sentence(summary, left_out), agreement_sentence(summary), runs_sentence(summary),
        other_runs_sentence(summary), noise_sentence(summary.pace, "The machine")}) {
    if (!sentence.empty()) page.intro.push_back(sentence);
  }
  page.facts = facts;

  // The results first where they are short; else figures come before all tables.
  Section first{"Results"}, others{"Tables"};
  for (CaptionedTable& table : tables_of(summary)) {
    for (const auto& [extension, text] :
         {std::pair(".csv", to_csv(table.table)), std::pair(".tex", to_latex(table.table))}) {
      table.files.push_back(cat("tables/", table.name, extension));
      write_own_file(folder / table.files.back(), text, resumes_when_free);
    }
    const bool leads = table.name == "results" && table.table.rows.size() <= longest_open_table;
    (leads ? first : others).tables.push_back(std::move(table));
  }
  if (!first.tables.empty()) page.sections.push_back(std::move(first));
  for (Section& section : figure_sections(summary)) {
    for (const Figure& figure : section.figures) {
      write_own_file(folder / "figures" / (figure.name + ".svg"), figure.svg, resumes_when_free);
    }
    page.sections.push_back(std::move(section));
  }
  page.sections.push_back(std::move(others));
  write_own_file(folder / "report.html", to_html(page), resumes_when_free);
}

}  // namespace coppice::study

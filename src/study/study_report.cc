#include "study/study_report.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "study/figures/report_page.h"
#include "study/figures/svg.h"
#include "study/study_figures.h"

namespace coppice::study {
namespace {

Table kinds_table(const Summary& summary) {
  Summary kinds;
  kinds.rows = summary.kinds;
  Table table = summary_table(kinds);
  table.columns.insert(table.columns.begin(), {"kind", Align::left});
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    table.rows[r].insert(table.rows[r].begin(), summary.kinds[r].kind);
  }
  return table;
}

}  // namespace

void write_report(const std::filesystem::path& folder, const Facts& facts, const Summary& summary,
                  const Results& results) {
  const std::filesystem::path pictures = folder / "figures";
  std::error_code error;
  std::filesystem::create_directory(pictures, error);
  if (error) throw_write_failure(pictures, error.value());

  ReportPage page;
  page.title = "Speculative decoding: a study of token trees";
  page.intro = {
      "Accepted length counts the tokens judged good per target pass after prefill, the target's "
      "own bonus token included. Speed-up is over plain decoding of the same prompts in the same "
      "run, under the same temperature and acceptance rule, prefill left out. All figures are "
      "ratios of sums over prompts; 95% intervals are the percentile bootstrap's over prompts."};
  page.facts = facts;
  page.sections.push_back(
      {"Results",
       {CaptionedTable{
            summary_table(summary),
            "All prompts. Acceptance rate: accepted draft tokens of those that the judge came to."},
        CaptionedTable{step_table(summary),
                       "Means per step, and shares of the time after prefill. Tree: the policy's "
                       "own work and the tree's order."}}});
  if (!summary.kinds.empty()) {
    page.sections[0].blocks.push_back(
        CaptionedTable{kinds_table(summary), "The same by kind of prompt."});
  }
  for (NamedSection& section : report_sections(summary, results)) {
    Section written{section.heading, {}};
    for (NamedFigure& figure : section.figures) {
      write_file(pictures / (figure.name + ".svg"), stand_alone(figure.svg));
      written.blocks.push_back(Figure{std::move(figure.svg), std::move(figure.caption)});
    }
    page.sections.push_back(std::move(written));
  }
  write_file(folder / "report.html", to_html(page));
}

}  // namespace coppice::study

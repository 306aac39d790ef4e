#include "study/report/study_report.h"

#include <cstdint>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "study/figures/report_page.h"
#include "study/figures/svg.h"

namespace coppice::study {
namespace {

void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) throw_write_failure(folder, error.value());
}

/// Writes the table in its forms, which it then names.
void write_forms(const std::filesystem::path& folder, CaptionedTable& table) {
  const auto write = [&](const char* extension, const std::string& text) {
    table.files.push_back(cat("tables/", table.name, extension));
    write_file(folder / table.files.back(), text);
  };
  write(".csv", to_csv(table.table));
  write(".md", to_markdown(table.table));
  write(".tex", to_latex(table.table));
}

}  // namespace

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

void write_report(const std::filesystem::path& folder, const Facts& facts, const Summary& summary,
                  const Results& results) {
  create_folder(folder / "figures");
  create_folder(folder / "tables");
  ReportPage page;
  page.title = "Speculative decoding: a study of token trees";
  page.intro = {
      "Accepted length counts the tokens judged good per target pass after prefill, the target's "
      "own bonus token included. Speed-up is over plain decoding of the same prompts in the same "
      "run, under the same temperature and acceptance rule, prefill left out. All figures are "
      "ratios of sums over prompts, if nothing else is said; 95% intervals are the percentile "
      "bootstrap's over prompts, with tails expanded for small samples.",
      cat("Fewer than ", least_prompts, " prompts have no interval.")};
  const std::string agreement = agreement_sentence(summary);
  if (!agreement.empty()) page.intro.push_back(agreement);
  const std::string other_runs = other_runs_sentence(summary);
  if (!other_runs.empty()) page.intro.push_back(other_runs);
  page.facts = facts;

  // The results first where they are short; else figures come before all tables.
  Section first{"Results", {}}, others{"Tables", {}};
  for (CaptionedTable& table : tables_of(summary)) {
    write_forms(folder, table);
    const bool leads = table.name == "results" && table.table.rows.size() <= longest_open_table;
    (leads ? first : others).blocks.push_back(std::move(table));
  }
  if (!first.blocks.empty()) page.sections.push_back(std::move(first));
  for (Section& section : report_sections(summary, results)) {
    for (const Block& block : section.blocks) {
      const Figure& figure = std::get<Figure>(block);
      write_file(folder / "figures" / (figure.name + ".svg"), stand_alone(figure.svg));
    }
    page.sections.push_back(std::move(section));
  }
  page.sections.push_back(std::move(others));
  write_file(folder / "report.html", to_html(page));
}

}  // namespace coppice::study

#include "cli/study_output.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/error.h"
#include "cli/option_values.h"
#include "study/figures/text.h"
#include "study/report/study_report.h"

namespace coppice::cli {
namespace {

/// Longer tables of pairs are left to the files.
constexpr std::size_t most_pairs_printed = 28;

/// A table after its name.
std::string named_text(const std::string& name, const study::Table& table, TableFormat format) {
  return format == TableFormat::latex ? cat("% ", name, "\n", to_latex(table), "\n")
                                      : cat("# ", name, "\n", to_csv(table), "\n");
}

std::string pairs_text(const study::Summary& summary) {
  const std::size_t pairs = summary.comparisons.size();
  if (pairs == 0) return {};
  if (pairs > most_pairs_printed) {
    return cat("\nTwo by two: ", pairs, " pairs of settings, in tables/pairs.\n");
  }
  return cat(
      "\nTwo by two, on the same prompts (difference of accepted lengths, ratio of speeds; p ",
      "after Holm\nover all pairs):\n", to_text(comparison_table(summary)));
}

std::string notes_text(const study::StudyOutcome& outcome) {
  const auto fixed = [&](const char* name) {
    return outcome.file.fixed.value(name, nlohmann::json()).dump();
  };
  std::string text = cat(
      "\nAccepted length: tokens kept per target pass, the bonus token and an end token included. ",
      "Acceptance\nrate: of the draft tokens that the judge came to. Intervals: 95%, by bootstrap ",
      "over prompts;\nnone below ", study::least_prompts,
      " prompts.\nSpeed-up: ", study::speedup_definition,
      ".\nSpec-Bench: ", study::specbench_definition, ".\n");
  const std::string agreement = agreement_sentence(outcome.summary);
  if (!agreement.empty()) text += agreement + "\n";
  for (const std::string& sentence :
       {runs_sentence(outcome.summary), other_runs_sentence(outcome.summary),
        noise_sentence(outcome.summary.pace, "This machine")}) {
    if (!sentence.empty()) text += sentence + "\n";
  }
  const std::string sequoia = sequoia_sentence(outcome.summary, outcome.file.left_out);
  if (!sequoia.empty()) text += sequoia + "\n";
  const std::int32_t rounds = outcome.file.plan.rounds;
  text += cat(outcome.device, " ", outcome.dtype, ", ", counted(outcome.summary.rows), "; at most ",
              fixed("max_new_tokens"), " new tokens",
              rounds > 1 ? cat(", ", rounds, " rounds") : "", ".\n");
  for (const auto& [name, value] : facts_of(outcome.file)) {
    if (name == "CPU" || name == "date" || name == "coppice") {
      text += cat(name, ": ", value, "\n");
    }
  }
  for (const std::string& note : outcome.file.notes) text += note + "\n";
  if (outcome.missing > 0) {
    text += cat(outcome.missing, " results are missing; only prompts that have all are counted. ",
                "coppice study runs them,\nasked for all of these settings and prompts.\n");
  }
  if (outcome.others > 0) {
    text += cat(outcome.others,
                " results in the folder are of settings or prompts that were not asked for now.\n");
  }
  if (outcome.cut_short > 0) {
    text +=
        cat(outcome.cut_short, " of ", outcome.texts,
            " texts ended early because the context or the KV memory was full; cut prompts with "
            "--prompt-tokens, or raise --kv-tokens.\n");
  }
  return text;
}

study::Table table_of(const study::StudyComparison& comparison) {
  using study::Align;
  study::Table table = {{{"policy", Align::left},
                         {"tree", Align::left},
                         {"temperature"},
                         {"rule", Align::left},
                         {"prompts"}},
                        {}};
  add_columns(table, {"accepted length, first", "second", "difference [95%]", "p", "p (Holm)",
                      "tokens/s, first", "second", "speed-up, first", "second", "ratio [95%]",
                      "p of speed-up", "p of speed-up (Holm)"});
  const auto of_one_run = [](const study::Estimate& speed) {
    return study::fixed(speed.value, 1) + "*";
  };
  for (const study::ComparedRow& one : comparison.rows) {
    const study::Cell& cell = one.cell;
    const study::Tested &length = one.comparison.accepted_length, &speed = one.comparison.speed;
    table.rows.push_back(
        {cell.plain() ? "plain" : cell.name(), cell.size_text(),
         study::number_text(cell.temperature), name_of(cell.acceptance), cat(comparison.prompts),
         study::fixed(one.first_length.value, 2), study::fixed(one.second_length.value, 2),
         cell.plain() ? "-" : study::signed_interval(length.estimate, 2), study::p_text(length.p),
         study::p_text(length.p_holm), of_one_run(one.first_speed), of_one_run(one.second_speed),
         study::fixed(one.first_speedup.value, 2), study::fixed(one.second_speedup.value, 2),
         cell.plain() ? "-" : study::with_interval(speed.estimate, 2), study::p_text(speed.p),
         study::p_text(speed.p_holm)});
  }
  return table;
}

std::string verdict_text(const study::Summary& summary) {
  std::string text;
  for (const study::Verdict& verdict : summary.verdicts) {
    text += verdict_sentence(summary, verdict) + "\n";
  }
  return text.empty() ? text : "\n" + text;
}

/// What tells of a machine that was busier in one of the studies, or for a while.
std::string machines_text(const study::StudyComparison& comparison) {
  std::string text;
  for (const study::ComparedRow& one : comparison.rows) {
    if (!one.cell.plain()) continue;
    const double first = one.first_speed.value, second = one.second_speed.value;
    if (std::max(first, second) <= study::noisy_ratio * std::min(first, second)) continue;
    text +=
        cat("Plain decoding at temperature ", study::number_text(one.cell.temperature), " made ",
            study::fixed(first, 1), " tokens/s in the first study and ", study::fixed(second, 1),
            " in the second: the machine or its load was another, or the program.\n");
  }
  for (const std::string& sentence :
       {noise_sentence(comparison.first_pace, "The first study's machine"),
        noise_sentence(comparison.second_pace, "The second study's machine")}) {
    if (!sentence.empty()) text += sentence + "\n";
  }
  return text;
}

std::string lines_text(const char* what, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += cat(what, line, "\n");
  return text;
}

std::string divergence_text(const study::Divergence& d) {
  const auto token = [](TokenId id) { return id < 0 ? std::string("its end") : cat("token ", id); };
  return cat("  ", d.cell, ", prompt ", d.prompt, ", turn ", d.turn + 1, ", new token ",
             d.position + 1, ": ", token(d.expected), " in the first, ", token(d.found),
             " in the second\n");
}

}  // namespace

const char* name_of(TableFormat format) {
  constexpr std::array names = {"text", "latex", "csv"};
  return names[static_cast<std::size_t>(format)];
}

TableFormat table_format(const std::string& name) {
  return named("format", name, std::array{TableFormat::text, TableFormat::latex, TableFormat::csv});
}

std::string tables_text(const study::StudyOutcome& outcome, TableFormat format) {
  if (format == TableFormat::text) {
    return cat(to_text(study::summary_table(outcome.summary.rows)), "\nPer step:\n",
               to_text(study::step_table(outcome.summary)), pairs_text(outcome.summary),
               notes_text(outcome), verdict_text(outcome.summary));
  }
  std::string text;
  for (const study::CaptionedTable& table : tables_of(outcome.summary)) {
    text += named_text(table.name, table.table, format);
  }
  return text;
}

std::string tables_text(const study::StudyComparison& comparison, TableFormat format) {
  const study::Table table = table_of(comparison);
  if (format != TableFormat::text) return named_text("compare", table, format);
  constexpr std::size_t most_divergences = 5;
  std::string text = cat(
      to_text(table), "\nThe first study less the second, and speed-up of the first over that of ",
      "the second, each over\nits own plain decoding (prefill left out), paired on ",
      comparison.prompts, " common ", comparison.prompts == 1 ? "prompt" : "prompts",
      "; 95% by bootstrap over\nprompts, p after Holm over all rows but plain decoding's. ",
      "* marks tokens/s, which depend on the\nmachine's state in each study and are not ",
      "compared.\n", machines_text(comparison));
  if (comparison.texts > 0) {
    text +=
        cat(comparison.texts - static_cast<std::int64_t>(comparison.divergences.size()), " of ",
            comparison.texts,
            " texts that must be the same (temperature 0, or coupled with the same seed) are.\n");
  }
  for (std::size_t d = 0; d < comparison.divergences.size() && d < most_divergences; ++d) {
    text += divergence_text(comparison.divergences[d]);
  }
  text += lines_text("They differ in ", comparison.differences);
  text += lines_text("Only in the first: ", comparison.only_first);
  return text + lines_text("Only in the second: ", comparison.only_second);
}

}  // namespace coppice::cli

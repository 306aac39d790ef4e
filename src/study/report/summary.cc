#include "study/report/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/fingerprint.h"
#include "study/figures/text.h"
#include "study/report/rows.h"

namespace coppice::study {
namespace {

/// Everything of one kind of prompt, or of all.
class Summariser {
 public:
  Summariser(std::string kind, std::vector<std::string> prompts)
      : kind_(std::move(kind)), prompts_(std::move(prompts)), resampling_(prompts_.size()) {}

  SummaryRow operator()(const Row& row, std::int32_t rounds) const {
    const RowColumns own = columns_of(row, prompts_);
    const auto ratio = [&](const Values& above, const Values& below) {
      return Ratio(resampling_, above, below);
    };
    SummaryRow s;
    s.cell = *row.cell;
    s.kind = kind_;
    s.prompts = static_cast<std::int32_t>(prompts_.size());
    s.accepted_length = ratio(own.kept, own.steps).estimate();
    s.acceptance_rate = ratio(own.accepted, own.examined).estimate();
    s.accepted_share = ratio(own.accepted, own.drafted).estimate();
    s.tokens_per_second = ratio(own.decoded, own.decode_seconds).estimate();
    s.speedup = speedup_of(resampling_, own).estimate();
    s.speedup_with_prefill =
        (ratio(own.tokens, own.seconds) / ratio(own.plain_tokens, own.plain_with_prefill))
            .estimate();
    const Ratio pace_of_texts = ratio(own.paces, own.texts);
    s.specbench_tokens_per_second = pace_of_texts.estimate();
    s.specbench_speedup = (pace_of_texts / ratio(own.plain_paces, own.texts)).estimate();
    Values paces, speedups;
    for (std::int32_t round = 0; round < rounds; ++round) {
      const double own_pace = pace(row.results, round);
      if (std::isnan(own_pace)) continue;
      paces.push_back(own_pace);
      speedups.push_back(own_pace / pace(row.plains, round));
    }
    s.rounds_tokens_per_second = mean_of_rounds(paces);
    s.rounds_speedup = mean_of_rounds(speedups);
    add_steps(s, row);
    add_runs(s, row);
    return s;
  }

  std::size_t prompts() const { return prompts_.size(); }
  /// The same of those prompts that the row has results of.
  Summariser on_prompts_of(const Row& row) const {
    std::vector<std::string> prompts = prompts_;
    std::erase_if(prompts, [&](const std::string& id) {
      return std::ranges::find(row.results, id, &Result::prompt) == row.results.end();
    });
    return {kind_, std::move(prompts)};
  }

 private:
  /// Tokens/s of a round; no number if nothing of it is there.
  double pace(const std::vector<const Result*>& results, std::int32_t round) const {
    double tokens = 0.0, seconds = 0.0;
    for (const Result* result : results) {
      if (result == nullptr || result->round != round || !counts(*result)) continue;
      tokens += static_cast<double>(result->decoded());
      seconds += result->seconds.decode();
    }
    return tokens / seconds;
  }

  void add_steps(SummaryRow& s, const Row& row) const {
    std::int64_t passes = 0, drafted = 0, looked_up = 0;
    DepthCounts depths(prompts_.size());
    for (const Result* result : row.results) {
      const std::size_t prompt = place_of(*result);
      if (prompt == prompts_.size()) continue;
      ++s.runs;
      s.seconds += result->seconds;
      s.tokens += result->tokens();
      s.steps += result->steps();
      s.nodes += result->nodes;
      passes += result->draft_passes;
      drafted += result->drafted();
      looked_up += result->looked_up;
      for (std::size_t step = 0; step < result->kept.size(); ++step) {
        const auto length = static_cast<std::size_t>(result->kept[step]);
        if (s.lengths.size() <= length) s.lengths.resize(length + 1, 0);
        ++s.lengths[length];
        if (kind_.empty()) {
          const std::int32_t accepted = result->accepted[step];
          depths.add(prompt, accepted, result->kept[step] == accepted);
        }
      }
    }
    s.depths = depths.rates(resampling_);
    const auto steps = static_cast<double>(std::max<std::int64_t>(s.steps, 1));
    s.draft_passes = static_cast<double>(passes) / steps;
    s.tree_size = static_cast<double>(drafted) / steps;
    s.looked_up = static_cast<double>(looked_up) / steps;
  }

  void add_runs(SummaryRow& s, const Row& row) const {
    Fingerprint texts;
    for (std::size_t i = 0; i < row.results.size(); ++i) {
      const Result &own = *row.results[i], *const plain = row.plains[i];
      if (!counts(own)) continue;
      s.other_runs += plain == nullptr || plain->run != own.run ? 1 : 0;
      for (const std::string* part : {&own.prompt, &own.run}) texts.add(*part);
      texts.add_number(static_cast<std::uint64_t>(own.round));
    }
    s.runs_print = texts.text();
  }

  /// Returns the place of the result's prompt; prompts_.size() if it does not count.
  std::size_t place_of(const Result& result) const {
    return static_cast<std::size_t>(std::ranges::find(prompts_, result.prompt) - prompts_.begin());
  }
  bool counts(const Result& result) const { return place_of(result) < prompts_.size(); }

  std::string kind_;
  std::vector<std::string> prompts_;
  Resampling resampling_;
};

std::vector<Comparison> comparisons_of(const std::vector<SummaryRow>& rows,
                                       const std::vector<PromptColumns>& columns) {
  std::vector<std::pair<std::size_t, std::size_t>> which;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      const Cell &a = rows[i].cell, &b = rows[j].cell;
      if (!a.plain() && !b.plain() && a.plain_row_key() == b.plain_row_key()) {
        which.emplace_back(i, j);
      }
    }
  }
  return compare_rows(columns, which);
}

/// The runs of all results, oldest first, where several wrote plain decoding of the same text; else
/// none.
std::vector<std::string> runs_of_their_own(const std::map<std::string, Row>& rows) {
  const auto is_twice = [](const auto& named) { return named.second.has_text_twice(); };
  if (std::ranges::none_of(rows, is_twice)) return {};
  std::set<std::string> runs;
  for (const auto& [key, row] : rows) {
    for (const Result* one : row.results) runs.insert(one->run);
  }
  return {runs.begin(), runs.end()};
}

/// "1, 2": which of `runs` wrote the row; empty if there are none.
std::string numbers_of(const Row& row, const std::vector<std::string>& runs) {
  std::string numbers;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (std::ranges::find(row.results, runs[i], &Result::run) == row.results.end()) continue;
    numbers += cat(numbers.empty() ? "" : ", ", i + 1);
  }
  return numbers;
}

}  // namespace

bool compares_runs(const SummaryRow& a, const SummaryRow& b) {
  // Every row's plain decoding is 1 by itself.
  if (a.cell.plain() || b.cell.plain()) return a.other_runs + b.other_runs > 0;
  return a.runs_print != b.runs_print;
}

double SummaryRow::microseconds_per_step(double seconds_of_part) const {
  return steps > 0 ? 1e6 * seconds_of_part / static_cast<double>(steps) : 0.0;
}

double SummaryRow::looked_up_accepted() const {
  return steps > 0 ? static_cast<double>(nodes.looked_up.accepted) / static_cast<double>(steps)
                   : 0.0;
}

std::string counted(std::span<const SummaryRow* const> rows) {
  if (rows.empty()) return {};
  std::int64_t texts = 0, tokens = 0, passes = 0;
  for (const SummaryRow* row : rows) {
    texts += row->runs;
    tokens += row->tokens;
    passes += row->steps;
  }
  const auto several = [](std::int64_t count, const char* what) {
    return cat(grouped(count), " ", what, count == 1 ? "" : "s");
  };
  return cat(several(rows.front()->prompts, "prompt"), ", ", several(texts, "text"), ", ",
             several(tokens, "token"), ", ", grouped(passes), " target pass",
             passes == 1 ? "" : "es");
}

std::string counted(const std::vector<SummaryRow>& rows) {
  std::vector<const SummaryRow*> all;
  for (const SummaryRow& row : rows) all.push_back(&row);
  return counted(all);
}

std::vector<std::string> complete_prompts(const Results& results) {
  const StudyPlan& plan = results.plan();
  std::map<std::string, std::set<std::pair<std::string, std::int32_t>>> texts;
  for (const Result& result : results.results()) {
    texts[result.prompt].emplace(result.cell, result.round);
  }
  std::vector<std::string> complete;
  for (const PromptName& prompt : plan.prompts) {
    if (texts[prompt.id].size() == plan.cells.size() * static_cast<std::size_t>(plan.rounds)) {
      complete.push_back(prompt.id);
    }
  }
  return complete;
}

std::vector<const Cell*> rows_of(const StudyPlan& plan) {
  std::vector<const Cell*> rows;
  std::set<std::string> known;
  for (const Cell& cell : plan.cells) {
    if (known.insert(cell.row_key()).second) rows.push_back(&cell);
  }
  return rows;
}

PromptColumns columns_of(const Results& results, const std::string& row_key,
                         std::span<const std::string> prompts) {
  return columns_of(rows_by_key(results).at(row_key), prompts);
}

Summary summarise(const Results& results) {
  const StudyPlan& plan = results.plan();
  const std::map<std::string, Row> rows = rows_by_key(results);
  const std::vector<std::string> complete = complete_prompts(results);
  std::map<std::string, std::vector<std::string>> of_kind;
  for (const std::string& id : complete) {
    const std::string& kind = std::ranges::find(plan.prompts, id, &PromptName::id)->kind;
    of_kind[kind.empty() ? no_kind : kind].push_back(id);
  }
  const Summariser all("", complete);
  std::vector<Summariser> by_kind;
  if (of_kind.size() > 1) {
    for (const auto& [kind, prompts] : of_kind) by_kind.emplace_back(kind, prompts);
  }
  Summary summary;
  const std::vector<std::string> runs = runs_of_their_own(rows);
  std::vector<PromptColumns> columns;
  for (const Cell* cell : rows_of(plan)) {
    const Row& whole = rows.at(cell->row_key());
    const bool apart = whole.has_text_twice();
    for (const Row& row : apart ? by_run(whole) : std::vector<Row>{whole}) {
      const auto add = [&](std::vector<SummaryRow>& sums, const Summariser& summariser) {
        sums.push_back(summariser(row, plan.rounds));
        sums.back().run = numbers_of(row, runs);
      };
      if (apart && all.on_prompts_of(row).prompts() == 0) continue;
      columns.push_back(columns_of(row, complete));
      add(summary.rows, apart ? all.on_prompts_of(row) : all);
      for (const Summariser& kind : by_kind) {
        const Summariser own = apart ? kind.on_prompts_of(row) : kind;
        if (own.prompts() > 0) add(summary.kinds, own);
      }
    }
  }
  for (const std::string& run : runs) summary.runs.push_back(run.substr(0, run.find(' ')));
  summary.pace = plain_pace(results, complete);
  summary.comparisons = comparisons_of(summary.rows, columns);
  summary.agreements = agreements_of(plan.cells, results);
  summary.verdicts = verdicts_of(summary.rows, columns);
  return summary;
}

}  // namespace coppice::study

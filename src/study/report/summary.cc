#include "study/report/summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

/// The results of all cells that share a row.
struct Row {
  const Cell* cell = nullptr;
  std::vector<const Result*> results;  ///< in order of prompt, round and cell name
};

/// Sums over the seeds and rounds of a row, by prompt.
struct RowColumns : PromptColumns {
  Values examined, accepted, drafted, tokens, seconds;
  Values paces, texts;  ///< sum of the texts' tokens/s, prefill included, and their number
};

RowColumns columns_of(const Row& row, std::span<const std::string> prompts) {
  RowColumns all;
  for (Values* column :
       {&all.judged_good, &all.steps, &all.decoded, &all.decode_seconds, &all.examined,
        &all.accepted, &all.drafted, &all.tokens, &all.seconds, &all.paces, &all.texts}) {
    column->assign(prompts.size(), 0.0);
  }
  for (const Result* result : row.results) {
    const auto p =
        static_cast<std::size_t>(std::ranges::find(prompts, result->prompt) - prompts.begin());
    if (p == prompts.size()) continue;
    all.judged_good[p] += static_cast<double>(result->judged_good());
    all.steps[p] += static_cast<double>(result->steps());
    all.decoded[p] += static_cast<double>(result->decoded());
    all.decode_seconds[p] += result->seconds.decode();
    all.examined[p] += static_cast<double>(result->nodes.total().examined);
    all.accepted[p] += static_cast<double>(result->accepted_drafts());
    all.drafted[p] += static_cast<double>(result->drafted());
    const auto tokens = static_cast<double>(result->tokens());
    const double seconds = result->seconds.decode() + result->seconds.prefill;
    all.tokens[p] += tokens;
    all.seconds[p] += seconds;
    all.paces[p] += tokens / seconds;
    all.texts[p] += 1.0;
  }
  return all;
}

/// Everything of one kind of prompt, or of all.
class Summariser {
 public:
  Summariser(std::string kind, std::vector<std::string> prompts)
      : kind_(std::move(kind)), prompts_(std::move(prompts)), resampling_(prompts_.size()) {}

  SummaryRow operator()(const Row& row, const Row& plain, std::int32_t rounds) const {
    const RowColumns own = columns_of(row, prompts_), of_plain = columns_of(plain, prompts_);
    const auto ratio = [&](const Values& above, const Values& below) {
      return Ratio(resampling_, above, below);
    };
    SummaryRow s;
    s.cell = *row.cell;
    s.kind = kind_;
    s.prompts = static_cast<std::int32_t>(prompts_.size());
    s.accepted_length = ratio(own.judged_good, own.steps).estimate();
    s.acceptance_rate = ratio(own.accepted, own.examined).estimate();
    s.accepted_share = ratio(own.accepted, own.drafted).estimate();
    const Ratio speed = ratio(own.decoded, own.decode_seconds);
    s.tokens_per_second = speed.estimate();
    s.speedup = (speed / ratio(of_plain.decoded, of_plain.decode_seconds)).estimate();
    s.speedup_with_prefill =
        (ratio(own.tokens, own.seconds) / ratio(of_plain.tokens, of_plain.seconds)).estimate();
    const Ratio pace_of_texts = ratio(own.paces, own.texts);
    s.specbench_tokens_per_second = pace_of_texts.estimate();
    s.specbench_speedup = (pace_of_texts / ratio(of_plain.paces, of_plain.texts)).estimate();
    Values paces, speedups;
    for (std::int32_t round = 0; round < rounds; ++round) {
      paces.push_back(pace(row, round));
      speedups.push_back(paces.back() / pace(plain, round));
    }
    s.rounds_tokens_per_second = mean_of_rounds(paces);
    s.rounds_speedup = mean_of_rounds(speedups);
    add_steps(s, row);
    add_runs(s, row, plain);
    return s;
  }

 private:
  double pace(const Row& row, std::int32_t round) const {
    double tokens = 0.0, seconds = 0.0;
    for (const Result* result : row.results) {
      if (result->round != round || !counts(*result)) continue;
      tokens += static_cast<double>(result->decoded());
      seconds += result->seconds.decode();
    }
    return tokens / seconds;
  }

  void add_steps(SummaryRow& s, const Row& row) const {
    std::int64_t passes = 0, drafted = 0;
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
      for (const std::int32_t accepted : result->accepted) {
        const auto length = static_cast<std::size_t>(accepted) + 1;
        if (s.lengths.size() <= length) s.lengths.resize(length + 1, 0);
        ++s.lengths[length];
        if (kind_.empty()) depths.add(prompt, accepted);
      }
    }
    s.depths = depths.rates(resampling_);
    const auto steps = static_cast<double>(std::max<std::int64_t>(s.steps, 1));
    s.draft_passes = static_cast<double>(passes) / steps;
    s.tree_size = static_cast<double>(drafted) / steps;
  }

  void add_runs(SummaryRow& s, const Row& row, const Row& plain) const {
    std::set<std::tuple<std::string, std::int32_t, std::string>> of_plain;
    for (const Result* result : plain.results) {
      of_plain.emplace(result->prompt, result->round, result->run);
    }
    s.other_runs = std::ranges::count_if(row.results, [&](const Result* one) {
      return counts(*one) && !of_plain.contains({one->prompt, one->round, one->run});
    });
  }

  /// Of the result's prompt; prompts_.size() if it does not count.
  std::size_t place_of(const Result& result) const {
    return static_cast<std::size_t>(std::ranges::find(prompts_, result.prompt) - prompts_.begin());
  }
  bool counts(const Result& result) const { return place_of(result) < prompts_.size(); }

  std::string kind_;
  std::vector<std::string> prompts_;
  Resampling resampling_;
};

/// Rows by key, with all results, whatever prompts are complete.
std::map<std::string, Row> rows_by_key(const Results& results) {
  std::map<std::string, Row> rows;
  std::map<std::string, Row*> row_of;
  for (const Cell& cell : results.plan().cells) {
    Row& row = rows[cell.row_key()];
    if (row.cell == nullptr) row.cell = &cell;
    row_of[cell.key()] = &row;
  }
  for (const Result& result : results.results()) {
    row_of.at(result.cell)->results.push_back(&result);
  }
  // Sums of floating-point numbers depend on their order, the file's order on who was faster.
  for (auto& [key, row] : rows) std::ranges::sort(row.results, {}, in_order);
  return rows;
}

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

}  // namespace

double SummaryRow::microseconds_per_step(double seconds_of_part) const {
  return steps > 0 ? 1e6 * seconds_of_part / static_cast<double>(steps) : 0.0;
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
  std::map<std::string, std::size_t> runs;
  for (const Result& result : results.results()) ++runs[result.prompt];
  std::vector<std::string> complete;
  for (const PromptName& prompt : plan.prompts) {
    if (runs[prompt.id] == plan.cells.size() * static_cast<std::size_t>(plan.rounds)) {
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
    of_kind[std::ranges::find(plan.prompts, id, &PromptName::id)->kind].push_back(id);
  }
  const Summariser all("", complete);
  std::vector<Summariser> by_kind;
  if (of_kind.size() > 1) {
    for (const auto& [kind, prompts] : of_kind) by_kind.emplace_back(kind, prompts);
  }
  Summary summary;
  std::vector<PromptColumns> columns;
  for (const Cell* cell : rows_of(plan)) {
    const Row& row = rows.at(cell->row_key());
    columns.push_back(columns_of(row, complete));
    const Row& plain = rows.at(cell->plain_row_key());
    summary.rows.push_back(all(row, plain, plan.rounds));
    for (const Summariser& kind : by_kind) {
      summary.kinds.push_back(kind(row, plain, plan.rounds));
    }
  }
  summary.comparisons = comparisons_of(summary.rows, columns);
  summary.agreements = agreements_of(plan.cells, results);
  summary.verdicts = verdicts_of(summary.rows, columns);
  return summary;
}

}  // namespace coppice::study

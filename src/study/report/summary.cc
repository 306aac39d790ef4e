#include "study/report/summary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace coppice::study {
namespace {

/// Sums over the seeds and rounds of a row, of one prompt.
struct PromptSums {
  double steps = 0, judged_good = 0, examined = 0, accepted = 0, drafted = 0;
  double decoded = 0, decode_seconds = 0, tokens = 0, seconds = 0;
  std::vector<double> reached, accepted_at;  ///< by depth - 1

  void add(const Result& result) {
    steps += static_cast<double>(result.steps());
    judged_good += static_cast<double>(result.judged_good());
    accepted += static_cast<double>(result.accepted_drafts());
    drafted += static_cast<double>(result.drafted());
    decoded += static_cast<double>(result.decoded());
    decode_seconds += result.seconds.decode();
    tokens += static_cast<double>(result.tokens());
    seconds += result.seconds.decode() + result.seconds.prefill;
    for (const auto& [place, counted] : result.nodes.by_position) {
      const auto depth = static_cast<std::size_t>(place.first);
      if (reached.size() < depth) {
        reached.resize(depth, 0.0);
        accepted_at.resize(depth, 0.0);
      }
      examined += static_cast<double>(counted.examined);
      accepted_at[depth - 1] += static_cast<double>(counted.accepted);
      // The judge comes to the first child wherever it comes to any.
      if (place.second == 0) reached[depth - 1] += static_cast<double>(counted.examined);
    }
  }
};

/// The results of all cells that share a row.
struct Row {
  const Cell* cell = nullptr;
  std::vector<const Result*> results;  ///< in order of prompt, round and cell name
};

/// The sums of `row` over `prompts`, in their order.
std::vector<PromptSums> sums_of(const Row& row, std::span<const std::string> prompts) {
  std::map<std::string, PromptSums> by_prompt;
  for (const Result* result : row.results) by_prompt[result->prompt].add(*result);
  std::vector<PromptSums> sums;
  for (const std::string& prompt : prompts) sums.push_back(by_prompt[prompt]);
  return sums;
}

Values column(const std::vector<PromptSums>& sums, double PromptSums::*member) {
  Values values;
  for (const PromptSums& one : sums) values.push_back(one.*member);
  return values;
}

/// Everything of one kind of prompt, or of all.
class Summariser {
 public:
  Summariser(std::string kind, std::vector<std::string> prompts)
      : kind_(std::move(kind)), prompts_(std::move(prompts)), resampling_(prompts_.size()) {}

  SummaryRow operator()(const Row& row, const Row& plain, std::int32_t rounds) const {
    const std::vector<PromptSums> sums = sums_of(row, prompts_),
                                  by_plain = sums_of(plain, prompts_);
    SummaryRow s;
    s.cell = *row.cell;
    s.kind = kind_;
    s.prompts = static_cast<std::int32_t>(prompts_.size());
    const auto ratio = [&](const std::vector<PromptSums>& of, double PromptSums::*above,
                           double PromptSums::*below) {
      return Ratio(resampling_, column(of, above), column(of, below));
    };
    s.accepted_length = ratio(sums, &PromptSums::judged_good, &PromptSums::steps).estimate();
    s.acceptance_rate = ratio(sums, &PromptSums::accepted, &PromptSums::examined).estimate();
    s.accepted_share = ratio(sums, &PromptSums::accepted, &PromptSums::drafted).estimate();
    const auto add_speedups = [&](Estimate& of_sums, Estimate& of_means, double PromptSums::*tokens,
                                  double PromptSums::*seconds) {
      const Ratio speed = ratio(sums, tokens, seconds);
      of_sums = (speed / ratio(by_plain, tokens, seconds)).estimate();
      of_means = mean_speedup(sums, by_plain, tokens, seconds);
      return speed;
    };
    s.tokens_per_second =
        add_speedups(s.speedup, s.mean_speedup, &PromptSums::decoded, &PromptSums::decode_seconds)
            .estimate();
    add_speedups(s.speedup_with_prefill, s.mean_speedup_with_prefill, &PromptSums::tokens,
                 &PromptSums::seconds);
    add_rounds(s, row, plain, rounds);
    add_depths(s, sums);
    add_steps(s, row);
    add_runs(s, row, plain);
    return s;
  }

 private:
  /// Prompts without a token, of which no speed is known, are left out.
  Estimate mean_speedup(const std::vector<PromptSums>& sums, const std::vector<PromptSums>& plain,
                        double PromptSums::*tokens, double PromptSums::*seconds) const {
    Values ratios, counts;
    for (std::size_t p = 0; p < sums.size(); ++p) {
      const double one =
          (sums[p].*tokens / sums[p].*seconds) / (plain[p].*tokens / plain[p].*seconds);
      ratios.push_back(std::isfinite(one) ? one : 0.0);
      counts.push_back(std::isfinite(one) ? 1.0 : 0.0);
    }
    return Ratio(resampling_, ratios, counts).estimate();
  }

  double pace(const Row& row, std::int32_t round) const {
    double tokens = 0.0, seconds = 0.0;
    for (const Result* result : row.results) {
      if (result->round != round || !counts(*result)) continue;
      tokens += static_cast<double>(result->decoded());
      seconds += result->seconds.decode();
    }
    return tokens / seconds;
  }

  void add_rounds(SummaryRow& s, const Row& row, const Row& plain, std::int32_t rounds) const {
    std::vector<double> paces, speedups;
    for (std::int32_t round = 0; round < rounds; ++round) {
      paces.push_back(pace(row, round));
      speedups.push_back(paces.back() / pace(plain, round));
      s.rounds.push_back({paces.back(), speedups.back()});
    }
    s.rounds_tokens_per_second = mean_of_rounds(paces);
    s.rounds_speedup = mean_of_rounds(speedups);
  }

  void add_depths(SummaryRow& s, const std::vector<PromptSums>& sums) const {
    std::size_t depths = 0;
    for (const PromptSums& one : sums) depths = std::max(depths, one.reached.size());
    for (std::size_t d = 0; d < depths; ++d) {
      Values accepted, reached;
      DepthRate rate;
      rate.depth = static_cast<std::int32_t>(d) + 1;
      for (const PromptSums& one : sums) {
        const bool has = d < one.reached.size();
        accepted.push_back(has ? one.accepted_at[d] : 0.0);
        reached.push_back(has ? one.reached[d] : 0.0);
        rate.accepted += std::llround(accepted.back());
        rate.reached += std::llround(reached.back());
      }
      rate.rate = Ratio(resampling_, accepted, reached).estimate();
      s.depths.push_back(rate);
    }
  }

  void add_steps(SummaryRow& s, const Row& row) const {
    std::int64_t passes = 0, drafted = 0;
    for (const Result* result : row.results) {
      if (!counts(*result)) continue;
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
      }
    }
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

  bool counts(const Result& result) const {
    return std::ranges::find(prompts_, result.prompt) != prompts_.end();
  }

  std::string kind_;
  std::vector<std::string> prompts_;
  Resampling resampling_;
};

/// Rows by key, with all results, whatever prompts are complete.
std::map<std::string, Row> rows_of(const Results& results) {
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
  for (auto& [key, row] : rows) {
    std::ranges::sort(row.results, [](const Result* a, const Result* b) {
      return std::tie(a->prompt, a->round, a->cell) < std::tie(b->prompt, b->round, b->cell);
    });
  }
  return rows;
}

PromptColumns columns_of(const Row& row, std::span<const std::string> prompts) {
  const std::vector<PromptSums> sums = sums_of(row, prompts);
  return {column(sums, &PromptSums::judged_good), column(sums, &PromptSums::steps),
          column(sums, &PromptSums::decoded), column(sums, &PromptSums::decode_seconds)};
}

std::vector<OracleRow> oracle_rows(const Results& results, std::span<const std::string> prompts) {
  std::vector<OracleRow> rows;
  for (const OracleCell& cell : results.plan().oracle) {
    const std::string key = cell.key();
    std::map<std::string, const OracleWalk*> walks;
    for (const OracleWalk& walk : results.oracle()) {
      if (walk.cell == key) walks[walk.prompt] = &walk;
    }
    Values expected, positions;
    for (const std::string& prompt : prompts) {
      if (!walks.contains(prompt)) continue;
      expected.push_back(walks[prompt]->expected);
      positions.push_back(static_cast<double>(walks[prompt]->positions));
    }
    if (expected.empty()) continue;
    rows.push_back({cell.pair, cell.temperature, cell.size,
                    static_cast<std::int32_t>(expected.size()), bootstrap(expected, positions)});
  }
  return rows;
}

std::vector<Comparison> comparisons_of(const std::vector<SummaryRow>& rows,
                                       const std::map<std::string, Row>& by_key,
                                       std::span<const std::string> prompts) {
  std::vector<PromptColumns> columns;
  std::vector<std::pair<std::size_t, std::size_t>> which;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    columns.push_back(columns_of(by_key.at(rows[i].cell.row_key()), prompts));
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

std::vector<double> SummaryRow::steps_by_length(std::size_t most) const {
  std::vector<double> counts(most, 0.0);
  for (std::size_t length = 1; length < lengths.size(); ++length) {
    counts[std::min(length, most) - 1] += static_cast<double>(lengths[length]);
  }
  return counts;
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

PromptColumns columns_of(const Results& results, const std::string& row_key,
                         std::span<const std::string> prompts) {
  return columns_of(rows_of(results).at(row_key), prompts);
}

Summary summarise(const Results& results) {
  const StudyPlan& plan = results.plan();
  const std::map<std::string, Row> rows = rows_of(results);
  std::vector<std::string> order;
  for (const Cell& cell : plan.cells) {
    if (std::ranges::find(order, cell.row_key()) == order.end()) {
      order.push_back(cell.row_key());
    }
  }
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
  for (const std::string& key : order) {
    const Row& row = rows.at(key);
    const Row& plain = rows.at(row.cell->plain_row_key());
    summary.rows.push_back(all(row, plain, plan.rounds));
    for (const Summariser& kind : by_kind) {
      summary.kinds.push_back(kind(row, plain, plan.rounds));
    }
  }
  summary.oracle = oracle_rows(results, complete);
  summary.comparisons = comparisons_of(summary.rows, rows, complete);
  summary.agreements = agreements_of(plan.cells, results);
  return summary;
}

}  // namespace coppice::study

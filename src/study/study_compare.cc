#include "study/study_compare.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "study/report/summary.h"

namespace coppice::study {
namespace {

/// Places of the common prompts in either study's plan.
struct CommonPrompts {
  std::vector<std::int32_t> first, second;
};

CommonPrompts common_prompts(const StoredStudy& a, const StoredStudy& b) {
  std::map<std::string, std::int32_t> of_b;
  for (const std::int32_t p : complete_prompts(b.results)) {
    of_b[b.file.plan.prompts[static_cast<std::size_t>(p)].id] = p;
  }
  CommonPrompts common;
  for (const std::int32_t p : complete_prompts(a.results)) {
    const auto found = of_b.find(a.file.plan.prompts[static_cast<std::size_t>(p)].id);
    if (found == of_b.end()) continue;
    common.first.push_back(p);
    common.second.push_back(found->second);
  }
  return common;
}

/// One cell for each row of a plan, in order.
std::vector<const Cell*> rows_of(const StudyPlan& plan) {
  std::vector<const Cell*> rows;
  std::set<std::string> known;
  for (const Cell& cell : plan.cells) {
    if (known.insert(cell.row_key()).second) rows.push_back(&cell);
  }
  return rows;
}

std::string values_of(const std::string& difference) {
  std::string text = difference;
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{": it was ", ": "}, {", now ", " and "}}) {
    const auto at = text.find(from);
    if (at != text.npos) text.replace(at, from.size(), to);
  }
  return text;
}

/// Whether texts of the pair named so are bound to be the same in both studies.
bool is_same_text(const StoredStudy& a, const StoredStudy& b, const std::string& pair) {
  for (const char* name : {"prompt_tokens", "max_new_tokens", "ignore_eos", "repetition_penalty",
                           "top_k", "top_p", "min_p"}) {
    if (a.file.fixed.value(name, nlohmann::ordered_json()) !=
        b.file.fixed.value(name, nlohmann::ordered_json())) {
      return false;
    }
  }
  const auto target = [&](const StoredStudy& study) {
    return study.file.pairs.at(pair).at("target").at("fingerprint");
  };
  return target(a) == target(b);
}

void compare_texts(StudyComparison& comparison, const StoredStudy& a, const StoredStudy& b) {
  std::map<std::string, const Cell*> bound;
  for (const Cell& cell : a.file.plan.cells) {
    if (is_bound(cell) && b.file.pairs.contains(cell.pair) && is_same_text(a, b, cell.pair)) {
      bound[cell.key()] = &cell;
    }
  }
  std::map<std::pair<std::string, std::string>, const Result*> expected;
  for (const Result& result : a.results.results()) {
    if (result.round != 0 || !bound.contains(result.cell)) continue;
    expected[{result.cell, a.file.plan.prompts[static_cast<std::size_t>(result.prompt)].id}] =
        &result;
  }
  for (const Result& result : b.results.results()) {
    if (result.round != 0) continue;
    const std::string& id = b.file.plan.prompts[static_cast<std::size_t>(result.prompt)].id;
    const auto found = expected.find({result.cell, id});
    if (found == expected.end()) continue;
    ++comparison.texts;
    if (auto divergence = first_divergence(*found->second, result)) {
      divergence->prompt_id = id;
      comparison.divergences.push_back(std::move(*divergence));
    }
  }
}

}  // namespace

StudyComparison compare_studies(const StoredStudy& first, const StoredStudy& second) {
  const CommonPrompts prompts = common_prompts(first, second);
  const auto both = [&] {
    return cat(quote(first.path.string()), " and ", quote(second.path.string()));
  };
  if (prompts.first.empty()) {
    throw_usage(cat("study compare: ", both(), " have no finished prompt in common; study the ",
                    "same prompts"));
  }
  StudyComparison comparison;
  comparison.prompts = static_cast<std::int32_t>(prompts.first.size());
  std::set<std::string> of_second;
  for (const Cell* cell : rows_of(second.file.plan)) of_second.insert(cell->row_key());
  std::vector<PromptColumns> columns;
  std::vector<std::pair<std::size_t, std::size_t>> which;
  for (const Cell* cell : rows_of(first.file.plan)) {
    const std::string key = cell->row_key();
    if (of_second.erase(key) == 0) {
      comparison.only_first.push_back(key);
      continue;
    }
    columns.push_back(columns_of(first.results, key, prompts.first));
    columns.push_back(columns_of(second.results, key, prompts.second));
    which.emplace_back(columns.size() - 2, columns.size() - 1);
    const PromptColumns &a = columns[columns.size() - 2], &b = columns.back();
    comparison.rows.push_back({*cell,
                               bootstrap(a.judged_good, a.steps),
                               bootstrap(b.judged_good, b.steps),
                               bootstrap(a.decoded, a.decode_seconds),
                               bootstrap(b.decoded, b.decode_seconds),
                               {}});
  }
  comparison.only_second.assign(of_second.begin(), of_second.end());
  if (comparison.rows.empty()) {
    throw_usage(cat("study compare: ", both(), " have no setting in common; study the same ",
                    "policies, sizes, temperatures and acceptance"));
  }
  std::vector<Comparison> all = compare_rows(columns, which);
  for (std::size_t i = 0; i < all.size(); ++i) {
    comparison.rows[i].comparison = std::move(all[i]);
  }
  for (const std::string& one : differences(first.file, second.file)) {
    comparison.differences.push_back(values_of(one));
  }
  compare_texts(comparison, first, second);
  return comparison;
}

}  // namespace coppice::study

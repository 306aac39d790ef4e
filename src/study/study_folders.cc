#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <system_error>
#include <tuple>

#include "base/error.h"
#include "base/json_file.h"
#include "study/grid/study_file.h"
#include "study/report/summary.h"
#include "study/study.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_prompts = std::uintmax_t{256} << 20;

void check_together(const StoredStudy& first, const StoredStudy& other) {
  std::string changes;
  const auto add = [&](const std::string& change) {
    changes += (changes.empty() ? "" : "; ") + change;
  };
  for (const std::string& one : differences(first.file, other.file)) add(one);
  const auto &a = first.results.results(), &b = other.results.results();
  if (!a.empty() && !b.empty() && (a[0].device != b[0].device || a[0].dtype != b[0].dtype)) {
    add(cat("device: it was ", a[0].device, " ", a[0].dtype, ", now ", b[0].device, " ",
            b[0].dtype));
  }
  std::map<std::string, std::string> kinds;
  for (const PromptName& prompt : first.file.plan.prompts) kinds[prompt.id] = prompt.kind;
  for (const PromptName& prompt : other.file.plan.prompts) {
    const auto known = kinds.find(prompt.id);
    if (known == kinds.end() || known->second == prompt.kind) continue;
    add(cat("kind of prompt ", prompt.id, ": it was ", quote(known->second), ", now ",
            quote(prompt.kind)));
  }
  if (changes.empty()) return;
  throw_usage(cat("study merge: ", quote(first.path.string()), " and ", quote(other.path.string()),
                  " differ (", changes, "); their results may not stand in one table; use coppice ",
                  "study compare"));
}

/// Adds what `all` lacks, told apart by `key_of`.
template <typename One, typename KeyOf>
void add_missing(std::vector<One>& all, const std::vector<One>& more, const KeyOf& key_of) {
  for (const One& one : more) {
    const auto is_like = [&](const One& other) { return key_of(other) == key_of(one); };
    if (std::ranges::none_of(all, is_like)) all.push_back(one);
  }
}

void add_plan(StudyPlan& plan, const StudyPlan& other) {
  const auto key_of = [](const auto& cell) { return cell.key(); };
  add_missing(plan.cells, other.cells, key_of);
  add_missing(plan.oracle, other.oracle, key_of);
  add_missing(plan.prompts, other.prompts, [](const PromptName& prompt) { return prompt.id; });
  plan.rounds = std::max(plan.rounds, other.rounds);
}

/// What a line is the result of, as its members say.
std::string name_of_result(const StoredLine& line) {
  const JsonObject json = parse_json_object(line.text, "the line");
  nlohmann::json name = nlohmann::json::array();
  for (const char* member : {"cell", "prompt", "round"}) {
    name.push_back(json->value(member, nlohmann::json()));
  }
  return name.dump();
}

/// Lines of a file of prompts, those with an id that is in `known` left out.
void add_prompts(std::string& text, std::set<std::string>& known, const fs::path& file) {
  const std::string all = read_file(file, "prompts", largest_prompts);
  std::string_view rest = all;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    const JsonObject json = parse_json_object(line, file.string());
    if (known.insert(json->value("id", "")).second) text += cat(line, "\n");
  }
}

/// Those that are complete in both, in the first one's order.
std::vector<std::string> common_prompts(const StoredStudy& a, const StoredStudy& b) {
  std::vector<std::string> common = complete_prompts(a.results);
  const std::vector<std::string> others = complete_prompts(b.results);
  std::erase_if(
      common, [&](const std::string& id) { return std::ranges::find(others, id) == others.end(); });
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
    if (a.file.fixed.value(name, nlohmann::json()) != b.file.fixed.value(name, nlohmann::json())) {
      return false;
    }
  }
  const std::string target = model_name("target", pair);
  return a.file.inputs.at(target).fingerprint == b.file.inputs.at(target).fingerprint;
}

void compare_texts(StudyComparison& comparison, const StoredStudy& a, const StoredStudy& b) {
  std::map<std::string, const Cell*> bound;
  for (const Cell& cell : a.file.plan.cells) {
    const bool in_both = b.file.inputs.contains(model_name("target", cell.pair));
    if (is_bound(cell) && in_both && is_same_text(a, b, cell.pair)) bound[cell.key()] = &cell;
  }
  std::map<std::pair<std::string, std::string>, const Result*> expected;
  for (const Result& result : a.results.results()) {
    const bool counts = result.round == 0 && bound.contains(result.cell);
    if (counts) expected[{result.cell, result.prompt}] = &result;
  }
  for (const Result& result : b.results.results()) {
    const auto found = expected.find({result.cell, result.prompt});
    if (result.round != 0 || found == expected.end()) continue;
    ++comparison.texts;
    if (const auto divergence = first_divergence(*found->second, result)) {
      comparison.divergences.push_back(*divergence);
    }
  }
}

}  // namespace

MergeOutcome merge_studies(const std::vector<fs::path>& studies, const fs::path& out) {
  if (studies.size() < 2) {
    throw_usage("study merge: fewer than two studies; name the new folder, then at least two");
  }
  std::vector<StoredStudy> all;
  for (const fs::path& path : studies) {
    all.push_back(read_study(path));
    check_together(all.front(), all.back());
  }
  const StudyFolder folder(out);
  if (fs::exists(folder.file(study_name))) {
    throw_usage(cat("study merge: ", quote(out.string()),
                    ": it holds a study already; name a new or empty folder"));
  }
  MergeOutcome outcome;
  StudyFile file = all.front().file;
  std::string lines, prompts;
  std::set<std::string> known, known_prompts;
  for (const StoredStudy& study : all) {
    add_missing(file, study.file);
    add_missing(file.notes, study.file.notes, std::identity());
    add_plan(file.plan, study.file.plan);
    add_prompts(prompts, known_prompts, study.path / prompts_name);
    for (const StoredLine& line : read_results(study.path / results_name)) {
      if (known.insert(name_of_result(line)).second) {
        lines += with_checksum(line.text) + "\n";
      } else {
        ++outcome.twice;
      }
    }
  }
  write_file(folder.file(prompts_name), prompts);
  write_file(folder.file(results_name), lines);
  folder.write(file);
  outcome.study = publish(folder.path(), file, Results(folder.file(results_name), file.plan));
  return outcome;
}

StudyComparison compare_studies(const StoredStudy& first, const StoredStudy& second) {
  const std::vector<std::string> prompts = common_prompts(first, second);
  const auto both = [&] {
    return cat(quote(first.path.string()), " and ", quote(second.path.string()));
  };
  if (prompts.empty()) {
    throw_usage(cat("study compare: ", both(), " have no finished prompt in common; study the ",
                    "same prompts"));
  }
  StudyComparison comparison;
  comparison.prompts = static_cast<std::int32_t>(prompts.size());
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
    columns.push_back(columns_of(first.results, key, prompts));
    columns.push_back(columns_of(second.results, key, prompts));
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

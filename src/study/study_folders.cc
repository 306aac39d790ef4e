#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <system_error>
#include <tuple>

#include "base/error.h"
#include "base/json_file.h"
#include "study/grid/study_folder.h"
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

void add_plan(StudyPlan& plan, const StudyPlan& other) {
  for (const Cell& cell : other.cells) {
    const auto same = [&](const Cell& one) { return one.key() == cell.key(); };
    if (std::ranges::none_of(plan.cells, same)) plan.cells.push_back(cell);
  }
  for (const PromptName& prompt : other.prompts) {
    const auto same = [&](const PromptName& one) { return one.id == prompt.id; };
    if (std::ranges::none_of(plan.prompts, same)) {
      plan.prompts.push_back(prompt);
    }
  }
  plan.rounds = std::max(plan.rounds, other.rounds);
  for (const OraclePlan& oracle : other.oracle) {
    const auto place = std::ranges::find_if(plan.oracle, [&](const auto& one) {
      return one.pair == oracle.pair && one.temperature == oracle.temperature;
    });
    if (place == plan.oracle.end()) {
      plan.oracle.push_back(oracle);
      continue;
    }
    std::set<std::int32_t> sizes(place->sizes.begin(), place->sizes.end());
    sizes.insert(oracle.sizes.begin(), oracle.sizes.end());
    place->sizes.assign(sizes.begin(), sizes.end());
  }
}

/// What a line is the result of, as its members say.
std::string name_of_result(const StoredLine& line) {
  const JsonObject json = parse_json_object(line.text, "the line");
  nlohmann::json name = nlohmann::json::array();
  for (const char* member : {"cell", "prompt", "round"})
    name.push_back(json->value(member, nlohmann::json()));
  if (json->contains("oracle")) {
    for (const char* member : {"pair", "temperature", "size"}) {
      name.push_back((*json)["oracle"].value(member, nlohmann::json()));
    }
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

/// Places of the common prompts in either study's plan.
struct CommonPrompts {
  std::vector<std::int32_t> first, second;
};

CommonPrompts common_prompts(const StoredStudy& a, const StoredStudy& b) {
  std::map<std::string, std::int32_t> of_b;
  for (const std::int32_t p : complete_prompts(b.results)) {
    of_b[b.file.plan.prompts[p].id] = p;
  }
  CommonPrompts common;
  for (const std::int32_t p : complete_prompts(a.results)) {
    const auto found = of_b.find(a.file.plan.prompts[p].id);
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
    expected[{result.cell, a.file.plan.prompts[result.prompt].id}] = &result;
  }
  for (const Result& result : b.results.results()) {
    if (result.round != 0) continue;
    const std::string& id = b.file.plan.prompts[result.prompt].id;
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
    for (const std::string& note : study.file.notes) {
      auto& notes = file.notes;
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    }
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

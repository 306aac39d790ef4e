#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include "base/checked_lines.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "study/report/rows.h"
#include "study/study.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_prompts = std::uintmax_t{256} << 20;

void check_together(const StoredStudy& first, const StoredStudy& other) {
  std::vector<Difference> changes = differences(first.file, other.file);
  const auto compare = [&](const std::string& what, const std::string& a, const std::string& b) {
    if (a != b) changes.push_back({what, a, b});
  };
  const auto &a = first.results.results(), &b = other.results.results();
  if (!a.empty() && !b.empty()) {
    compare("device", cat(a[0].device, " ", a[0].dtype), cat(b[0].device, " ", b[0].dtype));
  }
  for (const PromptName& prompt : other.file.plan.prompts) {
    const auto& known = first.file.plan.prompts;
    const auto same = std::ranges::find(known, prompt.id, &PromptName::id);
    if (same == known.end()) continue;
    const auto words = [](const std::string& kind) { return kind.empty() ? no_kind : quote(kind); };
    compare(cat("kind of prompt ", prompt.id), words(same->kind), words(prompt.kind));
  }
  if (changes.empty()) return;
  throw_usage(cat("study merge: ", quote(first.path.string()), " and ", quote(other.path.string()),
                  " differ (", words_of(changes),
                  "); their results may not stand in one table; use coppice ", "study compare"));
}

/// What a line is the result of, as its members say. Plain decoding is also known by its run: each
/// study's own is what its speeds are compared with.
std::string name_of_result(const StoredLine& line) {
  const JsonObject json = parse_json_object(line.text, "the line");
  nlohmann::json name = nlohmann::json::array();
  for (const char* member : {"cell", "prompt", "round"}) {
    name.push_back(json->value(member, nlohmann::json()));
  }
  if (is_plain_key(json->value("cell", ""))) name.push_back(json->value("run", ""));
  return name.dump();
}

/// Lines of a file of prompts, those with an id that is in `known` left out.
void add_prompts(std::string& text, std::set<std::string>& known, const fs::path& file) {
  const std::string all = read_file(file, "prompts", largest_prompts);
  std::string_view rest = all;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const JsonObject json = parse_json_object(line, file.string());
    if (known.insert(json->value("id", "")).second) text += cat(line, "\n");
  }
}

/// Whether texts are bound to be the same in both studies where they are in one.
bool is_same_text(const StoredStudy& a, const StoredStudy& b) {
  for (const char* name : {"prompt_tokens", "max_new_tokens", "ignore_eos", "repetition_penalty",
                           "top_k", "top_p", "min_p"}) {
    if (a.file.fixed.value(name, nlohmann::json()) != b.file.fixed.value(name, nlohmann::json())) {
      return false;
    }
  }
  return a.file.inputs.at("target").fingerprint == b.file.inputs.at("target").fingerprint;
}

void compare_texts(StudyComparison& comparison, const StoredStudy& a, const StoredStudy& b) {
  if (!is_same_text(a, b)) return;
  std::set<std::string> bound;
  for (const Cell& cell : a.file.plan.cells) {
    if (is_bound(cell)) bound.insert(cell.key());
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
  std::error_code error;
  if (fs::exists(out, error) && !fs::is_empty(out, error)) {
    throw_usage(cat("study merge: ", quote(out.string()),
                    ": it holds a study already, or something else; name a new or empty folder"));
  }
  std::vector<StoredStudy> all;
  for (const fs::path& path : studies) {
    all.push_back(read_study(path));
    check_together(all.front(), all.back());
  }
  // Whatever ends this before all is there leaves `out` free for the same command.
  const fs::path part = (out / "").parent_path().string() + ".part";
  if (fs::is_symlink(part, error)) require_own_name(part);
  const StudyFolder folder(part, true);
  MergeOutcome outcome;
  StudyFile file = all.front().file;
  std::string lines, prompts;
  std::set<std::string> known, known_prompts;
  for (const StoredStudy& study : all) {
    const StudyPlan& plan = study.file.plan;
    add_missing(file, study.file);
    add_missing(file.notes, study.file.notes);
    add_missing(file.left_out, study.file.left_out);
    add_missing(file.plan.cells, plan.cells, [](const Cell& cell) { return cell.key(); });
    add_missing(file.plan.prompts, plan.prompts, [](const PromptName& one) { return one.id; });
    file.plan.rounds = std::max(file.plan.rounds, plan.rounds);
    add_prompts(prompts, known_prompts, study.path / prompts_name);
    for (const StoredLine& line : read_results(study.path / results_name)) {
      if (known.insert(name_of_result(line)).second) {
        lines += with_checksum(line.text) + "\n";
      } else {
        ++outcome.twice;
      }
    }
  }
  write_own_file(folder.file(prompts_name), prompts);
  write_own_file(folder.file(results_name), lines);
  folder.write(file);
  outcome.study = publish(folder.path(), file, Results(folder.file(results_name), file.plan));
  fs::rename(part, out, error);
  if (error) throw_write_failure(out, error.value(), free_space);
  fs::remove(out / merge_lock_name, error);
  return outcome;
}

StudyComparison compare_studies(const StoredStudy& first, const StoredStudy& second) {
  std::vector<std::string> prompts = complete_prompts(first.results);
  const std::vector<std::string> others = complete_prompts(second.results);
  std::erase_if(prompts, [&](const std::string& id) {
    return std::ranges::find(others, id) == others.end();
  });
  const auto refuse = [&](const char* why) {
    throw_usage(cat("study compare: ", quote(first.path.string()), " and ",
                    quote(second.path.string()), " have no ", why));
  };
  if (prompts.empty()) refuse("finished prompt in common; study the same prompts");
  StudyComparison comparison;
  comparison.prompts = static_cast<std::int32_t>(prompts.size());
  std::set<std::string> of_second;
  for (const Cell* cell : rows_of(second.file.plan)) of_second.insert(cell->row_key());
  const Resampling resampling(prompts.size());
  std::vector<PromptColumns> columns;
  std::vector<std::pair<std::size_t, std::size_t>> which;
  for (const Cell* cell : rows_of(first.file.plan)) {
    const std::string key = cell->row_key();
    if (of_second.erase(key) == 0) {
      comparison.only_first.push_back(key);
      continue;
    }
    const PromptColumns a = columns_of(first.results, key, prompts),
                        b = columns_of(second.results, key, prompts);
    if (!cell->plain()) which.emplace_back(columns.size(), columns.size() + 1);
    comparison.rows.push_back({*cell,
                               bootstrap(a.kept, a.steps),
                               bootstrap(b.kept, b.steps),
                               bootstrap(a.decoded, a.decode_seconds),
                               bootstrap(b.decoded, b.decode_seconds),
                               speedup_of(resampling, a).estimate(),
                               speedup_of(resampling, b).estimate(),
                               {}});
    columns.insert(columns.end(), {a, b});
  }
  comparison.only_second.assign(of_second.begin(), of_second.end());
  if (comparison.rows.empty()) {
    refuse("setting in common; study the same policies, sizes, temperatures and acceptance");
  }
  const std::vector<Comparison> all = compare_rows(columns, which);
  for (const Comparison& one : all) comparison.rows[one.first / 2].comparison = one;
  comparison.first_pace = plain_pace(first.results, prompts);
  comparison.second_pace = plain_pace(second.results, prompts);
  for (const Difference& one : differences(first.file, second.file)) {
    comparison.differences.push_back(cat(one.name, ": ", one.before, " and ", one.now));
  }
  compare_texts(comparison, first, second);
  return comparison;
}

}  // namespace coppice::study

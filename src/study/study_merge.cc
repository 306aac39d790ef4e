#include "study/study_merge.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/json_file.h"
#include "study/grid/study_folder.h"

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
    if (std::none_of(plan.cells.begin(), plan.cells.end(), same)) plan.cells.push_back(cell);
  }
  for (const PromptName& prompt : other.prompts) {
    const auto same = [&](const PromptName& one) { return one.id == prompt.id; };
    if (std::none_of(plan.prompts.begin(), plan.prompts.end(), same)) {
      plan.prompts.push_back(prompt);
    }
  }
  plan.rounds = std::max(plan.rounds, other.rounds);
  for (const OraclePlan& oracle : other.oracle) {
    const auto place = std::find_if(plan.oracle.begin(), plan.oracle.end(), [&](const auto& one) {
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
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
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

}  // namespace coppice::study

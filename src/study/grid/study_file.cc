#include "study/grid/study_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <random>
#include <system_error>

#include "base/appended_file.h"
#include "base/build_commit.h"
#include "base/error.h"
#include "base/fingerprint.h"
#include "base/json_file.h"
#include "base/remedy.h"
#include "engine/access.h"
#include "kernels/cpu/instruction_set.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

std::string now_in_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

using Json = nlohmann::ordered_json;

constexpr int format_version = 8;
constexpr std::uintmax_t largest_tree_file = std::uintmax_t{64} << 20;

StudyInput model(const std::filesystem::path& folder) {
  if (folder.empty()) return {"none", "none", true};
  return {std::filesystem::absolute(folder).lexically_normal().string(),
          fingerprint_of_folder(folder), true};
}

std::string fingerprint_of_file(const std::filesystem::path& file, const char* what) {
  Fingerprint fingerprint;
  fingerprint.add(read_file(file, what, largest_tree_file));
  return fingerprint.text();
}

/// Each of `values` once, in order, but for empty ones.
std::string all_of(const std::vector<std::string>& values, const char* between) {
  std::string text;
  for (auto one = values.begin(); one != values.end(); ++one) {
    if (one->empty() || std::find(values.begin(), one, *one) != one) continue;
    text += (text.empty() ? "" : between) + *one;
  }
  return text;
}

namespace fs = std::filesystem;
constexpr const char* lock_name = "lock";
constexpr std::uintmax_t largest_study_file = std::uintmax_t{256} << 20;

/// The name of something in the folder that is neither `own` nor what killed writes leave; empty:
/// there is no such thing.
std::string foreign_name(const fs::path& path, std::initializer_list<const char*> own) {
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const bool is_own = std::find(own.begin(), own.end(), name) != own.end();
    if (!is_own && !is_unfinished(name)) return name;
  }
  return {};
}

/// A study that happens to have the name is not taken for what a killed merge left.
void require_of_a_merge(const fs::path& path) {
  const std::string foreign =
      is_there(path / merge_lock_name)
          ? foreign_name(path, {merge_lock_name, study_name, results_name, prompts_name,
                                "summary.csv", "depths.csv", "report.html", "figures", "tables"})
          : foreign_name(path, {});
  if (foreign.empty()) return;
  throw_usage(cat("study merge: ", quote(path.string()), ": the folder holds ", quote(foreign),
                  ", which no merge left there; move it away or merge into another folder"));
}

StudyFile read_study_file(const fs::path& path) {
  return study_file_from(read_file(path, "study", largest_study_file), path.string());
}

}  // namespace

Provenance provenance_of(Engine& engine, const std::string& command) {
  const Device& device = EngineAccess(engine).device();
  Provenance run;
  run.date = now_in_utc();
  run.id = cat(run.date, ' ', std::random_device()());  // two may begin within a second
  run.version = version();
  run.commit = build_commit();
  run.build = COPPICE_BUILD;
  run.command = command;
  run.device = device.name();
  run.dtype = compute_name(*EngineAccess(engine).target().model);
  run.kv_dtype = name_of(device.kv_dtype());
  if (!device.shares_host_memory()) run.card = device.description();
  run.cpu = cpu::processor_model();
  run.instruction_set = cpu::name_of(cpu::instruction_set());
  run.threads = device.threads();
  return run;
}

StudyFile study_file_of(const StudyRequest& request) {
  const GenerateOptions& shared = request.shared;
  const EngineOptions& engine = request.engine;
  StudyFile file;
  file.fixed = {{"version", version()},
                {"prompt_tokens", request.prompt_tokens},
                {"max_new_tokens", shared.max_new_tokens},
                {"ignore_eos", shared.ignore_eos},
                {"repetition_penalty", shared.sampling.repetition_penalty},
                {"top_k", shared.sampling.top_k},
                {"top_p", shared.sampling.top_p},
                {"min_p", shared.sampling.min_p},
                {"device", name_of(engine.device)},
                {"threads", engine.threads},
                {"cpu_dtype", name_of(engine.cpu_dtype)},
                {"kv_dtype", name_of(engine.kv_dtype)},
                {"target_weights", name_of(engine.target_weights)},
                {"draft_weights", name_of(engine.draft_weights)},
                {"kv_tokens", engine.kv_tokens},
                // What sequoia's trees are planned for.
                {"acceptance_vector",
                 request.acceptance_file.empty()
                     ? "measured"
                     : fingerprint_of_file(request.acceptance_file, "acceptance vector")}};
  if (request.constraint != nullptr) {
    const constraints::ConstraintSource& source = request.constraint->source;
    file.fixed["constraint"] = {{"kind", name_of(source.kind)}, {"texts", source.texts}};
  }
  file.inputs = {{"target", model(engine.target)}, {"draft", model(engine.draft)}};
  for (const Cell& cell : request.cells) {
    if (cell.tree.empty()) continue;
    StudyInput& tree = file.inputs[cat("tree ", quote(cell.tree.string()))];
    if (tree.path.empty()) tree = {cell.tree.string(), fingerprint_of_file(cell.tree, "tree")};
  }
  file.prompts_file = request.prompts_file.string();
  file.plan = {request.cells, names_of(request.prompts), request.rounds};
  file.left_out = request.left_out;
  return file;
}

std::string to_text(const StudyFile& file) {
  Json json = {{"format", format_version}};
  to_json(json, file);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

/// Throws Error(failure), as from_json() does, for settings that facts_of() could not read.
void check_fixed(const nlohmann::json& fixed) {
  if (!fixed.is_object()) refuse_member("fixed", fixed);
  const auto rule = fixed.find("constraint");
  if (rule == fixed.end()) return;
  const bool is_rule = rule->is_object() && rule->contains("texts") && rule->contains("kind") &&
                       rule->at("kind").is_string();
  if (!is_rule) refuse_member("constraint", *rule);
}

}  // namespace

StudyFile study_file_from(const std::string& text, const std::string& where) {
  const JsonObject json = parse_json_object(text, where);
  const nlohmann::json format = json->value("format", nlohmann::json());
  if (format != format_version) {
    throw_failure(cat(where, ": a study of format ", shown(format), ", this version reads ",
                      format_version,
                      "; continue it with the version that began it, or study in another folder"));
  }
  try {
    auto file = json->get<StudyFile>();
    check_fixed(file.fixed);
    return file;
  } catch (const Error& error) {
    throw_failure(with_remedy(cat(where, ": ", error.what()),
                              "restore the file, or study in another folder"));
  }
}

std::string words_of(const std::vector<Difference>& differences) {
  std::string words;
  for (const Difference& one : differences) {
    words += cat(words.empty() ? "" : "; ", one.name, ": it was ", one.before, ", now ", one.now);
  }
  return words;
}

std::vector<Difference> differences(const StudyFile& before, const StudyFile& now) {
  std::vector<Difference> all;
  const auto compare = [&](const std::string& name, const std::string& a, const std::string& b) {
    if (a != b) all.push_back({name, a, b});
  };
  const auto value_in = [](const nlohmann::json& object, const std::string& name) -> std::string {
    return object.contains(name) ? object[name].dump() : "not set";
  };
  nlohmann::json names = now.fixed;
  names.update(before.fixed);
  for (const auto& [name, value] : names.items()) {
    compare(name, value_in(before.fixed, name), value_in(now.fixed, name));
  }
  for (const auto& [name, input] : now.inputs) {
    const auto old = before.inputs.find(name);
    if (old == before.inputs.end() || old->second.fingerprint == input.fingerprint) continue;
    // What a message shortens must not hide the difference.
    const auto described = [](const StudyInput& one) {
      if (one.path == "none") return one.path;
      return cat(quote(one.path), " (fingerprint ", one.fingerprint, ")");
    };
    compare(name, described(old->second), described(input));
  }
  return all;
}

void add_missing(StudyFile& file, const StudyFile& other) {
  file.inputs.insert(other.inputs.begin(), other.inputs.end());
  add_missing(file.runs, other.runs);
}

Facts facts_of(const StudyFile& file) {
  Facts facts;
  for (const auto& [name, input] : file.inputs) {
    if (input.is_model) facts.emplace_back(name, input.path);
  }
  const auto fixed = [&](const char* name) { return file.fixed.value(name, nlohmann::json()); };
  const StudyPlan& plan = file.plan;
  facts.emplace_back("prompts", cat(plan.prompts.size(), " of ", file.prompts_file));
  if (fixed("prompt_tokens") != 0) {
    facts.emplace_back("prompt tokens", cat("at most ", fixed("prompt_tokens").dump()));
  }
  facts.emplace_back("new tokens", cat("at most ", fixed("max_new_tokens").dump(), " each"));
  if (const nlohmann::json rule = fixed("constraint"); rule.is_object()) {
    std::string texts;
    for (const auto& text : rule.at("texts")) texts += cat(" ", shown(text));
    facts.emplace_back("constraint", rule.at("kind").get<std::string>() + texts);
  }
  std::vector<std::string> seeds;
  for (const Cell& cell : plan.cells) seeds.push_back(cat(cell.seed));
  facts.emplace_back("seeds", all_of(seeds, ", "));
  facts.emplace_back("rounds", cat(plan.rounds, ", settings in random order"));
  for (const std::string& note : file.notes) facts.emplace_back("trees", note);
  for (const std::string& line : file.left_out) facts.emplace_back("not run", line);
  const auto of_runs = [&](const char* name, const auto& value_of) {
    std::vector<std::string> values;
    for (const Provenance& run : file.runs) values.push_back(value_of(run));
    const std::string all = all_of(values, "; ");
    if (!all.empty()) facts.emplace_back(name, all);
  };
  using Run = const Provenance&;
  of_runs("device", [](Run run) {
    return cat(run.device, ", ", run.dtype, ", KV ", run.kv_dtype, run.card.empty() ? "" : ", ",
               run.card);
  });
  of_runs("CPU", [](Run run) {
    return cat(run.cpu, ", ", run.instruction_set, ", ", run.threads,
               run.threads == 1 ? " thread" : " threads");
  });
  of_runs("date", [](Run run) { return run.date; });
  of_runs("coppice",
          [](Run run) { return cat(run.version, ", commit ", run.commit, ", ", run.build); });
  of_runs("command", [](Run run) { return run.command; });
  return facts;
}

StudyFolder::StudyFolder(const fs::path& path, bool anew) : path_(path) {
  try {
    fs::create_directories(path_);
    if (anew) {
      require_of_a_merge(path_);
    } else if (!fs::exists(path_ / study_name)) {
      // A run that was killed before it wrote its settings leaves no more than this.
      const std::string foreign = foreign_name(path_, {lock_name});
      if (!foreign.empty()) {
        throw_usage(cat("--out ", quote(path.string()), ": the folder holds ", quote(foreign),
                        " and no study; name a new or empty folder"));
      }
    }
    const fs::path lock = path_ / (anew ? merge_lock_name : lock_name);
    require_own_name(lock);
    lock_ = open_locked(lock, O_NOFOLLOW | O_NONBLOCK);
    if (lock_.get() < 0) {
      throw_usage(cat("--out ", quote(path_.string()),
                      ": another run is working in it; wait for its end or name another folder"));
    }
    if (!anew) return;
    const std::vector<fs::directory_entry> left(fs::directory_iterator{path_},
                                                fs::directory_iterator{});
    for (const auto& entry : left) {
      if (entry.path().filename() != merge_lock_name) fs::remove_all(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw_failure(cat("--out ", quote(path_.string()), ": ", error.code().message(),
                      "; name a folder that can be written"));
  }
}

void StudyFolder::settle(StudyFile& file) {
  const fs::path path = path_ / study_name;
  std::error_code ignored;
  const auto results = fs::file_size(path_ / results_name, ignored);
  const bool empty = ignored || results == 0;
  const bool begun = fs::exists(path, ignored);
  continued_ = begun && !empty;
  try {
    if (begun) {
      const StudyFile before = read_study_file(path);
      const std::string changes = words_of(differences(before, file));
      if (!changes.empty()) {
        throw_usage(cat("--out ", quote(path_.string()), " holds another study (", changes,
                        "); start with the settings it was begun with, or name another folder"));
      }
      add_missing(file, before);
    }
  } catch (const Error&) {
    // Settings without results bind nobody: what was wrong with them may be mended.
    if (continued_) throw;
  }
  write(file);
}

void StudyFolder::write(const StudyFile& file) const {
  write_own_file(path_ / study_name, to_text(file), resumes_when_free);
}

StoredStudy read_study(const fs::path& folder) {
  const fs::path path = folder / study_name;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    throw_failure(cat(quote(folder.string()), ": it holds no study (no ", study_name,
                      "); name a folder that coppice study wrote"));
  }
  StudyFile file = read_study_file(path);
  Results results(folder / results_name, file.plan);
  return {folder, std::move(file), std::move(results)};
}

}  // namespace coppice::study

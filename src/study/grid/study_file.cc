#include "study/grid/study_file.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "engine/access.h"
#include "kernels/cpu/instruction_set.h"
#include "study/files/fingerprint.h"
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

/// As the kernel names it; the machine's kind if it names none.
std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const auto value = line.find_first_not_of(" \t:", line.find(':'));
    if (value != line.npos) return line.substr(value);
  }
  utsname machine{};
  return uname(&machine) == 0 ? machine.machine : "unknown";
}

using Json = nlohmann::ordered_json;

constexpr int format_version = 3;
constexpr std::uintmax_t largest_tree_file = std::uintmax_t{64} << 20;

Json model(const std::filesystem::path& folder) {
  if (folder.empty()) return nullptr;
  return {{"path", std::filesystem::absolute(folder).lexically_normal().string()},
          {"fingerprint", fingerprint_of_folder(folder)}};
}

std::string fingerprint_in(const nlohmann::ordered_json& model) {
  return model.is_null() ? "none" : model.value("fingerprint", "");
}

// What sequoia's trees are planned for.
std::string acceptance_of(const StudyRequest& request) {
  if (request.acceptance_file.empty()) return "measured";
  Fingerprint fingerprint;
  fingerprint.add(read_file(request.acceptance_file, "acceptance vector", largest_tree_file));
  return fingerprint.text();
}

/// A model for messages, told apart by its contents.
std::string described(const Json& model) {
  if (model.is_null()) return "none";
  return cat(quote(model.value("path", "")), " (fingerprint ", fingerprint_in(model), ")");
}

std::string changed(const std::string& name, const std::string& before, const std::string& now) {
  return cat(name, ": it was ", before, ", now ", now);
}

std::vector<OraclePlan> oracle_of(const StudyRequest& request) {
  std::vector<OraclePlan> all;
  if (request.oracle_positions == 0 || request.oracle_sizes.empty()) return all;
  for (const Cell& cell : request.cells) {
    const bool known = std::ranges::any_of(all, [&](const OraclePlan& one) {
      return one.pair == cell.pair && one.temperature == cell.temperature;
    });
    if (cell.temperature > 0.0 && !known) {
      all.push_back({cell.pair, cell.temperature, request.oracle_sizes});
    }
  }
  return all;
}

std::string seeds_of(const StudyPlan& plan) {
  std::vector<std::uint64_t> seeds;
  std::string text;
  for (const Cell& cell : plan.cells) {
    if (std::ranges::find(seeds, cell.seed) != seeds.end()) continue;
    seeds.push_back(cell.seed);
    text += cat(text.empty() ? "" : ", ", cell.seed);
  }
  return text;
}

}  // namespace

Provenance provenance_of(Engine& engine, const std::string& command, const std::string& pair,
                         int jobs) {
  const Device& device = EngineAccess(engine).device();
  Provenance run;
  run.date = now_in_utc();
  run.version = version();
  run.build = COPPICE_BUILD;
  run.command = command;
  run.pair = pair;
  run.device = device.name();
  run.dtype = name_of(device.compute_dtype());
  run.kv_dtype = name_of(device.kv_dtype());
  if (!device.shares_host_memory()) run.card = device.description();
  run.cpu = cpu_model();
  run.instruction_set = cpu::name_of(cpu::instruction_set());
  run.threads = device.threads();
  run.jobs = jobs;
  return run;
}

Facts facts_of(const std::vector<Provenance>& runs) {
  Facts facts;
  const auto add = [&](const char* name, const std::function<std::string(const Provenance&)>& of) {
    std::vector<std::string> values;
    std::string all;
    for (const Provenance& run : runs) {
      const std::string value = of(run);
      if (value.empty() || std::ranges::find(values, value) != values.end()) continue;
      values.push_back(value);
      all += (all.empty() ? "" : "; ") + value;
    }
    if (!all.empty()) facts.emplace_back(name, all);
  };
  add("device", [](const Provenance& run) {
    return cat(run.device, ", ", run.dtype, ", KV ", run.kv_dtype, run.card.empty() ? "" : ", ",
               run.card);
  });
  add("CPU", [](const Provenance& run) {
    return cat(run.cpu, ", ", run.instruction_set, ", ", run.threads,
               run.threads == 1 ? " thread" : " threads");
  });
  add("jobs", [](const Provenance& run) {
    return run.jobs == 1 ? std::string()
                         : cat(run.jobs, " at once; times compare within this study only");
  });
  add("date", [](const Provenance& run) { return run.date; });
  add("coppice", [](const Provenance& run) { return cat(run.version, ", ", run.build); });
  add("command", [](const Provenance& run) { return run.command; });
  return facts;
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
                {"oracle_positions", request.oracle_positions},
                {"device", name_of(engine.device)},
                {"threads", engine.threads},
                {"cpu_dtype", name_of(engine.cpu_dtype)},
                {"kv_dtype", name_of(engine.kv_dtype)},
                {"kv_tokens", engine.kv_tokens},
                {"jobs", request.jobs},
                {"acceptance_vector", acceptance_of(request)}};
  for (const ModelPair& pair : request.all_pairs()) {
    file.pairs[pair.name] = {{"target", model(pair.target)}, {"draft", model(pair.draft)}};
  }
  for (const Cell& cell : request.cells) {
    if (cell.tree.empty() || file.trees.contains(cell.tree.string())) continue;
    // Its contents are the policy.
    Fingerprint fingerprint;
    fingerprint.add(read_file(cell.tree, "tree", largest_tree_file));
    file.trees[cell.tree.string()] = fingerprint.text();
  }
  file.prompts_file = request.prompts_file.string();
  file.plan = {request.cells, names_of(request.prompts), request.rounds, oracle_of(request)};
  return file;
}

std::string to_text(const StudyFile& file) {
  const Json json = {{"format", format_version},
                     {"fixed", file.fixed},
                     {"pairs", file.pairs},
                     {"trees", file.trees},
                     {"prompts_file", file.prompts_file},
                     {"notes", file.notes},
                     {"plan", file.plan},
                     {"runs", file.runs}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

StudyFile study_file_from(const std::string& text, const std::string& where) {
  const JsonObject parsed = parse_json_object(text, where);
  const nlohmann::json& json = *parsed;
  const nlohmann::json format = json.value("format", nlohmann::json());
  if (format != format_version) {
    throw_failure(cat(where, ": a study of format ", shown(format), ", this version reads ",
                      format_version,
                      "; continue it with the version that began it, or study in another folder"));
  }
  try {
    StudyFile file;
    // In the order of the file, which messages follow.
    const Json ordered = Json::parse(text);
    file.fixed = ordered.at("fixed");
    file.pairs = ordered.at("pairs");
    file.trees = ordered.at("trees");
    json.at("prompts_file").get_to(file.prompts_file);
    file.notes = json.value("notes", file.notes);
    json.at("plan").get_to(file.plan);
    json.at("runs").get_to(file.runs);
    return file;
  } catch (const nlohmann::json::exception&) {
    throw_failure(cat(where, ": a value is missing or of another type; restore the file, or study ",
                      "in another folder"));
  }
}

std::vector<std::string> differences(const StudyFile& before, const StudyFile& now) {
  std::vector<std::string> all;
  const auto value_in = [](const Json& object, const std::string& name) -> std::string {
    return object.contains(name) ? object[name].dump() : "not set";
  };
  for (const auto& [name, value] : now.fixed.items()) {
    if (before.fixed.contains(name) && before.fixed[name] == value) continue;
    all.push_back(changed(name, value_in(before.fixed, name), value.dump()));
  }
  for (const auto& [name, value] : before.fixed.items()) {
    if (!now.fixed.contains(name)) all.push_back(changed(name, value.dump(), "not set"));
  }
  for (const auto& [name, models] : now.pairs.items()) {
    if (!before.pairs.contains(name)) continue;
    for (const char* role : {"target", "draft"}) {
      const Json old = before.pairs[name].value(role, Json()), model = models.value(role, Json());
      if (fingerprint_in(old) == fingerprint_in(model)) continue;
      const std::string of = name.empty() ? "" : cat(" of pair ", name);
      all.push_back(changed(cat(role, of), described(old), described(model)));
    }
  }
  for (const auto& [path, fingerprint] : now.trees.items()) {
    if (!before.trees.contains(path) || before.trees[path] == fingerprint) continue;
    all.push_back(changed(cat("contents of tree ", quote(path)), before.trees[path].dump(),
                          fingerprint.dump()));
  }
  return all;
}

void add_missing(StudyFile& file, const StudyFile& other) {
  for (const auto& [name, models] : other.pairs.items()) {
    if (!file.pairs.contains(name)) file.pairs[name] = models;
  }
  for (const auto& [path, fingerprint] : other.trees.items()) {
    if (!file.trees.contains(path)) file.trees[path] = fingerprint;
  }
  for (const Provenance& run : other.runs) {
    if (std::ranges::find(file.runs, run) == file.runs.end()) {
      file.runs.push_back(run);
    }
  }
}

Facts facts_of(const StudyFile& file) {
  Facts facts;
  for (const auto& [name, models] : file.pairs.items()) {
    for (const char* role : {"target", "draft"}) {
      const Json model = models.value(role, Json());
      facts.emplace_back(name.empty() ? role : cat(name, ": ", role),
                         model.is_null() ? "none" : model.value("path", ""));
    }
  }
  const auto fixed = [&](const char* name) { return file.fixed.value(name, Json()); };
  const StudyPlan& plan = file.plan;
  facts.emplace_back("prompts", cat(plan.prompts.size(), " of ", file.prompts_file));
  if (fixed("prompt_tokens") != 0) {
    facts.emplace_back("prompt tokens", cat("at most ", fixed("prompt_tokens").dump()));
  }
  facts.emplace_back("new tokens", cat("at most ", fixed("max_new_tokens").dump(), " each"));
  facts.emplace_back("seeds", seeds_of(plan));
  facts.emplace_back("rounds", cat(plan.rounds, ", settings in random order"));
  for (const std::string& note : file.notes) facts.emplace_back("trees", note);
  for (auto& fact : facts_of(file.runs)) facts.push_back(std::move(fact));
  return facts;
}

}  // namespace coppice::study

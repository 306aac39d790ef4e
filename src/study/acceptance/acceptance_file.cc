#include "study/acceptance/acceptance_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "drafting/shape_json.h"
#include "engine/engine_impl.h"
#include "engine/tree_plan.h"
#include "study/files/fingerprint.h"
#include "study/grid/cell.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* format_name = "coppice acceptance";
constexpr int format_version = 1;
constexpr std::uint64_t largest_file = std::uint64_t{64} << 20;
constexpr const char* again = "; measure the pair again with coppice plan";

// The fields that a vector depends on, as texts by name, for comparing and naming them.
using Fields = std::vector<std::pair<const char*, std::string>>;

Fields fields_of(const MeasuredAcceptance& s) {
  // At temperature 0 both rules follow the target's argmax.
  const bool greedy = s.temperature == 0.0;
  return {{"temperature", number_text(s.temperature)},
          {"acceptance", greedy ? "greedy" : name_of(s.acceptance)},
          {"draft temperature", number_text(s.draft_temperature)},
          {"repetition penalty", number_text(s.repetition_penalty)},
          {"top-k", std::to_string(s.top_k)},
          {"top-p", number_text(s.top_p)},
          {"min-p", number_text(s.min_p)}};
}

Json json_of(const MeasuredPair::ModelFolder& model) {
  return {{"path", model.path}, {"fingerprint", model.fingerprint}};
}

Json json_of(const MeasuredAcceptance& s) {
  return {{"temperature", s.temperature},
          {"acceptance", name_of(s.acceptance)},
          {"draft_temperature", s.draft_temperature},
          {"repetition_penalty", s.repetition_penalty},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"judged", s.judged},
          {"accepted", s.accepted},
          {"acceptance_vector", s.vector}};
}

// Members of one object, each by name and of its type.
class Members {
 public:
  Members(const nlohmann::json& json, std::string where) : json_(json), where_(std::move(where)) {}

  template <typename T>
  T take(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) refuse(cat('"', name, "\" is missing"));
    try {
      return found->template get<T>();
    } catch (const nlohmann::json::exception&) {
      refuse(cat('"', name, "\" is ", shown(*found), ", which it cannot be"));
    }
  }
  Members at(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_object()) refuse(cat('"', name, "\" is missing"));
    return {*found, cat(where_, ": ", name)};
  }
  const nlohmann::json& list(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end() || !found->is_array()) refuse(cat('"', name, "\" is no list"));
    return *found;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_failure(cat(where_, ": ", what, again));
  }

 private:
  const nlohmann::json& json_;
  std::string where_;
};

MeasuredPair::ModelFolder folder_from(const Members& json) {
  return {json.take<std::string>("path"), json.take<std::string>("fingerprint")};
}

MeasuredAcceptance setting_from(const Members& json) {
  MeasuredAcceptance s;
  s.temperature = json.take<double>("temperature");
  s.draft_temperature = json.take<double>("draft_temperature");
  const auto rule = json.take<std::string>("acceptance");
  s.acceptance = Acceptance::rejection;
  if (rule == name_of(Acceptance::coupled)) {
    s.acceptance = Acceptance::coupled;
  } else if (rule != name_of(Acceptance::rejection)) {
    json.refuse(cat("\"acceptance\" is ", quote(rule), ", no acceptance rule"));
  }
  s.repetition_penalty = json.take<double>("repetition_penalty");
  s.top_k = json.take<std::int32_t>("top_k");
  s.top_p = json.take<double>("top_p");
  s.min_p = json.take<double>("min_p");
  s.judged = json.take<std::vector<std::int64_t>>("judged");
  s.accepted = json.take<std::vector<std::int64_t>>("accepted");
  s.vector = json.take<std::vector<double>>("acceptance_vector");
  std::vector<double> made;
  try {
    made = estimate_acceptance(s.accepted, s.judged);
  } catch (const Error& error) {
    json.refuse(error.what());
  }
  const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-9; };
  if (made.empty() ||
      !std::equal(made.begin(), made.end(), s.vector.begin(), s.vector.end(), same)) {
    json.refuse("\"acceptance_vector\" is not what its counts make");
  }
  return s;
}

Json json_of(const MeasuredPair& pair) {
  Json settings = Json::array();
  for (const MeasuredAcceptance& setting : pair.settings) settings.push_back(json_of(setting));
  return {{"format", format_name},
          {"format_version", format_version},
          {"version", version()},
          {"target", json_of(pair.target)},
          {"draft", json_of(pair.draft)},
          {"prompts", pair.prompts},
          {"prompt_prints", pair.prompt_prints},
          {"prompt_count", pair.prompt_count},
          {"prompt_tokens", pair.prompt_tokens},
          {"new_tokens", pair.new_tokens},
          {"seed", pair.seed},
          {"device", pair.device},
          {"dtype", pair.dtype},
          {"settings", std::move(settings)}};
}

MeasuredPair pair_from(const nlohmann::json& json, const std::string& name) {
  if (!json.is_object()) throw_failure(cat(name, " is ", shown(json), again));
  const Members members(json, name);
  const auto format = json.find("format");
  if (format == json.end() || *format != format_name) {
    members.refuse("it is no file of measured acceptance");
  }
  const auto version = members.take<int>("format_version");
  if (version != format_version) {
    members.refuse(cat("its format is version ", version, ", this program reads ", format_version));
  }
  MeasuredPair pair;
  pair.target = folder_from(members.at("target"));
  pair.draft = folder_from(members.at("draft"));
  pair.prompts = members.take<std::string>("prompts");
  pair.prompt_prints = members.take<std::vector<std::string>>("prompt_prints");
  pair.prompt_count = members.take<std::int32_t>("prompt_count");
  pair.prompt_tokens = members.take<std::int32_t>("prompt_tokens");
  pair.new_tokens = members.take<std::int32_t>("new_tokens");
  pair.seed = members.take<std::uint64_t>("seed");
  pair.device = members.take<std::string>("device");
  pair.dtype = members.take<std::string>("dtype");
  for (const nlohmann::json& setting : members.list("settings")) {
    const std::string where = cat(name, ": settings[", pair.settings.size(), "]");
    if (!setting.is_object()) throw_failure(cat(where, " is ", shown(setting), again));
    pair.settings.push_back(setting_from(Members(setting, where)));
  }
  if (pair.settings.empty()) members.refuse("it holds no settings");
  return pair;
}

std::string name_of_file(const std::filesystem::path& file) {
  return cat("acceptance vector ", quote(file.string()));
}

}  // namespace

MeasuredAcceptance acceptance_settings_of(const GenerateOptions& request) {
  MeasuredAcceptance s;
  s.temperature = request.temperature;
  s.draft_temperature = draft_temperature_of(request);
  s.acceptance = settled_acceptance(request);
  s.repetition_penalty = request.repetition_penalty;
  s.top_k = request.top_k;
  s.top_p = request.top_p;
  s.min_p = request.min_p;
  return s;
}

std::string print_of(const StudyPrompt& prompt) {
  Fingerprint print;
  print.add(prompt.text);
  for (const std::string& turn : prompt.later_turns) print.add(turn);
  for (const TokenId token : prompt.tokens) print.add_number(static_cast<std::uint64_t>(token));
  return print.text();
}

bool holds(const MeasuredPair& pair, const GenerateOptions& request) {
  const Fields asked = fields_of(acceptance_settings_of(request));
  return std::any_of(
      pair.settings.begin(), pair.settings.end(),
      [&](const MeasuredAcceptance& setting) { return fields_of(setting) == asked; });
}

std::vector<double> vector_to_plan_for(const MeasuredAcceptance& setting) {
  const auto accepted = [](std::int64_t count) { return count > 0; };
  if (std::any_of(setting.accepted.begin(), setting.accepted.end(), accepted))
    return setting.vector;
  return {1.0 / static_cast<double>(setting.judged.front() + 2)};  // the rule of succession
}

double draft_temperature_of(const GenerateOptions& request) {
  if (request.draft_temperature >= 0.0) return request.draft_temperature;
  return request.temperature == 0.0 ? default_greedy_draft_temperature : request.temperature;
}

std::string words_of(const MeasuredAcceptance& setting) {
  std::string words;
  const Fields fields = fields_of(setting);
  GenerateOptions plain;
  plain.temperature = setting.temperature;
  plain.acceptance = setting.acceptance;
  const Fields usual = fields_of(acceptance_settings_of(plain));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i > 1 && fields[i].second == usual[i].second) continue;
    if (!words.empty()) words += ", ";
    if (i != 1) words += cat(fields[i].first, " ");
    words += fields[i].second;
  }
  return words;
}

void write_measured_pair(const std::filesystem::path& file, const MeasuredPair& pair) {
  write_file(file, json_of(pair).dump(1) + "\n");
}

MeasuredPair read_measured_pair(const std::filesystem::path& file) {
  const std::string name = name_of_file(file);
  const std::string text = read_file(file, "acceptance vector", largest_file,
                                     "coppice plan measures a pair's and writes it");
  return pair_from(*parse_json_object(text, name), name);
}

void write_planned_map(const std::filesystem::path& file, const GrowMap& map,
                       const MeasuredPair& pair, const MeasuredAcceptance& setting) {
  MeasuredPair one = pair;
  one.settings = {setting};
  const Json measured = json_of(one);
  write_grow_map(file, map, &measured);
}

std::string map_mismatch(const std::filesystem::path& file, const EngineOptions& engine,
                         const GenerateOptions& request) {
  const JsonObject parsed = read_shape_file(file);
  const nlohmann::json& map = *parsed;
  const auto measured = map.find("measured");
  if (measured == map.end()) return {};
  const MeasuredPair pair = pair_from(*measured, cat(file.string(), ": measured"));
  try {
    require_pair(file, pair, engine);
    setting_for(file, pair, request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();
  }
  return {};
}

void require_pair(const std::filesystem::path& file, const MeasuredPair& pair,
                  const EngineOptions& engine) {
  const auto check = [&](const char* what, const MeasuredPair::ModelFolder& measured,
                         const std::filesystem::path& folder) {
    if (fingerprint_of_folder(folder) == measured.fingerprint) return;
    throw_usage(cat(name_of_file(file), ": measured with the ", what, " ", quote(measured.path),
                    ", this is ", quote(folder.string()),
                    " with other contents; measure this pair with coppice plan"));
  };
  check("target", pair.target, engine.target);
  check("draft", pair.draft, engine.draft);
}

std::size_t measured_on(const MeasuredPair& pair, const std::vector<StudyPrompt>& prompts) {
  const auto& known = pair.prompt_prints;
  const auto is_known = [&](const StudyPrompt& prompt) {
    return std::find(known.begin(), known.end(), print_of(prompt)) != known.end();
  };
  return static_cast<std::size_t>(std::count_if(prompts.begin(), prompts.end(), is_known));
}

void require_other_prompts(const std::filesystem::path& file, const MeasuredPair& pair,
                           const std::vector<StudyPrompt>& prompts) {
  const std::size_t shared = measured_on(pair, prompts);
  if (shared == 0) return;
  throw_usage(cat(name_of_file(file), ": measured on ", shared, " of the ", prompts.size(),
                  " prompts that are studied; measure it on others, such as those that the target "
                  "writes (coppice plan "
                  "without --prompts)"));
}

const MeasuredAcceptance& setting_for(const std::filesystem::path& file, const MeasuredPair& pair,
                                      const GenerateOptions& request) {
  const MeasuredAcceptance asked = acceptance_settings_of(request);
  std::string held;
  for (const MeasuredAcceptance& setting : pair.settings) {
    if (fields_of(setting) == fields_of(asked)) return setting;
    held += cat(held.empty() ? "" : "; ", words_of(setting));
  }
  throw_usage(cat(name_of_file(file), ": it has none for ", words_of(asked), " (it has: ", held,
                  "); measure it with coppice plan --temperatures ",
                  number_text(request.temperature), " --acceptance ", name_of(asked.acceptance)));
}

}  // namespace coppice::study

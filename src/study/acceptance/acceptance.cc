#include "study/acceptance/acceptance.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/fingerprint.h"
#include "base/json_file.h"
#include "base/judged_children.h"
#include "base/remedy.h"
#include "drafting/shape_json.h"
#include "engine/access.h"
#include "engine/check_speculation.h"
#include "study/figures/text.h"
#include "study/files/members.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* acceptance_format = "coppice acceptance";
constexpr int acceptance_version = 1;
constexpr std::uint64_t largest_acceptance_file = std::uint64_t{64} << 20;
constexpr const char* again = "measure the pair again with coppice plan";

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

Json json_of(const MeasuredPair& pair) {
  Json json = {{"format", acceptance_format},
               {"format_version", acceptance_version},
               {"version", version()}};
  to_json(json, pair);
  return json;
}

// Throws Error(failure) for what no measurement makes; `json` is what `s` was read from.
void check(const nlohmann::json& json, const MeasuredAcceptance& s) {
  // What is none of its names is read as the first.
  const nlohmann::json& rule = json["acceptance"];
  if (rule != name_of(s.acceptance)) {
    throw_failure(cat("\"acceptance\" is ", shown(rule), ", no acceptance rule"));
  }
  const std::vector<double> made = estimate_acceptance(s.accepted, s.judged);
  const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-9; };
  if (made.empty() || !std::ranges::equal(made, s.acceptance_vector, same)) {
    throw_failure("\"acceptance_vector\" is not what its counts make");
  }
}

// `where` is what messages begin with.
MeasuredPair pair_from(const nlohmann::json& json, const std::string& where) try {
  if (!json.is_object()) throw_failure(cat("it is ", shown(json)));
  if (json.value("format", nlohmann::json()) != acceptance_format) {
    throw_failure("it is no file of measured acceptance");
  }
  const nlohmann::json version = json.value("format_version", nlohmann::json());
  if (version != acceptance_version) {
    throw_failure(
        cat("its format is version ", shown(version), ", this program reads ", acceptance_version));
  }
  auto pair = json.get<MeasuredPair>();
  if (pair.settings.empty()) throw_failure("it holds no settings");
  for (std::size_t i = 0; i < pair.settings.size(); ++i) {
    try {
      check(json["settings"][i], pair.settings[i]);
    } catch (const Error& error) {
      throw_failure(cat("settings[", i, "]: ", error.what()));
    }
  }
  return pair;
} catch (const Error& error) {
  throw_failure(with_remedy(cat(where, ": ", error.what()), again));
}

std::string name_of_file(const std::filesystem::path& file) {
  return cat("acceptance vector ", quote(file.string()));
}

constexpr std::int32_t most_layers = 4;

}  // namespace

MeasuredAcceptance acceptance_settings_of(const GenerateOptions& request) {
  MeasuredAcceptance s;
  s.temperature = request.sampling.temperature;
  s.draft_temperature = first_draft_temperature(request);
  s.acceptance = settled_acceptance(request);
  s.repetition_penalty = request.sampling.repetition_penalty;
  s.top_k = request.sampling.top_k;
  s.top_p = request.sampling.top_p;
  s.min_p = request.sampling.min_p;
  return s;
}

const MeasuredAcceptance* find_setting(const MeasuredPair& pair, const GenerateOptions& request) {
  const Fields asked = fields_of(acceptance_settings_of(request));
  const auto found = std::ranges::find(pair.settings, asked, fields_of);
  return found == pair.settings.end() ? nullptr : &*found;
}

std::vector<double> vector_to_plan_for(const MeasuredAcceptance& setting) {
  const auto accepted = [](std::int64_t count) { return count > 0; };
  if (std::ranges::any_of(setting.accepted, accepted)) return setting.acceptance_vector;
  return {1.0 / static_cast<double>(setting.judged.front() + 2)};  // the rule of succession
}

std::string words_of(const MeasuredAcceptance& setting) {
  std::string words;
  const Fields fields = fields_of(setting);
  GenerateOptions plain;
  plain.sampling.temperature = setting.temperature;
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
  const std::string text = read_file(file, "acceptance vector", largest_acceptance_file,
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
    return std::ranges::find(known, print_of(prompt)) != known.end();
  };
  return static_cast<std::size_t>(std::ranges::count_if(prompts, is_known));
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

std::string words_of(const std::vector<MeasuredAcceptance>& settings) {
  std::string words;
  for (const MeasuredAcceptance& one : settings) {
    words += cat(words.empty() ? "" : "; ", words_of(one));
  }
  return words;
}

const MeasuredAcceptance& setting_for(const std::filesystem::path& file, const MeasuredPair& pair,
                                      const GenerateOptions& request) {
  if (const MeasuredAcceptance* setting = find_setting(pair, request)) return *setting;
  throw_usage(cat(name_of_file(file), ": it has none for ",
                  words_of(acceptance_settings_of(request)), " (it has: ", words_of(pair.settings),
                  "); measure it with these settings (coppice plan --help)"));
}

void RankCounts::add(const TokenTree& tree, std::span<const std::int32_t> path) {
  for_each_judged(tree, path, false, [&](std::int32_t node, bool is_accepted) {
    const auto rank = static_cast<std::size_t>(tree.rank[node]);
    if (judged.size() <= rank) {
      judged.resize(rank + 1, 0);
      accepted.resize(rank + 1, 0);
    }
    ++judged[rank];
    accepted[rank] += is_accepted ? 1 : 0;
  });
}

std::optional<MeasuredAcceptance> measure_acceptance(Engine& engine,
                                                     const AcceptanceRequest& request) {
  GenerateOptions options = whole_text(request.sampling, request.new_tokens);
  // Many children of the root, each with a chain below: after an accepted child the next node is
  // judged as well. Roots alone are no fair sample of a text, for all stand behind bonus tokens.
  const std::int32_t layers =
      EngineAccess(engine).options().max_tree_size / std::max(1, request.ranks);
  SpecInferWidths chains;
  chains.widths.assign(static_cast<std::size_t>(std::clamp(layers, 1, most_layers)), 1);
  chains.widths.front() = request.ranks;
  options.speculation = std::move(chains);
  RankCounts counts;
  const Observed observed(engine, [&](const StepView& view) {
    if (view.is_step() && view.tree.size() > 0) counts.add(view.tree, view.verdict.path);
  });
  bool stopped = false;
  double written = 0.0;
  const double all = static_cast<double>(request.prompts.size()) * request.new_tokens;
  const auto goes_on = [&](const Piece& piece) {
    stopped = stopped || request.stopped();
    written += static_cast<double>(piece.tokens.size());
    if (!stopped) request.tell("measuring acceptance by rank", std::min(written, all), all);
    return !stopped;
  };
  for (std::size_t p = 0; p < request.prompts.size(); ++p) {
    options.stream = p;
    engine.generate(request.prompts[p], options, goes_on);
    if (stopped) return std::nullopt;
    written = static_cast<double>(p + 1) * request.new_tokens;  // texts may end early
    request.tell("measuring acceptance by rank", written, all);
  }
  // No child of a later rank was ever taken: nothing is to be had there.
  while (!counts.accepted.empty() && counts.accepted.back() == 0 && counts.accepted.size() > 1) {
    counts.accepted.pop_back();
    counts.judged.pop_back();
  }
  if (counts.judged.empty()) {
    throw_failure("acceptance: no tree was judged; give longer texts (--max-new-tokens)");
  }
  MeasuredAcceptance measured = acceptance_settings_of(options);
  measured.acceptance_vector = estimate_acceptance(counts.accepted, counts.judged);
  measured.judged = std::move(counts.judged);
  measured.accepted = std::move(counts.accepted);
  return measured;
}

bool measure_settings(Engine& engine, AcceptanceRequest request,
                      const std::vector<GenerateOptions>& settings, MeasuredPair& pair) {
  pair.prompt_count = static_cast<std::int32_t>(request.prompts.size());
  pair.new_tokens = request.new_tokens;
  double before = 0.0;  // settings done
  const StudyHooks all = request;
  request.progress = [&](const std::string& what, double done) {
    all.tell(what, before + done, static_cast<double>(settings.size()));
  };
  for (const GenerateOptions& setting : settings) {
    request.sampling = setting;
    auto measured = measure_acceptance(engine, request);
    if (!measured) return false;
    pair.settings.push_back(*std::move(measured));
    before += 1.0;
  }
  return true;
}

MeasuredPair describe_pair(Engine& engine) {
  const EngineAccess access(engine);
  const auto folder = [](const std::filesystem::path& path) {
    return MeasuredPair::ModelFolder{std::filesystem::absolute(path).lexically_normal().string(),
                                     fingerprint_of_folder(path)};
  };
  MeasuredPair pair;
  pair.target = folder(access.options().target);
  pair.draft = folder(access.options().draft);
  pair.device = access.device().name();
  pair.dtype = compute_name(*access.target().model);
  return pair;
}

CalibrationPrompts calibration_prompts(Engine& engine, const std::filesystem::path& file,
                                       const std::vector<StudyPrompt>& spare,
                                       std::int32_t most_tokens, std::uint64_t seed) {
  constexpr std::int32_t usual_tokens = 64;
  const std::int32_t room = room_of(engine, true).tokens;
  CalibrationPrompts prompts;
  prompts.new_tokens = std::max(1, std::min(usual_tokens, room / 4));
  if (spare.size() < static_cast<std::size_t>(calibration_count)) {
    prompts.most_tokens = prompts.new_tokens;
    prompts.tokens = draw_prompts(engine, calibration_count, prompts.most_tokens, seed);
    return prompts;
  }
  const std::int32_t fits = std::max(1, room - 2 * prompts.new_tokens);  // and a tree
  PromptUse use;
  use.most = most_tokens > 0 ? std::min(most_tokens, fits) : fits;
  use.new_tokens = prompts.new_tokens;
  prompts.most_tokens = use.most;
  prompts.of_file = spread(spare, calibration_count);
  prompts.tokens = to_tokens(engine, file, prompts.of_file, use);
  return prompts;
}

}  // namespace coppice::study

#include "study/grid/result.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Components& c) {
  return {{"prefill", c.prefill}, {"draft", c.draft},
          {"drawing", c.drawing}, {"construction", c.construction},
          {"verify", c.verify},   {"judging", c.judging},
          {"other", c.other}};
}

double seconds_in(const nlohmann::json& json, const char* name) {
  const auto seconds = json.at(name).get<double>();
  if (!(seconds >= 0.0) || !std::isfinite(seconds)) {
    throw_failure(cat("seconds of ", name, " are out of range"));
  }
  return seconds;
}

std::int32_t count_in(const nlohmann::json& json, const char* name) {
  const nlohmann::json& value = json.at(name);
  const bool whole = value.is_number_unsigned();
  const auto count = whole ? value.get<std::uint64_t>() : 0;
  if (!whole || count > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    throw_failure(cat(name, " is no count"));
  }
  return static_cast<std::int32_t>(count);
}

Json json_of(const Turn& turn) {
  return {{"prompt_tokens", turn.prompt_tokens},
          {"prefill_tokens", turn.prefill_tokens},
          {"tokens", turn.tokens},
          {"text", turn.text},
          {"finish_reason", turn.finish_reason}};
}

Turn turn_from(const nlohmann::json& json) {
  Turn turn;
  turn.prompt_tokens = count_in(json, "prompt_tokens");
  turn.prefill_tokens = count_in(json, "prefill_tokens");
  turn.tokens = json.at("tokens").get<std::vector<TokenId>>();
  turn.text = json.at("text").get<std::string>();
  turn.finish_reason = json.at("finish_reason").get<std::string>();
  return turn;
}

bool is_consistent(const Result& result) {
  if (result.turns.empty() || result.tree_sizes.size() != result.accepted.size()) return false;
  for (const Turn& turn : result.turns) {
    if (turn.tokens.size() < static_cast<std::size_t>(turn.prefill_tokens)) return false;
  }
  for (std::size_t i = 0; i < result.accepted.size(); ++i) {
    if (result.accepted[i] < 0 || result.accepted[i] > result.tree_sizes[i]) return false;
  }
  return true;
}

std::int64_t sum_of(const std::vector<std::int32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

Components& Components::operator+=(const Components& other_components) {
  const Components& c = other_components;
  prefill += c.prefill;
  draft += c.draft;
  drawing += c.drawing;
  construction += c.construction;
  verify += c.verify;
  judging += c.judging;
  other += c.other;
  return *this;
}

std::int64_t Result::tokens() const {
  std::int64_t sum = 0;
  for (const Turn& turn : turns) sum += static_cast<std::int64_t>(turn.tokens.size());
  return sum;
}

std::int64_t Result::decoded() const {
  std::int64_t sum = tokens();
  for (const Turn& turn : turns) sum -= turn.prefill_tokens;
  return sum;
}

std::int64_t Result::drafted() const { return sum_of(tree_sizes); }
std::int64_t Result::accepted_drafts() const { return sum_of(accepted); }

Json to_json(const Result& result, const std::string& prompt_id) {
  Json json;
  json["cell"] = result.cell;
  json["prompt"] = prompt_id;
  json["round"] = result.round;
  json["turns"] = Json::array();
  for (const Turn& turn : result.turns) json["turns"].push_back(json_of(turn));
  json["draft_passes"] = result.draft_passes;
  json["seconds"] = json_of(result.seconds);
  json["nodes"] = to_json(result.nodes);
  json["tree_sizes"] = result.tree_sizes;
  json["accepted"] = result.accepted;
  json["device"] = result.device;
  json["dtype"] = result.dtype;
  json["run"] = result.run;
  return json;
}

Result result_from(const nlohmann::json& json) try {
  Result result;
  result.cell = json.at("cell").get<std::string>();
  result.round = count_in(json, "round");
  for (const auto& turn : json.at("turns")) result.turns.push_back(turn_from(turn));
  result.draft_passes = count_in(json, "draft_passes");
  const auto& seconds = json.at("seconds");
  result.seconds = {seconds_in(seconds, "prefill"), seconds_in(seconds, "draft"),
                    seconds_in(seconds, "drawing"), seconds_in(seconds, "construction"),
                    seconds_in(seconds, "verify"),  seconds_in(seconds, "judging"),
                    seconds_in(seconds, "other")};
  result.nodes = node_counts_from(json.at("nodes"));
  result.tree_sizes = json.at("tree_sizes").get<std::vector<std::int32_t>>();
  result.accepted = json.at("accepted").get<std::vector<std::int32_t>>();
  result.device = json.at("device").get<std::string>();
  result.dtype = json.at("dtype").get<std::string>();
  result.run = json.value("run", "");  // results of coppice 0.1 do not say
  if (!is_consistent(result)) throw_failure("its counts contradict each other");
  return result;
} catch (const nlohmann::json::exception&) {
  throw_failure("a value is missing or of another type");
}

}  // namespace coppice::study

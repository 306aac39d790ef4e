#include "study/record.h"

#include <cmath>
#include <nlohmann/json.hpp>

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

std::int64_t count_in(const nlohmann::json& json, const char* name) {
  const nlohmann::json& value = json.at(name);
  if (!value.is_number_integer()) throw_failure(cat(name, " is no whole number"));
  const auto count = value.get<std::int64_t>();
  if (count < 0) throw_failure(cat(name, " is negative"));
  return count;
}

// What is kept step by step, if anything is, against the sums.
bool steps_add_up(const Record& record) {
  if (record.tree_sizes.size() != record.accepted.size()) return false;
  if (record.tree_sizes.empty()) return true;
  std::int64_t drafted = 0, good = record.steps;
  for (std::size_t i = 0; i < record.accepted.size(); ++i) {
    if (record.accepted[i] < 0 || record.accepted[i] > record.tree_sizes[i]) return false;
    drafted += record.tree_sizes[i];
    good += record.accepted[i];
  }
  return drafted == record.drafted && good == record.judged_good;
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

std::string to_line(const Record& record) {
  Json json;
  json["cell"] = record.cell;
  json["prompt"] = record.prompt;
  json["kind"] = record.kind;
  json["prompt_tokens"] = record.prompt_tokens;
  json["tokens"] = record.tokens;
  json["prefill_tokens"] = record.prefill_tokens;
  json["finish_reason"] = record.finish_reason;
  json["steps"] = record.steps;
  json["judged_good"] = record.judged_good;
  json["drafted"] = record.drafted;
  json["draft_passes"] = record.draft_passes;
  json["seconds"] = json_of(record.seconds);
  json["nodes"] = to_json(record.nodes);
  json["tree_sizes"] = record.tree_sizes;
  json["accepted"] = record.accepted;
  json["device"] = record.device;
  json["dtype"] = record.dtype;
  return json.dump();
}

Record record_from(const nlohmann::json& json) try {
  Record record;
  record.cell = json.at("cell").get<std::string>();
  const std::int64_t prompt = count_in(json, "prompt");
  record.prompt = static_cast<std::int32_t>(prompt);
  if (record.prompt != prompt) throw_failure("its prompt is out of range");
  record.kind = json.at("kind").get<std::string>();
  record.prompt_tokens = json.at("prompt_tokens").get<std::int32_t>();
  record.tokens = count_in(json, "tokens");
  record.prefill_tokens = count_in(json, "prefill_tokens");
  record.finish_reason = json.at("finish_reason").get<std::string>();
  record.steps = count_in(json, "steps");
  record.judged_good = count_in(json, "judged_good");
  record.drafted = count_in(json, "drafted");
  record.draft_passes = count_in(json, "draft_passes");
  const auto& seconds = json.at("seconds");
  record.seconds = {seconds_in(seconds, "prefill"), seconds_in(seconds, "draft"),
                    seconds_in(seconds, "drawing"), seconds_in(seconds, "construction"),
                    seconds_in(seconds, "verify"),  seconds_in(seconds, "judging"),
                    seconds_in(seconds, "other")};
  record.nodes = node_counts_from(json.at("nodes"));
  record.tree_sizes = json.at("tree_sizes").get<std::vector<std::int32_t>>();
  record.accepted = json.at("accepted").get<std::vector<std::int32_t>>();
  record.device = json.at("device").get<std::string>();
  record.dtype = json.at("dtype").get<std::string>();
  if (record.judged_good < record.steps || record.decoded() < 0 || !steps_add_up(record)) {
    throw_failure("its counts contradict each other");
  }
  return record;
} catch (const nlohmann::json::exception&) {
  throw_failure("a value is missing or of another type");
}

}  // namespace coppice::study

#include "study/grid/results.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_file.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

std::string oracle_name(const std::string& pair, double temperature, std::int32_t size) {
  return cat("oracle size=", size, " temperature=", number_text(temperature),
             pair.empty() ? "" : " pair=", pair);
}

OracleResult oracle_from(const nlohmann::json& json) try {
  OracleResult result;
  const auto& oracle = json.at("oracle");
  result.pair = oracle.at("pair").get<std::string>();
  result.temperature = oracle.at("temperature").get<double>();
  result.walk = {oracle.at("size").get<std::int32_t>(), oracle.at("positions").get<std::int32_t>(),
                 oracle.at("expected").get<double>()};
  const OracleWalk& walk = result.walk;
  if (walk.size < 1 || walk.positions < 0 || !(walk.expected >= 0.0) ||
      !std::isfinite(walk.expected)) {
    throw_failure("the oracle's walk is out of range");
  }
  return result;
} catch (const nlohmann::json::exception&) {
  throw_failure("a value is missing or of another type");
}

Json to_json(const OracleResult& result, const std::string& prompt_id) {
  return {{"oracle",
           {{"pair", result.pair},
            {"temperature", result.temperature},
            {"size", result.walk.size},
            {"positions", result.walk.positions},
            {"expected", result.walk.expected}}},
          {"prompt", prompt_id}};
}

std::string prompt_id_in(const nlohmann::json& json) {
  const auto id = json.find("prompt");
  if (id == json.end() || !id->is_string()) throw_failure("it names no prompt");
  return id->get<std::string>();
}

}  // namespace

Results::Results(ResultsStore store, const StudyPlan& plan)
    : store_(std::move(store)), plan_(plan) {
  read(store_->file(), store_->lines());
}

Results::Results(const std::filesystem::path& file, const StudyPlan& plan) : plan_(plan) {
  read(file, read_results(file));
}

void Results::read(const std::filesystem::path& file, const std::vector<StoredLine>& lines) {
  for (const StoredLine& line : lines) {
    try {
      read(line);
    } catch (const Error& error) {
      throw_failure(cat(file.string(), " line ", line.number, ": no result: ", error.what(),
                        "; delete the line, and its result is measured again"));
    }
  }
}

void Results::read(const StoredLine& line) {
  const JsonObject parsed = parse_json_object(line.text, "the line");
  const nlohmann::json& json = *parsed;
  const std::string id = prompt_id_in(json);
  const auto prompt = std::find_if(plan_.prompts.begin(), plan_.prompts.end(),
                                   [&](const PromptName& one) { return one.id == id; });
  const auto place = static_cast<std::int32_t>(prompt - plan_.prompts.begin());
  bool planned = prompt != plan_.prompts.end();
  const auto note = [&](const std::string& name, std::int32_t round) {
    if (!done_.emplace(name, id, round).second) throw_failure("it stands there twice");
    if (!planned) ++others_;
  };
  if (json.contains("oracle")) {
    OracleResult result = oracle_from(json);
    result.prompt = place;
    const std::int32_t size = result.walk.size;
    planned = planned && std::any_of(plan_.oracle.begin(), plan_.oracle.end(), [&](const auto& o) {
                return o.pair == result.pair && o.temperature == result.temperature &&
                       std::find(o.sizes.begin(), o.sizes.end(), size) != o.sizes.end();
              });
    note(oracle_name(result.pair, result.temperature, size), 0);
    if (planned) oracle_.push_back(std::move(result));
    return;
  }
  Result result = result_from(json);
  result.prompt = place;
  planned = planned && result.round < plan_.rounds &&
            std::any_of(plan_.cells.begin(), plan_.cells.end(),
                        [&](const Cell& cell) { return cell.key() == result.cell; });
  note(result.cell, result.round);
  if (planned) results_.push_back(std::move(result));
}

bool Results::has(const Cell& cell, std::int32_t prompt, std::int32_t round) const {
  return done_.contains({cell.key(), plan_.prompts[static_cast<std::size_t>(prompt)].id, round});
}
bool Results::has_oracle(const std::string& pair, double temperature, std::int32_t size,
                         std::int32_t prompt) const {
  return done_.contains({oracle_name(pair, temperature, size),
                         plan_.prompts[static_cast<std::size_t>(prompt)].id, 0});
}

void Results::add(Result result) {
  const std::string& id = plan_.prompts[static_cast<std::size_t>(result.prompt)].id;
  store_->append(study::to_json(result, id).dump());
  done_.emplace(result.cell, id, result.round);
  results_.push_back(std::move(result));
}

void Results::add(OracleResult result) {
  const std::string& id = plan_.prompts[static_cast<std::size_t>(result.prompt)].id;
  store_->append(to_json(result, id).dump());
  done_.emplace(oracle_name(result.pair, result.temperature, result.walk.size), id, 0);
  oracle_.push_back(std::move(result));
}

}  // namespace coppice::study

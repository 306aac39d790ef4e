#include "study/results.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_file.h"

namespace coppice::study {
namespace {

std::string oracle_name(double temperature) {
  return cat("oracle temperature=", number_text(temperature));
}

OracleRecord oracle_from(const nlohmann::json& json) try {
  OracleRecord record;
  record.temperature = json.at("oracle_temperature").get<double>();
  record.prompt = json.at("prompt").get<std::int32_t>();
  record.kind = json.at("kind").get<std::string>();
  for (const auto& walk : json.at("walks")) {
    record.walks.push_back({walk.at("size").get<std::int32_t>(),
                            walk.at("positions").get<std::int32_t>(),
                            walk.at("expected").get<double>()});
    const OracleWalk& read = record.walks.back();
    if (read.size < 1 || read.positions < 0 || !(read.expected >= 0.0) ||
        !std::isfinite(read.expected)) {
      throw_failure("the oracle's walk is out of range");
    }
  }
  return record;
} catch (const nlohmann::json::exception&) {
  throw_failure("a value is missing or of another type");
}

}  // namespace

std::string to_line(const OracleRecord& record) {
  nlohmann::ordered_json json;
  json["oracle_temperature"] = record.temperature;
  json["prompt"] = record.prompt;
  json["kind"] = record.kind;
  json["walks"] = nlohmann::ordered_json::array();
  for (const OracleWalk& walk : record.walks) {
    json["walks"].push_back(
        {{"size", walk.size}, {"positions", walk.positions}, {"expected", walk.expected}});
  }
  return json.dump();
}

Results::Results(ResultsStore store, const StudyPlan& plan) : store_(std::move(store)) {
  std::set<std::string> names;
  for (const Cell& cell : plan.cells) names.insert(cell.key());
  for (const double temperature : plan.oracle_temperatures) names.insert(oracle_name(temperature));
  for (const ResultsStore::Line& line : store_.lines()) {
    const std::string where = cat(store_.file().string(), " line ", line.number);
    const auto refuse = [&](const std::string& why) {
      throw_failure(cat(where, ": not a result of this study: ", why,
                        "; mend or remove the line, or study in another folder"));
    };
    std::string name;
    std::int32_t prompt = 0;
    try {
      const JsonObject parsed = parse_json_object(line.text, "the line");
      const nlohmann::json& json = *parsed;
      if (json.contains("oracle_temperature")) {
        oracle_.push_back(oracle_from(json));
        name = oracle_name(oracle_.back().temperature);
        prompt = oracle_.back().prompt;
      } else {
        records_.push_back(record_from(json));
        name = records_.back().cell;
        prompt = records_.back().prompt;
      }
    } catch (const Error& error) {
      refuse(error.what());
    }
    if (!names.contains(name)) refuse(cat("no cell is named ", quote(name)));
    if (prompt < 0 || prompt >= plan.prompts) refuse(cat("there is no prompt ", prompt));
    if (!done_.emplace(name, prompt).second) refuse("it stands there twice");
  }
}

bool Results::has(const Cell& cell, std::int32_t prompt) const {
  return done_.contains({cell.key(), prompt});
}
bool Results::has_oracle(double temperature, std::int32_t prompt) const {
  return done_.contains({oracle_name(temperature), prompt});
}

void Results::add(Record record) {
  store_.append(to_line(record));
  done_.emplace(record.cell, record.prompt);
  records_.push_back(std::move(record));
}

void Results::add(OracleRecord record) {
  store_.append(to_line(record));
  done_.emplace(oracle_name(record.temperature), record.prompt);
  oracle_.push_back(std::move(record));
}

}  // namespace coppice::study

#include "study/grid/results.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "study/files/fingerprint.h"
#include "study/files/members.h"
#include "study/number_text.h"

namespace coppice::study {
namespace {

constexpr std::string_view before_check = ",\"check\":\"", after_check = "\"}";
constexpr std::size_t check_digits = 16;
constexpr std::size_t check_bytes = before_check.size() + check_digits + after_check.size();

std::string check_of(std::string_view text) {
  Fingerprint fingerprint;
  fingerprint.add(text);
  return fingerprint.text();
}

/// The object without its checksum. nullopt where that is missing or another.
std::optional<std::string> checked(std::string_view line) {
  if (line.size() <= check_bytes) return std::nullopt;
  const std::string_view text = line.substr(0, line.size() - check_bytes);
  std::string object(text);
  object += '}';
  if (with_checksum(object) != line) return std::nullopt;
  return object;
}

std::string oracle_name(const std::string& pair, double temperature, std::int32_t size) {
  return cat("oracle size=", size, " temperature=", number_text(temperature),
             pair.empty() ? "" : " pair=", pair);
}

OracleResult oracle_from(const nlohmann::json& json) try {
  const auto result = json.at("oracle").get<OracleResult>();
  const OracleWalk& walk = result.walk;
  if (walk.size < 1 || walk.positions < 0 || !(walk.expected >= 0.0) ||
      !std::isfinite(walk.expected)) {
    throw_failure("the oracle's walk is out of range");
  }
  return result;
} catch (const nlohmann::json::exception&) {
  throw_failure("a value is missing or of another type");
}

}  // namespace

std::string with_checksum(std::string_view object) {
  const std::string_view text = object.substr(0, object.size() - 1);
  return cat(text, before_check, check_of(text), after_check);
}

std::vector<StoredLine> read_results(const std::filesystem::path& file,
                                     std::uintmax_t* whole_bytes) {
  const std::string text = read_file(file, "results", std::numeric_limits<std::uintmax_t>::max());
  std::vector<StoredLine> lines;
  std::string_view rest = text;
  const auto refuse = [&](std::int64_t number) {
    throw_failure(cat(file.string(), " line ", number,
                      ": its checksum is not that of the line, which was changed after it was "
                      "written; restore the file, or delete the line, and its result is measured "
                      "again"));
  };
  std::int64_t number = 1;
  for (;; ++number) {
    const auto end = rest.find('\n');
    if (end == rest.npos) break;
    std::optional<std::string> object = checked(rest.substr(0, end));
    if (!object) refuse(number);
    lines.push_back({number, std::move(*object)});
    rest.remove_prefix(end + 1);
  }
  // A whole line and something else in place of its end: that byte was changed, nothing was torn.
  if (!rest.empty() && checked(rest.substr(0, rest.size() - 1))) refuse(number);
  if (whole_bytes != nullptr) *whole_bytes = text.size() - rest.size();
  return lines;
}

Results::Results(const std::filesystem::path& file, const StudyPlan& plan, Access access)
    : plan_(plan) {
  std::error_code ignored;
  const bool is_new = access == Access::append && !std::filesystem::exists(file, ignored);
  FileHandle handle = access == Access::append ? open_file(file, O_RDWR | O_CREAT) : FileHandle();
  if (is_new) sync_folder(file.parent_path());
  std::uintmax_t whole_bytes = 0;
  const std::vector<StoredLine> lines = read_results(file, &whole_bytes);
  if (access == Access::append) file_.emplace(file, std::move(handle), whole_bytes);
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
  if (!json.contains("prompt") || !json["prompt"].is_string()) throw_failure("it names no prompt");
  const auto id = json["prompt"].get<std::string>();
  const auto prompt = std::ranges::find(plan_.prompts, id, &PromptName::id);
  const auto place = static_cast<std::int32_t>(prompt - plan_.prompts.begin());
  // Keeps a result that the plan asks for.
  const auto note = [&](auto& kept, auto result, const std::string& name, std::int32_t round,
                        const auto& is_planned) {
    if (!done_.emplace(name, id, round).second) throw_failure("it stands there twice");
    if (prompt == plan_.prompts.end() || !is_planned(result)) {
      ++others_;
      return;
    }
    result.prompt = place;
    kept.push_back(std::move(result));
  };
  if (json.contains("oracle")) {
    OracleResult result = oracle_from(json);
    const std::string name = oracle_name(result.pair, result.temperature, result.walk.size);
    note(oracle_, std::move(result), name, 0, [&](const OracleResult& one) {
      return std::ranges::any_of(plan_.oracle, [&](const OraclePlan& o) {
        return o.pair == one.pair && o.temperature == one.temperature &&
               std::ranges::find(o.sizes, one.walk.size) != o.sizes.end();
      });
    });
    return;
  }
  Result result = result_from(json);
  const std::string name = result.cell;
  const std::int32_t round = result.round;
  note(results_, std::move(result), name, round, [&](const Result& one) {
    return one.round < plan_.rounds && std::ranges::any_of(plan_.cells, [&](const Cell& cell) {
             return cell.key() == one.cell;
           });
  });
}

bool Results::has(const Cell& cell, std::int32_t prompt, std::int32_t round) const {
  return done_.contains({cell.key(), prompt_id(prompt), round});
}
bool Results::has_oracle(const std::string& pair, double temperature, std::int32_t size,
                         std::int32_t prompt) const {
  return done_.contains({oracle_name(pair, temperature, size), prompt_id(prompt), 0});
}

void Results::append(std::string_view object) {
  file_->append(with_checksum(object) + '\n');
  file_->sync();
}

void Results::add(Result result) {
  append(to_json(result, prompt_id(result.prompt)).dump());
  done_.emplace(result.cell, prompt_id(result.prompt), result.round);
  results_.push_back(std::move(result));
}

void Results::add(OracleResult result) {
  const std::string& id = prompt_id(result.prompt);
  append(nlohmann::ordered_json{{"oracle", result}, {"prompt", id}}.dump());
  done_.emplace(oracle_name(result.pair, result.temperature, result.walk.size), id, 0);
  oracle_.push_back(std::move(result));
}

}  // namespace coppice::study

#include "study/grid/results.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "study/files/fingerprint.h"
#include "study/files/members.h"

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

bool has_key(const auto& cells, const std::string& key) {
  return std::ranges::any_of(cells, [&](const auto& cell) { return cell.key() == key; });
}

void require_count(const char* name, std::int64_t count) {
  if (count < 0) throw_failure(cat(name, " is no count"));
}

bool is_consistent(const Result& result) {
  if (result.turns.empty() || result.tree_sizes.size() != result.accepted.size()) return false;
  for (const Turn& turn : result.turns) {
    if (turn.tokens.size() < static_cast<std::size_t>(turn.prefill_tokens)) return false;
  }
  for (std::size_t i = 0; i < result.accepted.size(); ++i) {
    if (result.accepted[i] < 0 || result.accepted[i] > result.tree_sizes[i]) return false;
  }
  return result.nodes.is_sound();
}

std::int64_t sum_of(const std::vector<std::int32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
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
  const JsonObject json = parse_json_object(line.text, "the line");
  // Keeps what the plan asks for.
  const auto keep = [&](auto& kept, auto one, std::int32_t round, const auto& cells) {
    if (!done_.emplace(one.cell, one.prompt, round).second) throw_failure("it stands there twice");
    const bool planned =
        round < plan_.rounds && has_key(cells, one.cell) &&
        std::ranges::find(plan_.prompts, one.prompt, &PromptName::id) != plan_.prompts.end();
    if (planned) {
      kept.push_back(std::move(one));
    } else {
      ++others_;
    }
  };
  if (json->contains("expected")) {
    auto walk = json->get<OracleWalk>();
    if (walk.positions < 0 || !(walk.expected >= 0.0) || !std::isfinite(walk.expected)) {
      throw_failure("the oracle's walk is out of range");
    }
    keep(oracle_, std::move(walk), 0, plan_.oracle);
    return;
  }
  auto result = json->get<Result>();
  check(result);
  const std::int32_t round = result.round;
  keep(results_, std::move(result), round, plan_.cells);
}

template <typename One>
void Results::append(std::vector<One>& all, One one, std::int32_t round) {
  file_->append(with_checksum(nlohmann::ordered_json(one).dump()) + '\n');
  file_->sync();
  done_.emplace(one.cell, one.prompt, round);
  all.push_back(std::move(one));
}

void Results::add(Result result) {
  const std::int32_t round = result.round;
  append(results_, std::move(result), round);
}

void Results::add(OracleWalk walk) { append(oracle_, std::move(walk), 0); }

double Components::decode() const {
  double seconds = 0.0;
  for (const auto& [name, part] : of_step()) seconds += this->*part;
  return seconds;
}

Components& Components::operator+=(const Components& others) {
  for (const auto& [name, part] : parts) this->*part += others.*part;
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

void check(const Result& result) {
  require_count("round", result.round);
  require_count("draft_passes", result.draft_passes);
  for (const Turn& turn : result.turns) {
    require_count("prompt_tokens", turn.prompt_tokens);
    require_count("prefill_tokens", turn.prefill_tokens);
  }
  for (const auto& [name, part] : Components::parts) {
    const double seconds = result.seconds.*part;
    if (seconds >= 0.0 && std::isfinite(seconds)) continue;
    throw_failure(cat("seconds of ", name, " are out of range"));
  }
  if (!is_consistent(result)) throw_failure("its counts contradict each other");
}

}  // namespace coppice::study

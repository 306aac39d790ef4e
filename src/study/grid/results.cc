#include "study/grid/results.h"

#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <system_error>

#include "base/checked_lines.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

constexpr std::string_view cell_line_start = "{\"cell\":";

/// Throws Error(failure), one line without a place, for what no run brings.
void check(const Result& result) {
  const auto require = [](bool good) {
    if (!good) throw_failure("its counts contradict each other");
  };
  require(result.round >= 0 && result.draft_passes >= 0 && !result.turns.empty());
  require(result.tree_sizes.size() == result.accepted.size() && result.nodes.is_sound());
  require(result.kept.size() == result.accepted.size());
  for (const Turn& turn : result.turns) {
    require(turn.prompt_tokens >= 0 && turn.prefill_tokens >= 0 &&
            std::cmp_less_equal(turn.prefill_tokens, turn.tokens.size()));
  }
  for (std::size_t i = 0; i < result.accepted.size(); ++i) {
    require(0 <= result.accepted[i] && result.accepted[i] <= result.tree_sizes[i]);
    require(std::max(result.accepted[i], 1) <= result.kept[i] &&
            result.kept[i] <= result.accepted[i] + 1);
  }
  require(result.nodes.looked_up.examined <= result.looked_up &&
          result.looked_up <= result.drafted());
  for (const auto& [name, part] : Components::parts) {
    const double seconds = result.seconds.*part;
    if (seconds >= 0.0 && std::isfinite(seconds)) continue;
    throw_failure(cat("seconds of ", name, " are out of range"));
  }
}

std::int64_t sum_of(const std::vector<std::int32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

std::vector<StoredLine> read_results(const std::filesystem::path& file,
                                     std::uintmax_t* whole_bytes) {
  const std::string text = read_file(file, "results", std::numeric_limits<std::uintmax_t>::max());
  std::vector<StoredLine> lines;
  LineUses uses;
  uses.take = [&](std::int64_t number, std::string object) {
    lines.push_back({number, std::move(object)});
  };
  uses.refuse = [&](std::int64_t number, std::string_view) {
    throw_failure(cat(file.string(), " line ", number,
                      ": its checksum is not that of the line, which was changed after it was "
                      "written; restore the file, or delete the line, and its result is measured "
                      "again"));
  };
  const std::uintmax_t whole = read_checked_lines(text, uses);
  // What begins otherwise is somebody else's, and not to be cut off.
  const std::string_view torn = std::string_view(text).substr(whole);
  if (!torn.starts_with(cell_line_start.substr(0, torn.size()))) {
    uses.refuse(static_cast<std::int64_t>(lines.size()) + 1, torn);
  }
  if (whole_bytes != nullptr) *whole_bytes = whole;
  return lines;
}

Results::Results(const std::filesystem::path& file, const StudyPlan& plan, Access access)
    : plan_(plan) {
  std::error_code ignored;
  const bool is_new = access == Access::append && !std::filesystem::exists(file, ignored);
  if (access == Access::append) require_own_name(file);
  FileHandle handle =
      access == Access::append ? open_file(file, O_RDWR | O_CREAT | O_NOFOLLOW) : FileHandle();
  if (is_new) sync_folder(file.parent_path());
  std::uintmax_t whole_bytes = 0;
  const std::vector<StoredLine> lines = read_results(file, &whole_bytes);
  if (access == Access::append) file_.emplace(file, std::move(handle), whole_bytes);
  std::set<std::string> cells, prompts;
  std::set<std::tuple<std::string, std::string, std::int32_t, std::string>> known;
  for (const Cell& cell : plan_.cells) cells.insert(cell.key());
  for (const PromptName& prompt : plan_.prompts) prompts.insert(prompt.id);
  for (const StoredLine& line : lines) {
    try {
      auto result = parse_json_object(line.text, "the line")->get<Result>();
      check(result);
      done_.emplace(result.cell, result.prompt, result.round);
      const std::string run = is_plain_key(result.cell) ? result.run : "";
      if (!known.emplace(result.cell, result.prompt, result.round, run).second) {
        throw_failure("it stands there twice");
      }
      const bool planned = result.round < plan_.rounds && cells.contains(result.cell) &&
                           prompts.contains(result.prompt);
      if (planned) results_.push_back(std::move(result));
      others_ += planned ? 0 : 1;
    } catch (const Error& error) {
      throw_failure(cat(file.string(), " line ", line.number, ": no result: ", error.what(),
                        "; delete the line, and its result is measured again"));
    }
  }
}

void Results::add(Result result) {
  file_->append(with_checksum(nlohmann::ordered_json(result).dump()) + '\n');
  file_->sync();
  done_.emplace(result.cell, result.prompt, result.round);
  results_.push_back(std::move(result));
}

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
std::int64_t Result::kept_tokens() const { return sum_of(kept); }

}  // namespace coppice::study

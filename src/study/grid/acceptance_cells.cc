#include "study/grid/acceptance_cells.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "base/error.h"
#include "study/acceptance/acceptance.h"

namespace coppice::study {
namespace {

constexpr std::uint64_t calibration_seed = 1;

std::string note_of(const MeasuredAcceptance& setting, const std::string& prompts,
                    const std::filesystem::path& file) {
  std::string ranks;
  for (const double prob : setting.acceptance_vector) {
    char text[16];
    std::snprintf(text, sizeof text, " %.3f", prob);
    ranks += text;
  }
  return cat("sequoia at ", words_of(setting), ": planned for this pair's acceptance by rank,",
             ranks, " (", setting.judged.front(), " nodes, ", prompts, "; ", file.string(), ")");
}

}  // namespace

bool needs_acceptance(const Cell& cell) {
  return cell.policy == Policy::sequoia && cell.tree.empty();
}

CellAcceptance::CellAcceptance(const StudyRequest& request, const ModelPair& pair,
                               const std::filesystem::path& folder)
    : request_(request),
      name_(pair.name),
      file_(folder / (name_.empty() ? "acceptance.json" : cat("acceptance-", name_, ".json"))) {
  const bool named = !request.acceptance_file.empty();
  const auto& cells = request.cells;
  if (named && std::ranges::none_of(cells, needs_acceptance)) {
    throw_usage(
        "--acceptance-vector: it is for policy sequoia without --grow-map, which is not studied; "
        "leave it out");
  }
  if (named && request.all_pairs().size() > 1) {
    throw_usage(
        "--acceptance-vector: it is one pair's, and several are studied; leave it out, and each is "
        "measured");
  }
  if (settings().empty()) return;
  std::error_code ignored;
  if (named) file_ = request.acceptance_file;
  if (!named && !std::filesystem::exists(file_, ignored)) return;
  MeasuredPair measured = read_measured_pair(file_);
  EngineOptions models;
  models.target = pair.target;
  models.draft = pair.draft;
  require_pair(file_, measured, models);
  pair_ = std::move(measured);
  if (!named) return;  // what results are there for stays; the report says on what it was measured
  require_other_prompts(file_, *pair_, request.prompts);
  for (const GenerateOptions& setting : settings()) setting_for(file_, *pair_, setting);
}

// Of every temperature and rule once. Both rules are one at temperature 0.
std::vector<GenerateOptions> CellAcceptance::settings() const {
  std::map<std::pair<double, Acceptance>, GenerateOptions> settings;
  for (const Cell& cell : request_.cells) {
    if (!needs_acceptance(cell) || cell.pair != name_) continue;
    const Acceptance rule = cell.temperature == 0.0 ? Acceptance::rejection : cell.acceptance;
    settings.try_emplace({cell.temperature, rule}, cell.request(request_.shared));
  }
  std::vector<GenerateOptions> all;
  for (auto& [key, options] : settings) all.push_back(std::move(options));
  return all;
}

bool CellAcceptance::give(Engine& engine, const StudyHooks& hooks) {
  // Those of an earlier run stay; a study may have grown since.
  std::vector<GenerateOptions> missing = settings();
  if (pair_) {
    std::erase_if(missing, [&](const GenerateOptions& s) { return holds(*pair_, s); });
  }
  if (missing.empty()) return true;
  AcceptanceRequest asked;
  MeasuredPair pair = pair_ ? *pair_ : describe_pair(engine);
  const bool wrote_before = pair_ && pair.prompts.empty();  // one file, one kind of prompts
  CalibrationPrompts prompts = calibration_prompts(
      engine, request_.prompts_file, wrote_before ? std::vector<StudyPrompt>() : request_.spare,
      request_.prompt_tokens, calibration_seed);
  asked.prompts = std::move(prompts.tokens);
  asked.new_tokens = prompts.new_tokens;
  asked.stop = hooks.stop;
  if (!prompts.of_file.empty()) pair.prompts = request_.prompts_file.string();
  for (const StudyPrompt& prompt : prompts.of_file) {
    auto& prints = pair.prompt_prints;
    const std::string print = print_of(prompt);
    if (std::ranges::find(prints, print) == prints.end()) prints.push_back(print);
  }
  pair.prompt_tokens = prompts.most_tokens;
  pair.seed = calibration_seed;
  for (GenerateOptions& setting : missing) setting.seed = calibration_seed;
  asked.progress = [&](double done) {
    if (hooks.progress) hooks.progress("measuring acceptance by rank", done);
  };
  if (!measure_settings(engine, std::move(asked), missing, pair)) return false;
  write_measured_pair(file_, pair);
  pair_ = std::move(pair);
  return true;
}

std::map<std::string, GenerateOptions> CellAcceptance::requests() const {
  std::map<std::string, GenerateOptions> requests;
  for (const Cell& cell : request_.cells) {
    if (cell.pair != name_) continue;
    GenerateOptions& request = requests[cell.key()] = cell.request(request_.shared);
    if (!needs_acceptance(cell)) continue;
    std::get<Sequoia>(request.speculation).acceptance =
        vector_to_plan_for(setting_for(file_, *pair_, request));
  }
  return requests;
}

// What the vectors were measured on.
std::string CellAcceptance::prompts_text() const {
  const std::size_t shared = measured_on(*pair_, request_.prompts);
  std::string text = pair_->prompts.empty()
                         ? cat("on ", pair_->prompt_count, " texts that the target wrote")
                         : cat("on ", pair_->prompt_count, " prompts of ", pair_->prompts);
  const bool too_few = request_.spare.size() < static_cast<std::size_t>(calibration_count);
  if (pair_->prompts.empty() && request_.acceptance_file.empty() && too_few) {
    text += cat(", for --limit leaves fewer than ", calibration_count, " prompts of the file out");
  }
  return shared == 0 ? text : cat(text, ", ", shared, " of which are studied since");
}

void CellAcceptance::add_notes(std::vector<std::string>& notes) const {
  if (!pair_) return;
  for (const GenerateOptions& setting : settings()) {
    if (holds(*pair_, setting))
      notes.push_back(note_of(setting_for(file_, *pair_, setting), prompts_text(), file_));
  }
}

}  // namespace coppice::study

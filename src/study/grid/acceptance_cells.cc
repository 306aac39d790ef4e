#include "study/grid/acceptance_cells.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr std::uint64_t calibration_seed = 1;

bool plans_tree(const Cell& cell) { return cell.policy == Policy::sequoia && cell.tree.empty(); }

}  // namespace

CellAcceptance::CellAcceptance(const StudyRequest& request, const std::filesystem::path& kept)
    : request_(request), file_(kept) {
  // Holds every temperature and rule once; at temperature 0 cells have one rule.
  std::map<std::pair<double, Acceptance>, GenerateOptions> settings;
  for (const Cell& cell : request.cells) {
    if (!plans_tree(cell)) continue;
    settings.try_emplace({cell.temperature, cell.acceptance}, cell.request(request.shared));
  }
  for (auto& [key, options] : settings) settings_.push_back(std::move(options));
  const bool named = !request.acceptance_file.empty();
  if (named && settings_.empty()) {
    throw_usage(
        "--acceptance-vector: it is for policy sequoia without --grow-map, which is not studied; "
        "leave it out");
  }
  if (named) file_ = request.acceptance_file;
  std::error_code ignored;
  if (settings_.empty() || (!named && !std::filesystem::exists(file_, ignored))) return;
  pair_ = read_measured_pair(file_);
  require_pair(file_, *pair_, request.engine);
  if (!named) return;  // what results are there for stays; the report says on what it was measured
  require_other_prompts(file_, *pair_, request.prompts);
  for (const GenerateOptions& setting : settings_) setting_for(file_, *pair_, setting);
}

bool CellAcceptance::give(Engine& engine, const StudyHooks& hooks) {
  // Those of an earlier run stay; a study may have grown since.
  std::vector<GenerateOptions> missing = settings_;
  if (pair_) {
    std::erase_if(missing, [&](const auto& s) { return find_setting(*pair_, s) != nullptr; });
  }
  if (missing.empty()) return true;
  MeasuredPair pair = pair_ ? *pair_ : describe_pair(engine);
  const bool wrote_before = pair_ && pair.prompts.empty();  // one file, one kind of prompts
  CalibrationPrompts prompts = calibration_prompts(
      engine, request_.prompts_file, wrote_before ? std::vector<StudyPrompt>() : request_.spare,
      request_.prompt_tokens, calibration_seed);
  AcceptanceRequest asked;
  asked.prompts = std::move(prompts.tokens);
  asked.new_tokens = prompts.new_tokens;
  static_cast<StudyHooks&>(asked) = hooks;
  if (!prompts.of_file.empty()) pair.prompts = request_.prompts_file.string();
  for (const StudyPrompt& prompt : prompts.of_file) {
    auto& prints = pair.prompt_prints;
    const std::string print = print_of(prompt);
    if (std::ranges::find(prints, print) == prints.end()) prints.push_back(print);
  }
  pair.prompt_tokens = prompts.most_tokens;
  pair.seed = calibration_seed;
  for (GenerateOptions& setting : missing) setting.seed = calibration_seed;
  if (!measure_settings(engine, std::move(asked), missing, pair)) return false;
  write_measured_pair(file_, pair);
  pair_ = std::move(pair);
  return true;
}

std::map<std::string, GenerateOptions> CellAcceptance::requests() const {
  std::map<std::string, GenerateOptions> requests;
  for (const Cell& cell : request_.cells) {
    GenerateOptions& request = requests[cell.key()] = cell.request(request_.shared);
    if (!plans_tree(cell)) continue;
    std::get<Sequoia>(request.speculation).acceptance =
        vector_to_plan_for(setting_for(file_, *pair_, request));
  }
  return requests;
}

void CellAcceptance::add_notes(std::vector<std::string>& notes) const {
  if (!pair_) return;
  const bool by_target = pair_->prompts.empty();
  std::string on = cat("on ", pair_->prompt_count,
                       by_target ? " texts that the target wrote" : " prompts of ", pair_->prompts);
  const bool too_few = request_.spare.size() < static_cast<std::size_t>(calibration_count);
  if (by_target && request_.acceptance_file.empty() && too_few) {
    on += cat(", for --limit leaves fewer than ", calibration_count, " prompts of the file out");
  }
  const std::size_t shared = measured_on(*pair_, request_.prompts);
  if (shared > 0) on += cat(", ", shared, " of which are studied since");
  for (const GenerateOptions& asked : settings_) {
    const MeasuredAcceptance* setting = find_setting(*pair_, asked);
    if (setting == nullptr) continue;
    if (std::ranges::all_of(setting->accepted, [](std::int64_t count) { return count == 0; })) {
      notes.push_back(cat("sequoia at ", words_of(*setting),
                          ": could not be planned, for at none of ", setting->judged.front(),
                          " nodes a draft token was accepted (", on, "); its tree is a chain"));
      continue;
    }
    std::string ranks;
    for (const double prob : setting->acceptance_vector) ranks += cat(" ", fixed(prob, 3));
    notes.push_back(cat("sequoia at ", words_of(*setting),
                        ": planned for this pair's acceptance by rank,", ranks, " (",
                        setting->judged.front(), " nodes, ", on, "; ", file_.string(), ")"));
  }
}

}  // namespace coppice::study

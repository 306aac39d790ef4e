#include <algorithm>

#include "base/error.h"
#include "drafting/sequoia.h"
#include "engine/access.h"
#include "study/acceptance/acceptance.h"
#include "study/files/fingerprint.h"
#include "study/observed.h"
#include "study/prompts/prompts.h"

namespace coppice::study {
namespace {

constexpr std::int32_t most_layers = 4;

}  // namespace

void RankCounts::add(const TokenTree& tree, std::span<const std::int32_t> path) {
  std::vector<std::int32_t> children(static_cast<std::size_t>(tree.nodes()), 0);
  for (std::size_t n = 1; n < children.size(); ++n) {
    ++children[tree.parent[n]];
  }
  std::int32_t node = 0;
  for (std::size_t step = 0; step <= path.size(); ++step) {
    const bool goes_on = step < path.size();
    const std::int32_t rank = goes_on ? tree.rank[path[step]] : -1;
    const auto seen = static_cast<std::size_t>(goes_on ? rank + 1 : children[node]);
    if (judged.size() < seen) {
      judged.resize(seen, 0);
      accepted.resize(seen, 0);
    }
    for (std::size_t r = 0; r < seen; ++r) ++judged[r];
    if (!goes_on) break;
    ++accepted[rank];
    node = path[step];
  }
}

std::optional<MeasuredAcceptance> measure_acceptance(Engine& engine,
                                                     const AcceptanceRequest& request) {
  GenerateOptions options = request.sampling;
  options.max_new_tokens = request.new_tokens;
  options.ignore_eos = true;
  options.logprobs = false;
  options.stop.clear();
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
  const auto goes_on = [&](const Piece&) {
    stopped = stopped || (request.stop && request.stop());
    return !stopped;
  };
  for (std::size_t p = 0; p < request.prompts.size(); ++p) {
    options.stream = p;
    engine.generate(request.prompts[p], options, goes_on);
    if (stopped) return std::nullopt;
    if (request.progress) {
      request.progress(static_cast<double>(p + 1) / static_cast<double>(request.prompts.size()));
    }
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
  const auto progress = std::move(request.progress);
  request.progress = [&](double done) {
    if (progress) progress((before + done) / static_cast<double>(settings.size()));
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
  pair.dtype = name_of(access.device().compute_dtype());
  return pair;
}

CalibrationPrompts calibration_prompts(Engine& engine, const std::filesystem::path& file,
                                       const std::vector<StudyPrompt>& spare,
                                       std::int32_t most_tokens, std::uint64_t seed) {
  constexpr std::int32_t usual_tokens = 64;
  const EngineAccess access(engine);
  std::int32_t room = engine.context_length();
  for (const LoadedModel* model : {&access.target(), &access.draft()}) {
    if (model->pool != nullptr) room = std::min(room, model->pool->layout().slots());
  }
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

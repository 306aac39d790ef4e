#include "engine/settled_request.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/stopwatch.h"
#include "engine/check_speculation.h"
#include "sizing/constants.h"

namespace coppice {
namespace {

// A given threshold says itself how far to grow; a size is then only a cap.
bool sizes_itself(const Speculation& speculation, const TreePlan& plan) {
  if (const auto* above = std::get_if<DyspecThreshold>(&speculation))
    return above->threshold == 0.0;
  return sized_by_costs(speculation) && plan.size == 0;
}

// Proposals save draft passes. Where these cost next to nothing, proposals pay if growth hears what
// the draft thinks of them (DraftSource::belief_of) and can drop them: where any tree is exact, and
// not in trees by a threshold.
bool lookup_pays(const CostTable& costs, const Speculation& speculation, AcceptanceRule draw) {
  if (draw != AcceptanceRule::rejection && !std::holds_alternative<DyspecThreshold>(speculation)) {
    return true;
  }
  return costs.draft.seconds(1, 1) >=
         SizingConstants::least_draft_beside_lookup * costs.target.seconds(1, 1);
}

bool values_positions(const Speculation& speculation) {
  if (const auto* dyspec = std::get_if<Dyspec>(&speculation)) return !dyspec->plain_values;
  const auto* above = std::get_if<DyspecThreshold>(&speculation);
  return above != nullptr && !above->plain_values;
}

}  // namespace

SettledRequest::SettledRequest(Engine::Impl& engine, const GenerateOptions& asked,
                               const std::stop_token& stop)
    : options(asked), has_draft(engine.draft.model != nullptr && asked.use_draft) {
  {
    const Stopwatch timing(planning_seconds);
    plan = plan_trees(options.speculation, engine.options.max_tree_size, engine.sequoia_trees);
  }
  const bool open = options.lookup == Lookup::automatic;
  if (open) options.lookup = Lookup::none;
  if (!has_draft && !proposes(options)) options.speculation = Plain{};
  if (sizes_itself(options.speculation, plan)) {
    costs = engine.find_costs(stop);
    // Without memory to measure in there is none to speculate in either.
    if (costs == nullptr) options.speculation = Plain{};
  }
  if (std::holds_alternative<Plain>(options.speculation)) options.lookup = Lookup::none;
  for (const auto& [token, added] : options.logit_bias) {
    if (added != 0.0) bias.push_back({token, static_cast<float>(added)});
  }
  std::ranges::sort(bias, {}, &TokenBias::token);
  if (options.min_new_tokens > 0) {
    ends = options.stop_tokens;
    const std::vector<TokenId>& eos = engine.target.model->config().eos_tokens;
    if (!options.ignore_eos) ends.insert(ends.end(), eos.begin(), eos.end());
  }
  learns_values = values_positions(options.speculation);
  settle_rule(engine);
  // Trees of given size stay those of the draft: a proposal would take a child's place.
  if (open && has_draft && costs != nullptr &&
      lookup_pays(*costs, options.speculation, drawing_rule(options))) {
    options.lookup = Lookup::text;
  }
  settle_draft();
  settle_inverse_temperature(engine);
  settle_draft_start(engine);
}

AcceptanceRule SettledRequest::rule() const {
  if (greedy()) return AcceptanceRule::greedy;
  return options.acceptance == Acceptance::coupled ? AcceptanceRule::coupled
                                                   : AcceptanceRule::rejection;
}

// Large trees gain by coupled acceptance where they know the noise (sizing/rule_choice.h). Sizes
// that repeat themselves are judged by the same rule every time.
void SettledRequest::settle_rule(Engine::Impl& engine) {
  const bool open = options.acceptance == Acceptance::automatic;
  options.acceptance = settled_acceptance(options);
  if (!open || greedy() || !learns_values) return;
  if (!has_draft && engine.draft.model != nullptr) return;  // the record is of drafted trees
  const std::lock_guard lock(engine.mutex);
  RuleChoice fixed;
  if (costs != nullptr && !engine.costs_are_saved) {
    rules = &engine.rules[{options.speculation.index(), tenths_of_temperature()}];
  }
  const std::int32_t most = engine.options.max_tree_size;
  double nodes = plan.size > 0 ? plan.size : most;
  if (costs != nullptr) {
    nodes = RuleChoice::usual_nodes(*costs, most);
  } else if (const auto* above = std::get_if<DyspecThreshold>(&options.speculation)) {
    // Values of one depth's positions add up to 1 at most: no more than this many reach it.
    nodes = std::min(nodes, 1.0 / above->threshold);
  }
  options.acceptance = (rules != nullptr ? *rules : fixed).choose(nodes);
}

// Rejection draws children at the draft temperature, by default the target's. Elsewhere the draft
// only ranks: the draft temperature is the belief's, by default one that is learned.
void SettledRequest::settle_draft() {
  const bool given = options.draft_temperature.has_value();
  draft_temperature = first_draft_temperature(options);
  draft.draw = drawing_rule(options);
  draft.uniforms_judge = !greedy();
  // Nobody else asks what the noise tells of children. A chain without a size ends by it.
  const bool asked_for =
      learns_values || (std::holds_alternative<Chain>(options.speculation) && costs != nullptr);
  const bool can_believe = draft.draw != AcceptanceRule::rejection && has_draft;
  const bool fixed_belief = can_believe && given && !greedy();
  draft.params = options.sampling;
  if (!fixed_belief) draft.params.temperature = draft_temperature;
  learns_belief = can_believe && asked_for && !given;
  if (fixed_belief) draft.inverse_temperature = 1.0 / draft_temperature;
  if (!asked_for) draft.inverse_temperature = 0.0;
}

// Learning starts from what earlier sequences have shown of the pair. Not where sizes, and so all
// that a request reports, are to repeat themselves.
void SettledRequest::settle_inverse_temperature(Engine::Impl& engine) {
  if (!learns_belief) return;
  draft.inverse_temperature =
      BeliefTemperature::usual(options.sampling.temperature, draft_temperature);
  if (costs == nullptr || engine.costs_are_saved) return;
  const std::lock_guard lock(engine.mutex);
  inverse_temperature = &engine.inverse_temperatures[tenths_of_temperature()];
  draft.inverse_temperature = inverse_temperature->start(draft.inverse_temperature);
}

void SettledRequest::settle_draft_start(Engine::Impl& engine) {
  if (costs == nullptr) return;
  const std::lock_guard lock(engine.mutex);
  draft_start = &engine.draft_starts
                     .try_emplace({options.speculation.index(), draft.draw, tenths_of_temperature(),
                                   has_draft},
                                  draft.draw)
                     .first->second;
}

}  // namespace coppice

#include "engine/step_plan.h"

#include <algorithm>
#include <cmath>

#include "engine/shared_prompts.h"

namespace coppice {
namespace {

class Planner {
 public:
  Planner(Engine::Impl& engine, std::span<RunningSequence* const> sequences, StepPlan& plan)
      : engine_(engine),
        sequences_(sequences),
        plan_(plan),
        limits_(engine.target.model->options()),
        rows_(limits_.max_rows),
        judged_(limits_.max_logit_rows),
        kv_tokens_(limits_.max_kv_tokens),
        slots_(engine.target_runner->free_slots()),
        reads_by_sequence_(engine.target_runner->reads_by_text()) {}

  void choose() {
    for (RunningSequence* const sequence : sequences_) {
      if (plan_.sequences.size() == static_cast<std::size_t>(engine_.options.max_sequences)) return;
      const std::int32_t prefill = TargetRunner::prefill_rows(sequence->state);
      // It waits for a step, and finds them computed.
      if (prompts_.awaits(sequence->state) > 0) continue;
      const std::int32_t fixed = prefill > 0 ? 0 : fixed_size(*sequence);
      const std::int32_t rows = prefill > 0 ? claim(prefill) : 1 + fixed;
      // What the pool holds, a pass may see, but not again for each sequence.
      const std::int32_t seen = reads_by_sequence_ ? sequence->state.target_kv() + rows : 0;
      if (rows > rows_ || 1 + fixed > judged_ || seen > kv_tokens_) continue;
      if (slots_ < 1) {
        plan_.short_of_slots = true;
        continue;
      }
      rows_ -= rows;
      judged_ -= 1 + fixed;
      kv_tokens_ -= seen;
      if (prefill > 0) prompts_.add(sequence->state);
      // Prefill rows take what slots there are.
      --slots_;
      plan_.sequences.push_back({sequence, prefill, prefill == 0, std::nullopt});
      if (prefill > 0) {
        rows_of_prompts_ += rows;
        ++claimed_prompts_;
        continue;
      }
      if (!may_grow(*sequence)) continue;
      ++trees_;
      if (fixed == 0) ++open_trees_;
      fixed_nodes_ += fixed;
      if (sequence->can_draft()) draft_lag_ += DraftRunner::lag(sequence->state);
    }
  }

  void plan_trees() {
    if (trees_ == 0) return;
    // Rows that nobody has claimed, the root's not counted.
    const std::int32_t open = open_trees_ == 0
                                  ? 0
                                  : std::min(std::min({rows_, judged_, kv_tokens_}) / open_trees_,
                                             engine_.options.max_tree_size);
    // Short of slots all trees have an equal part of them.
    const std::int32_t wanted = fixed_nodes_ + open * open_trees_;
    const bool fit = slots_of_trees() >= wanted, drafts_fit = draft_room(draft_lag_, 1) >= wanted;
    const std::int32_t slots = fit ? wanted : slots_of_trees() / trees_;
    const std::int32_t drafted = drafts_fit ? wanted : draft_room(draft_lag_, trees_);
    // Who finds its size among others has what those leave.
    const std::int32_t joint_drafted =
        draft_room(draft_lag_ + fixed_nodes_, std::max(1, open_trees_));
    StepPrices::Step step = begin_priced_step();
    double nodes = 0.0;
    for (SequencePlan& plan : plan_.sequences) {
      if (!plan.judged || !may_grow(*plan.sequence)) continue;
      Speculator& speculator = plan.sequence->speculator;
      const std::int32_t fixed = fixed_size(*plan.sequence), left = plan.sequence->tokens_left();
      const std::int32_t room = std::min({fixed > 0 ? fixed : open, slots, drafted});
      if (speculator.adapts()) {
        const bool apart =
            step.texts == 1 || !speculator.can_grow_jointly() || has_twin(*plan.sequence);
        const std::int32_t most = apart ? room : std::min(joint_drafted, slots_of_trees());
        plan_.adaptive.push_back(speculator.sizing(plan.sequence->state, left, most, step.texts,
                                                   apart, plan.sequence->can_draft()));
        if (!apart) continue;
        slots_ -= most;
        take_rows(most);
      } else {
        plan.limits = speculator.plan(plan.sequence->state, left, room, plan.sequence->can_draft());
        if (!plan.limits) continue;
        slots_ -= plan.limits->max_size;
        if (fixed == 0) take_rows(plan.limits->max_size);
      }
      nodes += speculator.usual_nodes();
    }
    if (plan_.adaptive.empty()) return;
    step.other_rows += static_cast<std::int32_t>(std::lround(nodes));
    size_trees(step, std::min({open, slots, drafted}));
  }

  void plan_prompts() {
    for (SequencePlan& plan : plan_.sequences) {
      if (plan.judged) continue;
      const std::int32_t rows = plan.prefill_rows + 1, claimed = claim(plan.prefill_rows);
      const std::int32_t most = std::min({claimed + rows_, claimed + kv_tokens_, 1 + slots_});
      // Parts of equal size: a pass of the few rows left over would cost about as much as one of
      // many.
      const std::int32_t passes = (rows + most - 1) / most;
      const std::int32_t taken = (rows + passes - 1) / passes;
      plan.judged = taken == rows;
      if (!plan.judged) plan.prefill_rows = taken;
      rows_ -= taken - claimed;
      kv_tokens_ -= taken - claimed;
      slots_ -= taken - 1;
    }
  }

 private:
  // A tree is for two tokens at least.
  static bool may_grow(const RunningSequence& sequence) {
    return sequence.can_speculate() && sequence.tokens_left() >= 2;
  }
  // Most nodes that each tree may have the draft evaluate; without one none is.
  std::int32_t draft_room(std::int32_t lag, std::int32_t sequences) const {
    if (engine_.draft_runner == nullptr) return limits_.max_rows;
    return engine_.draft_runner->room(lag, sequences);
  }
  static std::int32_t fixed_size(const RunningSequence& sequence) {
    return sequence.speculator.fixed_size(sequence.state, sequence.tokens_left());
  }
  // What a prompt has in any case, so that it goes on beside any trees.
  std::int32_t claim(std::int32_t prefill_rows) const {
    return std::min(prefill_rows + 1, std::max(1, limits_.max_rows / 4));
  }
  // What prices of this step depend on, but for trees.
  StepPrices::Step begin_priced_step() {
    StepPrices::Step step;
    step.number = engine_.steps++;
    step.texts = 0;
    step.other_rows = step.prompt_rows = rows_of_prompts_;
    for (const SequencePlan& plan : plan_.sequences) {
      if (!plan.judged) continue;
      ++step.texts;
      step.kv_tokens += plan.sequence->state.length();
    }
    return step;
  }
  // Says whether another sequence has the same noise: its tokens would decide what this one draws.
  bool has_twin(const RunningSequence& sequence) const {
    const auto is_twin = [&](const RunningSequence* other) {
      const GenerateOptions &a = sequence.request.options, &b = other->request.options;
      return other != &sequence && a.seed == b.seed && a.stream == b.stream &&
             !other->request.greedy();
    };
    return sequence.speculator.draws_for_good() &&
           std::any_of(sequences_.begin(), sequences_.end(), is_twin);
  }
  // Bounds trees whose sizes are not given. Those that grow apart have taken `reserved` each: what
  // they do not want is left for prompts.
  void size_trees(const StepPrices::Step& step, std::int32_t reserved) {
    BatchSizer& sizes = engine_.batch_sizes();
    plan_.common = &sizes.growth();
    const std::int32_t room = std::min({rows_, judged_, kv_tokens_, slots_of_trees()});
    std::int32_t nodes = sizes.begin(step, plan_.adaptive, room);
    auto next = plan_.adaptive.begin();
    for (SequencePlan& plan : plan_.sequences) {
      if (!plan.judged || !may_grow(*plan.sequence) || !plan.sequence->speculator.adapts())
        continue;
      const BatchSizer::Text& sized = *next++;
      plan.limits = plan.sequence->speculator.plan(sized, *plan_.common);
      if (sized.apart) nodes += (plan.limits ? plan.limits->max_size : 0) - reserved;
    }
    slots_ -= nodes;
    take_rows(nodes);
  }
  void take_rows(std::int32_t nodes) {
    rows_ -= nodes;
    judged_ -= nodes;
    kv_tokens_ -= nodes;
  }
  // Beside the roots' and what prompts need before these.
  std::int32_t slots_of_trees() const {
    return std::max(0, slots_ - (rows_of_prompts_ - claimed_prompts_));
  }

  Engine::Impl& engine_;
  std::span<RunningSequence* const> sequences_;
  StepPlan& plan_;
  const ModelOptions& limits_;
  // What is left of each:
  std::int32_t rows_, judged_, kv_tokens_, slots_;
  const bool reads_by_sequence_;
  SharedPrompts prompts_;
  std::int32_t rows_of_prompts_ = 0, claimed_prompts_ = 0;
  std::int32_t trees_ = 0, open_trees_ = 0, fixed_nodes_ = 0, draft_lag_ = 0;
};

}  // namespace

void plan_step(Engine::Impl& engine, std::span<RunningSequence* const> sequences, StepPlan& plan) {
  plan.sequences.clear();
  plan.adaptive.clear();
  plan.common = nullptr;
  plan.short_of_slots = false;
  Planner planner(engine, sequences, plan);
  planner.choose();
  planner.plan_trees();
  planner.plan_prompts();
}

}  // namespace coppice

#include "engine/step_plan.h"

#include <algorithm>
#include <cmath>

#include "engine/shared_prompts.h"

namespace coppice {
namespace {

class Planner {
 public:
  Planner(Engine::Impl& engine, std::span<TextRun* const> texts, StepPlan& plan)
      : engine_(engine),
        texts_(texts),
        plan_(plan),
        limits_(engine.target.model->options()),
        rows_(limits_.max_rows),
        judged_(limits_.max_logit_rows),
        kv_tokens_(limits_.max_kv_tokens),
        slots_(engine.target_runner->free_slots()),
        reads_by_text_(engine.target_runner->reads_by_text() &&
                       engine.fault != EngineFault::copies_counted_once) {}

  void choose() {
    for (TextRun* const text : texts_) {
      if (plan_.texts.size() == static_cast<std::size_t>(engine_.options.max_sequences)) return;
      const std::int32_t late = TargetRunner::late_rows(text->state);
      // It waits for a step, and finds them computed.
      if (prompts_.awaits(text->state) > 0) continue;
      const std::int32_t fixed = late > 0 ? 0 : fixed_size(*text);
      const std::int32_t rows = late > 0 ? claim(late) : 1 + fixed;
      // What the pool holds, a pass may see, but not again for each text.
      const std::int32_t seen = reads_by_text_ ? text->state.target_kv() + rows : 0;
      if (rows > rows_ || 1 + fixed > judged_ || seen > kv_tokens_) continue;
      if (slots_ < 1) {
        plan_.short_of_slots = true;
        continue;
      }
      rows_ -= rows;
      judged_ -= 1 + fixed;
      kv_tokens_ -= seen;
      if (late > 0) prompts_.add(text->state);
      // Late rows take what slots there are.
      --slots_;
      plan_.texts.push_back({text, late, late == 0, std::nullopt});
      if (late > 0) {
        rows_of_prompts_ += rows;
        ++claimed_prompts_;
        continue;
      }
      if (!may_grow(*text)) continue;
      ++trees_;
      if (fixed == 0) ++open_trees_;
      fixed_nodes_ += fixed;
      if (text->can_draft()) draft_lag_ += DraftRunner::lag(text->state);
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
    StepPrices::Step step = meet();
    double nodes = 0.0;
    for (TextPlan& text : plan_.texts) {
      if (!text.judged || !may_grow(*text.text)) continue;
      Speculator& speculator = text.text->speculator;
      const std::int32_t fixed = fixed_size(*text.text), left = text.text->tokens_left();
      const std::int32_t room = std::min({fixed > 0 ? fixed : open, slots, drafted});
      if (finds_its_size_among_others(step, *text.text)) {
        const bool apart = !speculator.can_grow_jointly() || has_twin(*text.text);
        const std::int32_t most = apart ? room : std::min(joint_drafted, slots_of_trees());
        plan_.joint.push_back(
            speculator.join(text.text->state, left, most, apart, text.text->can_draft()));
        if (!apart) continue;
        slots_ -= most;
        take_rows(most);
      } else {
        text.limits = speculator.plan(text.text->state, left, room, step, text.text->can_draft());
        if (!text.limits) continue;
        slots_ -= text.limits->max_size;
        if (fixed == 0) take_rows(text.limits->max_size);
      }
      nodes += speculator.usual_nodes();
    }
    if (plan_.joint.empty()) return;
    step.other_rows += static_cast<std::int32_t>(std::lround(nodes));
    plan_jointly(step);
  }

  void plan_prompts() {
    for (TextPlan& text : plan_.texts) {
      if (text.judged) continue;
      const std::int32_t rows = text.late_rows + 1, claimed = claim(text.late_rows);
      const std::int32_t most = std::min({claimed + rows_, claimed + kv_tokens_, 1 + slots_});
      // Parts of equal size: a pass of the few rows left over would cost about as much as one of
      // many.
      const std::int32_t passes = (rows + most - 1) / most;
      const std::int32_t taken = (rows + passes - 1) / passes;
      text.judged = taken == rows;
      if (!text.judged) text.late_rows = taken;
      rows_ -= taken - claimed;
      kv_tokens_ -= taken - claimed;
      slots_ -= taken - 1;
    }
  }

 private:
  // A tree is for two tokens at least.
  static bool may_grow(const TextRun& text) {
    return text.can_speculate() && text.tokens_left() >= 2;
  }
  // Most nodes that each tree may have the draft evaluate; without one none is.
  std::int32_t draft_room(std::int32_t lag, std::int32_t texts) const {
    if (engine_.draft_runner == nullptr) return limits_.max_rows;
    return engine_.draft_runner->room(lag, texts);
  }
  static std::int32_t fixed_size(const TextRun& text) {
    return text.speculator.fixed_size(text.state, text.tokens_left());
  }
  // What a prompt has in any case, so that it goes on beside any trees.
  std::int32_t claim(std::int32_t late_rows) const {
    return std::min(late_rows + 1, std::max(1, limits_.max_rows / 4));
  }
  StepPrices::Step meet() {
    StepPrices::Step step;
    step.number = engine_.steps++;
    step.texts = 0;
    step.other_rows = step.prompt_rows = rows_of_prompts_;
    for (const TextPlan& text : plan_.texts) {
      if (!text.judged) continue;
      ++step.texts;
      step.kv_tokens += text.text->state.length();
    }
    return step;
  }
  bool finds_its_size_among_others(const StepPrices::Step& step, const TextRun& text) const {
    return step.texts > 1 && text.speculator.adapts();
  }
  // Of texts with the same noise one's tokens would decide whether the other draws the same.
  bool has_twin(const TextRun& text) const {
    const auto is_twin = [&](const TextRun* other) {
      const GenerateOptions &a = text.request.options, &b = other->request.options;
      return other != &text && a.seed == b.seed && a.stream == b.stream && !other->request.greedy();
    };
    if (engine_.fault == EngineFault::twins_grow_together) return false;
    return text.speculator.draws_for_good() && std::any_of(texts_.begin(), texts_.end(), is_twin);
  }
  void plan_jointly(const StepPrices::Step& step) {
    JointSizes& sizes = engine_.sizes_among_others();
    plan_.common = &sizes.growth();
    const std::int32_t room = std::min({rows_, judged_, kv_tokens_, slots_of_trees()});
    const std::int32_t nodes = sizes.begin(step, plan_.joint, room);
    auto joint = plan_.joint.begin();
    for (TextPlan& text : plan_.texts) {
      if (!text.judged || !may_grow(*text.text)) continue;
      if (!finds_its_size_among_others(step, *text.text)) continue;
      text.limits = text.text->speculator.plan(*joint++, *plan_.common);
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
  std::span<TextRun* const> texts_;
  StepPlan& plan_;
  const ModelOptions& limits_;
  // What is left of each:
  std::int32_t rows_, judged_, kv_tokens_, slots_;
  const bool reads_by_text_;
  SharedPrompts prompts_;
  std::int32_t rows_of_prompts_ = 0, claimed_prompts_ = 0;
  std::int32_t trees_ = 0, open_trees_ = 0, fixed_nodes_ = 0, draft_lag_ = 0;
};

}  // namespace

void plan_step(Engine::Impl& engine, std::span<TextRun* const> texts, StepPlan& plan) {
  plan.texts.clear();
  plan.joint.clear();
  plan.common = nullptr;
  plan.short_of_slots = false;
  Planner planner(engine, texts, plan);
  planner.choose();
  planner.plan_trees();
  planner.plan_prompts();
}

}  // namespace coppice

#include "engine/step_plan.h"

#include <algorithm>

namespace coppice {
namespace {

class Planner {
 public:
  Planner(Engine::Impl& engine, StepPlan& plan)
      : engine_(engine),
        plan_(plan),
        limits_(engine.target.model->options()),
        rows_(limits_.max_rows),
        judged_(limits_.max_logit_rows),
        kv_tokens_(limits_.max_kv_tokens),
        slots_(engine.target_runner->free_slots()) {}

  void choose(std::span<TextRun* const> texts) {
    for (TextRun* const text : texts) {
      if (plan_.texts.size() == static_cast<std::size_t>(engine_.options.max_sequences)) return;
      const std::int32_t late = TargetRunner::late_rows(text->state);
      const std::int32_t fixed = late > 0 ? 0 : fixed_size(*text);
      const std::int32_t rows = late > 0 ? claim(late) : 1 + fixed;
      const std::int32_t seen = text->state.length() - late + rows;
      if (rows > rows_ || 1 + fixed > judged_ || seen > kv_tokens_) continue;
      if (slots_ < 1) {
        plan_.short_of_slots = true;
        continue;
      }
      rows_ -= rows;
      judged_ -= 1 + fixed;
      kv_tokens_ -= seen;
      // Late rows take what slots there are.
      --slots_;
      plan_.texts.push_back({text, late, late == 0, std::nullopt});
      if (late > 0) {
        rows_of_prompts_ += rows;
        continue;
      }
      if (!text->can_draft()) continue;
      ++trees_;
      if (fixed == 0) ++open_trees_;
      draft_lag_ += DraftRunner::lag(text->state);
    }
  }

  void plan_trees() {
    if (trees_ == 0) return;
    // Rows that nobody has claimed, the root's not counted.
    const std::int32_t open =
        open_trees_ == 0 ? 0 : std::min({rows_, judged_, kv_tokens_}) / open_trees_;
    const std::int32_t slots = slots_of_trees() / trees_;
    const std::int32_t drafted = engine_.draft_runner->room(draft_lag_, trees_);
    const Company company = meet();
    for (TextPlan& text : plan_.texts) {
      if (!text.judged || !text.text->can_draft()) continue;
      const std::int32_t fixed = fixed_size(*text.text);
      text.limits =
          text.text->speculator.plan(text.text->state, text.text->tokens_left(),
                                     std::min({fixed > 0 ? fixed : open, slots, drafted}), company);
      if (!text.limits) continue;
      slots_ -= text.limits->max_size;
      if (fixed > 0) continue;
      rows_ -= text.limits->max_size;
      kv_tokens_ -= text.limits->max_size;
    }
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
  static std::int32_t fixed_size(const TextRun& text) {
    return text.speculator.fixed_size(text.state, text.tokens_left());
  }
  // What a prompt has in any case, so that it goes on beside any trees.
  std::int32_t claim(std::int32_t late_rows) const {
    return std::min(late_rows + 1, std::max(1, limits_.max_rows / 4));
  }
  Company meet() {
    Company company;
    company.step = engine_.steps++;
    company.prompt_rows = rows_of_prompts_;
    for (const TextPlan& text : plan_.texts) {
      if (!text.judged) continue;
      ++company.texts;
      company.kv_tokens += text.text->state.length();
    }
    for (const TextPlan& text : plan_.texts) {
      if (text.judged && text.text->can_draft()) {
        text.text->speculator.join(company, text.text->state);
      }
    }
    if (engine_.costs) company.settle(engine_.costs->draft);
    return company;
  }
  // Beside the roots' and what prompts need.
  std::int32_t slots_of_trees() const { return std::max(0, slots_ - rows_of_prompts_); }

  Engine::Impl& engine_;
  StepPlan& plan_;
  const ModelOptions& limits_;
  // What is left of each:
  std::int32_t rows_, judged_, kv_tokens_, slots_;
  std::int32_t rows_of_prompts_ = 0;
  std::int32_t trees_ = 0, open_trees_ = 0, draft_lag_ = 0;
};

}  // namespace

void plan_step(Engine::Impl& engine, std::span<TextRun* const> texts, StepPlan& plan) {
  plan.texts.clear();
  plan.short_of_slots = false;
  Planner planner(engine, plan);
  planner.choose(texts);
  planner.plan_trees();
  planner.plan_prompts();
}

}  // namespace coppice

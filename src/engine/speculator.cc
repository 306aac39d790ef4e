#include "engine/speculator.h"

#include <algorithm>
#include <mutex>

#include "engine/check_speculation.h"

namespace coppice {
Speculator::Speculator(Engine::Impl& engine, const SettledRequest& request, TextIndex* index)
    : engine_(engine), request_(request), setting_(request.draft) {
  const Speculation& asked = request.options.speculation;
  if (std::holds_alternative<Plain>(asked)) return;
  if (request.learns_belief) {
    belief_.emplace(setting_.inverse_temperature);
    setting_.inverse_temperature = belief_->inverse_temperature();
  }
  if (request.costs != nullptr) {
    const bool by_node = std::holds_alternative<Dyspec>(asked);
    sizer_ = std::make_unique<SequenceSizer>(
        *request.costs, follows_the_clock() ? &engine.correction : nullptr, setting_.draw,
        by_node ? engine.options.max_tree_size : 0);
  } else if (request.learns_values) {
    calibration_ = std::make_unique<AcceptanceCalibration>(setting_.draw);
  }
  policy_ = make_policy(request.options, request.plan, sizer_.get(), calibration_.get());
  by_costs_ = policy_->prior({}).has_value();
  if (request.looks_up()) {
    lookup_.emplace(request.options.lookup == Lookup::engine ? &engine.answers : nullptr, index);
  }
  if (request.options.constraint && takes_proposals(request.options)) {
    ruled_.emplace(lookup_ ? &*lookup_ : nullptr);
  }
  if (!lookup_) return;
  // Sizes that repeat themselves start from the same chances.
  if (request.costs == nullptr || !follows_the_clock()) return;
  const std::lock_guard lock(engine.mutex);
  lookup_->calibration().expect(engine.lookups[request.tenths_of_temperature()]);
}

bool Speculator::can_follow(const SequenceState& state) const {
  return policy_ != nullptr && request_.has_draft &&
         state.largest_token < engine_.draft.model->config().vocab_size &&
         state.length() < engine_.draft.model->max_positions();
}

void Speculator::join(DraftStartPolicy::Batch& batch, DraftGaps& gaps, const SequenceState& state,
                      std::int32_t tokens_left, bool ready) const {
  ++batch.texts;
  batch.kv_tokens += state.length();
  batch.tokens_left += tokens_left;
  if (begin_ == DraftStartPolicy::Begin::as_probe) ++batch.probes;
  if (!ready && request_.draft_start != nullptr) {
    batch.missing_rows += gaps.add(state, state.length() - 1);
  }
}

bool Speculator::begins(DraftStartPolicy::Batch& batch, const DraftGaps& gaps, SequenceState& state,
                        std::int32_t tokens_left) {
  using Begin = DraftStartPolicy::Begin;
  if (begun()) return true;
  const std::int32_t missing = DraftPrompt::missing(state);
  // A sequence alone since its start begins drafting at once.
  if (request_.draft_start == nullptr || (!put_off_ && (missing == 0 || batch.texts == 1))) {
    begin_ = Begin::now;
    return true;
  }
  const std::int32_t as_probe =
      probed_ > 0 ? 0 : std::min(missing, DraftRunner::after_long_lag(state));
  begin_ = request_.draft_start->decide(
      batch, {tokens_left, gaps.share(state, state.length() - 1), as_probe}, *request_.costs,
      follows_the_clock() ? &engine_.correction : nullptr);
  if (begin_ == Begin::as_probe) {
    probed_ = 1;
    ++batch.probes;
    DraftRunner::skip_long_lag(state);
  }
  put_off_ |= !begun();
  return begun();
}

// Records a prefill's time. Only a prompt's last draft pass returns a result, so only it can be
// timed.
void Speculator::note_prefill(const DraftPrompt& prompt, double seconds, double pass_rows) {
  if (request_.draft_start == nullptr || !follows_the_clock()) return;
  if (pass_rows == 0.0 || prompt.rows == 0 || !prompt.done() || prompt.out_of_slots) return;
  const double by_table =
      DraftStartPolicy::prefill_seconds(*request_.costs, pass_rows, prompt.state->length());
  request_.draft_start->record_prefill(seconds, by_table * prompt.rows / pass_rows);
}

void Speculator::begin(const DraftPrompt& prompt) {
  if (sizer_ == nullptr) return;
  sizer_->begin_text(prompt.likelihood);
  if (prompt.likelihood < SizingConstants::useless_likelihood)
    request_.draft_start->record_useless();
}

std::int32_t Speculator::fixed_size(const SequenceState& state, std::int32_t tokens_left) const {
  // The bonus token needs no tree.
  const bool grows = can_follow(state) || (proposes() && !request_.has_draft);
  return grows && tokens_left > 1 ? request_.plan.size : 0;
}

// The bonus token needs no row: a tree of depth d can yield d + 1 tokens.
GrowthLimits Speculator::limits(const SequenceState& state, std::int32_t tokens_left,
                                std::int32_t room, bool drafts) {
  GrowthLimits limits;
  limits.drafts = drafts;
  if (lookup_) lookup_->follow(state.tokens);
  limits.proposer = proposer();
  limits.max_depth = tokens_left - 1;
  if (drafts) {
    limits.max_depth =
        std::min(limits.max_depth, engine_.draft.model->max_positions() - state.length());
  }
  limits.max_size = request_.plan.size > 0 ? request_.plan.size : engine_.options.max_tree_size;
  limits.max_size = std::min(limits.max_size, room);
  if (sizer_ != nullptr && std::holds_alternative<Chain>(request_.options.speculation)) {
    limits.max_size = std::min(limits.max_size, SizingConstants::longest_chain);
  }
  return limits;
}

std::optional<GrowthLimits> Speculator::plan(const SequenceState& state, std::int32_t tokens_left,
                                             std::int32_t room, bool drafts) {
  drafts = drafts && can_follow(state);
  if (!drafts && !can_go_without_draft()) return std::nullopt;
  const Speculation& asked = request_.options.speculation;
  GrowthLimits limits = this->limits(state, tokens_left, room, drafts);
  if (const auto* custom = std::get_if<Custom>(&asked); custom != nullptr && custom->depth > 0) {
    limits.max_depth = std::min(limits.max_depth, custom->depth);
  }
  if (const auto* above = std::get_if<DyspecThreshold>(&asked)) limits.min_value = above->threshold;
  if (limits.max_depth <= 0 || limits.max_size <= 0) return std::nullopt;
  return limits;
}

BatchSizer::Text Speculator::sizing(const SequenceState& state, std::int32_t tokens_left,
                                    std::int32_t room, std::int32_t texts, bool apart,
                                    bool drafts) {
  if (texts > 1) sizer_->expect(request_.draft_start->acceptance());
  drafts = drafts && can_follow(state);
  GrowthLimits limits = this->limits(state, tokens_left, room, drafts);
  if (request_.costs->cut) {
    limits.max_size =
        std::min(limits.max_size, request_.costs->target.points().back().rows - texts);
  }
  BatchSizer::Text sequence;
  sequence.size = sizer_.get();
  sequence.prior = policy_->prior(limits).value_or(
      GrowthPrior{&sizer_->calibration(), limits.max_size, limits.max_depth});
  sequence.prior.drafts = drafts;
  sequence.tokens_left = tokens_left;
  sequence.apart = apart;
  sequence.without_draft = can_go_without_draft();
  sequence.probes = begin_ == DraftStartPolicy::Begin::as_probe;
  return sequence;
}

std::optional<GrowthLimits> Speculator::plan(const BatchSizer::Text& sequence, Grower& growth) {
  const GrowthPrior& tree = sequence.prior;
  const bool drafts = sequence.speculates && tree.drafts;
  if (!drafts && !can_go_without_draft()) return std::nullopt;
  if (tree.most <= 0 || tree.most_depth <= 0) return std::nullopt;
  GrowthLimits limits;
  limits.drafts = drafts;
  limits.proposer = proposer();
  limits.max_size = tree.most;
  limits.max_depth = tree.most_depth;
  if (!by_costs_) limits.min_value = sizer_->threshold();
  if (sequence.apart) return limits;
  limits.common = &growth;
  limits.weight = tree.weight;
  return limits;
}

void Speculator::learn(const TokenTree& tree, const Verdict& verdict, std::int32_t kept,
                       DraftStep* draft, const StepWork& work) {
  if (sizer_ != nullptr) {
    double won = 0.0, cost = 1.0;
    if (draft != nullptr) {
      cost = sizer_->record(tree, verdict.path, work);
      won = static_cast<double>(kept) - cost;
      request_.draft_start->record(tree, verdict.path);
    } else {
      sizer_->record_plain();
      if (proposes()) sizer_->record_without_draft(tree, verdict.path, work);
    }
    if (begin_ == DraftStartPolicy::Begin::now)
      request_.draft_start->record_gain(work.texts, won, cost);
    if (!begun()) request_.draft_start->record_put_off(work.texts);
    // A probe's gain is paid for by the others, which finish no earlier.
    const bool probes = begin_ == DraftStartPolicy::Begin::as_probe;
    if (probes && draft != nullptr) ++probed_;
    if (probes && (sizer_->waits() || probed_ > SizingConstants::known_steps)) {
      forget_draft();
      put_off_ = true;
    }
  }
  if (lookup_) lookup_->record(tree, verdict.path);
  if (ruled_) ruled_->record(tree, verdict.path);
  if (draft == nullptr) return;
  steps_ = SizingConstants::discount * steps_ + 1.0;
  nodes_ = SizingConstants::discount * nodes_ + tree.size();
  if (calibration_ != nullptr) calibration_->record(tree, verdict.path);
  if (belief_) learn_belief(tree, verdict, draft->sampler());
}

const AcceptanceCalibration* Speculator::calibration() const {
  if (!request_.learns_values) return nullptr;
  return sizer_ != nullptr ? &sizer_->calibration() : calibration_.get();
}

// By the tokens that came after the nodes that the draft has evaluated.
void Speculator::learn_belief(const TokenTree& tree, const Verdict& verdict,
                              DraftSampler& sampler) {
  std::int32_t node = 0;
  for (std::size_t i = 0; i <= verdict.path.size(); ++i) {
    const bool last = i == verdict.path.size();
    const TokenId token =
        last ? verdict.bonus : tree.token[static_cast<std::size_t>(verdict.path[i])];
    const std::int32_t candidate = tree.candidate[static_cast<std::size_t>(node)];
    if (const auto seen = sampler.evidence(candidate, token)) belief_->observe(*seen);
    if (!last) node = verdict.path[i];
  }
  setting_.inverse_temperature = belief_->inverse_temperature();
}

void Speculator::learn_pair(const Statistics& s) {
  const std::lock_guard lock(engine_.mutex);
  // A draft that equals the target takes few steps.
  constexpr double least_tokens = 16.0;
  const double tokens = s.emitted_per_step * static_cast<double>(s.steps);
  if (request_.inverse_temperature != nullptr && tokens >= least_tokens) {
    request_.inverse_temperature->record(
        belief_->inverse_temperature(),
        BeliefTemperature::usual(request_.options.sampling.temperature,
                                 request_.draft_temperature));
  }
  // A sequence that shared passes tells little: its cost per row depended on the others.
  if (request_.rules == nullptr || s.steps < SizingConstants::least_steps ||
      s.batch_mean > SizingConstants::most_company) {
    return;
  }
  // The caller's own time, and waiting for other sequences, say nothing of a rule.
  const double taken = s.seconds.draft + s.seconds.verify + s.seconds.sampling;
  const double rate = taken > 0.0 ? tokens / taken * sizer_->plain_seconds() : 0.0;
  if (rate > 0.0) request_.rules->record(request_.options.acceptance, rate, s.tree_size_mean);
}

void Speculator::leave_answer(std::span<const TokenId> answer) {
  if (!lookup_) return;
  const std::lock_guard lock(engine_.mutex);
  engine_.lookups[request_.tenths_of_temperature()].add(lookup_->calibration());
  if (request_.options.lookup == Lookup::engine) engine_.answers.add(answer);
}

double Speculator::draft_temperature() const {
  if (!belief_) return request_.draft_temperature;
  return (request_.greedy() ? request_.draft_temperature : 1.0) / belief_->inverse_temperature();
}

}  // namespace coppice

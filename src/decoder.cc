#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/stopwatch.h"
#include "tree_plan.h"

namespace coppice {
namespace {

// In debug and sanitized builds every tree is validated before it is judged.
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool trees_are_validated = true;
#else
constexpr bool trees_are_validated = false;
#endif

// After tree_size has been settled. A given threshold says itself how far to grow; tree_size is
// then only a cap.
bool sizes_itself(const GenerateOptions& options) {
  if (options.policy == Policy::dyspec_threshold) return options.threshold == 0.0;
  return options.policy != Policy::none && options.tree_size == 0;
}

// Whether positions are valued by what is known of their acceptance.
bool learns_values(const GenerateOptions& options) {
  return (options.policy == Policy::dyspec || options.policy == Policy::dyspec_threshold) &&
         !options.plain_values;
}

// Whether anybody asks what the noise tells of children. A chain without a size ends by it.
bool asks_for_beliefs(const GenerateOptions& options) {
  return learns_values(options) || (options.policy == Policy::chain && sizes_itself(options));
}

SamplingParams params_of(const GenerateOptions& options, double temperature) {
  return {temperature, options.top_k, options.top_p, options.min_p, options.repetition_penalty};
}

}  // namespace

Decoder::Decoder(Engine::Impl& engine, SequenceState& state, const GenerateOptions& options,
                 const PieceCallback& callback)
    : engine_(engine),
      state_(state),
      options_(options),
      callback_(callback),
      prompt_length_(state.length()),
      target_params_(params_of(options, options.temperature)),
      text_(options.stop) {
  const bool greedy = options_.temperature == 0.0;
  const double start = now_seconds();
  const TreePlan plan = plan_trees(options_, engine_.options.max_tree_size);
  planning_seconds_ = now_seconds() - start;
  options_.tree_size = plan.size;
  planned_for_ = plan.planned_for;
  if (engine_.draft.model == nullptr) options_.policy = Policy::none;
  const CostTable* costs = sizes_itself(options_) ? engine_.find_costs() : nullptr;
  // Without memory to measure in there is none to speculate in either.
  if (sizes_itself(options_) && costs == nullptr) options_.policy = Policy::none;

  settle_rule(costs);
  set_up_draft();

  const bool coupled = options_.acceptance == Acceptance::coupled;
  judge_ = engine_.make_judge(greedy ? DeviceNoise::top
                                     : (coupled ? DeviceNoise::coupled : DeviceNoise::sampled));

  const bool automatic = sizes_itself(options_);
  if (automatic) {
    const bool by_node = options_.policy == Policy::dyspec;
    auto_size_ = std::make_unique<AutoSize>(
        *costs, engine_.costs_are_saved ? nullptr : &engine_.correction, draft_setting_.draw,
        by_node ? engine_.options.max_tree_size : 0);
  }
  if (learns_values(options_) && !auto_size_) {
    calibration_ = std::make_unique<AcceptanceCalibration>(draft_setting_.draw);
  }
  policy_ = make_policy(options_, plan, auto_size_.get(), calibration_.get());
  tree_.reserve(engine_.options.max_tree_size + 1);
}

// Large trees gain by coupled acceptance where they know the noise (sizing/rule_choice.h). Sizes
// that repeat themselves are judged by the same rule every time.
void Decoder::settle_rule(const CostTable* costs) {
  const bool open = options_.acceptance == Acceptance::automatic;
  options_.acceptance = settled_acceptance(options_);
  if (!open || options_.temperature == 0.0 || !learns_values(options_)) return;
  const std::lock_guard lock(engine_.mutex);
  RuleChoice fixed;
  const bool learns = costs != nullptr && !engine_.costs_are_saved;
  if (learns) {
    rules_ = &engine_.rules[{options_.policy, std::lround(10.0 * options_.temperature)}];
  }
  const std::int32_t most = engine_.options.max_tree_size;
  const double nodes =
      costs != nullptr ? RuleChoice::usual_nodes(*costs, most) : options_.tree_size;
  options_.acceptance = (learns ? *rules_ : fixed).choose(nodes);
}

void Decoder::learn_rule() {
  const Statistics& s = result_.statistics;
  if (rules_ == nullptr || s.steps < SizingConstants::least_steps) return;
  const std::lock_guard lock(engine_.mutex);
  const double rate = s.decode_tokens_per_second * auto_size_->plain_seconds();
  if (rate > 0.0) rules_->record(options_.acceptance, rate, s.tree_size_mean);
}

// Rejection draws children at the draft temperature, by default the target's. Elsewhere the draft
// only ranks: the draft temperature is the belief's, by default one that is learned.
void Decoder::set_up_draft() {
  const bool greedy = options_.temperature == 0.0, given = options_.draft_temperature >= 0.0;
  if (!given) {
    options_.draft_temperature = greedy ? default_greedy_draft_temperature : options_.temperature;
  }
  draft_setting_.draw = child_draw(options_);
  draft_setting_.uniforms_judge = options_.temperature > 0.0;
  believes_ = draft_setting_.draw != ChildDraw::sampled && engine_.draft_runner != nullptr;
  const bool fixed_belief = believes_ && given && !greedy;
  if (fixed_belief) draft_setting_.sharpness = 1.0 / options_.draft_temperature;
  draft_setting_.params =
      params_of(options_, fixed_belief ? options_.temperature : options_.draft_temperature);
  if (!asks_for_beliefs(options_)) {
    believes_ = false;
    draft_setting_.sharpness = 0.0;
  }
  if (believes_ && !given) {
    belief_.emplace(BeliefTemperature::usual(options_.temperature, options_.draft_temperature));
    draft_setting_.sharpness = belief_->sharpness();
  }
}

// By the tokens that came after the nodes that the draft has evaluated.
void Decoder::learn_belief() {
  DraftSampler& sampler = engine_.draft_runner->sampler();
  std::int32_t node = 0;
  for (std::size_t i = 0; i <= verdict_.path.size(); ++i) {
    const bool last = i == verdict_.path.size();
    const TokenId token =
        last ? verdict_.bonus : tree_.token[static_cast<std::size_t>(verdict_.path[i])];
    const std::int32_t source = tree_.source[static_cast<std::size_t>(node)];
    if (const auto seen = sampler.evidence(source, token)) belief_->observe(*seen);
    if (!last) node = verdict_.path[i];
  }
  draft_setting_.sharpness = belief_->sharpness();
}

Generation Decoder::run() {
  const double start = now_seconds();
  if (state_.length() >= engine_.target.model->max_positions()) {
    finished_ = FinishReason::context;
  }
  if (options_.max_new_tokens == 0 && !finished_) finished_ = FinishReason::length;
  if (!finished_) prefill();
  while (!finished_) {
    {
      const std::lock_guard lock(engine_.mutex);
      const DeviceScope scope(*engine_.device);
      const DraftRunner::Step draft = grow();
      const TargetRunner::Pass pass = judge();
      if (!pass) {
        finished_ = FinishReason::memory;
        break;
      }
      accept();
      count_step();
    }
    emit();
  }
  finish(planning_seconds_ + now_seconds() - start - observer_seconds_);
  return std::move(result_);
}

// The draft's turn comes when the first token, which does not need it, has been handed on.
void Decoder::prefill() {
  {
    const std::lock_guard lock(engine_.mutex);
    const DeviceScope scope(*engine_.device);
    const double start = now_seconds(), observed_before = observer_seconds_;
    if (!prefill_target()) finished_ = FinishReason::memory;
    result_.statistics.seconds.prefill +=
        now_seconds() - start - (observer_seconds_ - observed_before);
  }
  if (first_with_prefill_) emit();
  if (finished_) return;
  const std::lock_guard lock(engine_.mutex);
  const DeviceScope scope(*engine_.device);
  prefill_draft();
}

// Where tokens before the root lack KV, the last of them and the root take one pass, and the first
// token is sampled from the root's row, as in a plain step. Else there is nothing to do. False: too
// few slots.
bool Decoder::prefill_target() {
  TargetRunner& target = *engine_.target_runner;
  if (TargetRunner::late_rows(state_) == 0) return true;
  if (!target.prefill_to_last_pass(state_)) return false;
  begin_step();
  speculate_ = false;
  const TargetRunner::Pass pass = judge();
  if (!pass) return false;
  accept();
  first_with_prefill_ = true;
  return true;
}

void Decoder::prefill_draft() {
  // A tree is for two tokens at least.
  if (policy_ == nullptr || !draft_can_follow() || tokens_left() < 2) return;
  DraftRunner& draft = *engine_.draft_runner;
  const Stopwatch timing(result_.statistics.seconds.prefill);
  double fit = 1.0;
  draft.prefill(state_, draft_setting_.params, fit);  // short of slots: steps will be plain
  if (auto_size_ != nullptr) auto_size_->begin_text(fit);
  result_.statistics.draft_passes += draft.passes();
}

std::int32_t Decoder::tokens_left() const {
  return std::min(options_.max_new_tokens - static_cast<std::int32_t>(result_.tokens.size()),
                  engine_.target.model->max_positions() - state_.length());
}

// Not past its own context, and not over tokens that it has no vocabulary row for.
bool Decoder::draft_can_follow() const {
  return state_.largest_token < engine_.draft.model->config().vocab_size &&
         state_.length() < engine_.draft.model->max_positions();
}

// Bounds of this step's tree. They depend on what is known before the step alone.
void Decoder::plan_growth() {
  const std::int32_t left = tokens_left();
  limits_ = {};
  speculate_ = policy_ != nullptr && draft_can_follow();
  if (!speculate_) return;

  // The bonus token needs no row: a tree of depth d can yield d + 1 tokens.
  const std::int32_t draft_context = engine_.draft.model->max_positions();
  limits_.max_depth = std::min(left - 1, draft_context - state_.length());
  limits_.max_size = options_.tree_size > 0 ? options_.tree_size : engine_.options.max_tree_size;
  limits_.max_size = std::min({limits_.max_size, engine_.target_runner->free_slots() - 1,
                               engine_.draft_runner->room(state_)});
  if (auto_size_ != nullptr) {
    speculate_ = auto_size_->begin_step(state_.length());
    if (options_.policy == Policy::chain) {
      limits_.max_size = std::min(limits_.max_size, SizingConstants::deepest);
    }
  }
  if (options_.policy == Policy::custom && options_.tree_depth > 0) {
    limits_.max_depth = std::min(limits_.max_depth, options_.tree_depth);
  }
  if (options_.policy == Policy::dyspec_threshold) {
    limits_.min_value = auto_size_ != nullptr ? auto_size_->threshold() : options_.threshold;
  }
  speculate_ = speculate_ && limits_.max_depth > 0 && limits_.max_size > 0;
}

// Also before the pass that ends a prefill: its noise is a step's.
void Decoder::begin_step() {
  // Counted before anything can fail: a step that did has used its noise.
  key_ = {options_.seed, options_.stream, state_.steps++,
          static_cast<std::uint64_t>(state_.length())};
  tree_.reset(state_.tokens.back());
  step_seconds_ = {};
  began_ = now_seconds();
  began_cpu_ = thread_cpu_seconds();
}

DraftRunner::Step Decoder::grow() {
  plan_growth();
  begin_step();
  if (!speculate_) return nullptr;
  DraftRunner& draft = *engine_.draft_runner;
  const double start = now_seconds();
  DraftRunner::Step step = draft.begin(state_, key_, draft_setting_);
  policy_->grow(draft, limits_, tree_);
  if constexpr (trees_are_validated) {
    tree_.validate(static_cast<std::int32_t>(engine_.target.model->config().vocab_size));
  }
  const double rest = now_seconds() - start - draft.seconds().draft;
  step_seconds_ = draft.seconds();
  step_seconds_.construction = rest - step_seconds_.drawing;
  result_.statistics.seconds.draft += step_seconds_.draft;
  sampling_seconds_ += rest;
  result_.statistics.draft_passes += draft.passes();
  return step;
}

TargetRunner::Pass Decoder::judge() {
  const DraftEvidence* drafted = speculate_ ? &engine_.draft_runner->sampler() : nullptr;
  TargetRunner::Pass pass =
      judge_->judge(state_, tree_, target_params_, drafted, key_, verdict_, step_seconds_);
  if (pass) note_logprobs();
  if (pass && engine_.observer) show_step();
  return pass;
}

void Decoder::show_step() {
  const double start = now_seconds();
  const DraftRunner* draft = speculate_ ? engine_.draft_runner.get() : nullptr;
  const bool by_chances = speculate_ && learns_values(options_);
  const AcceptanceCalibration* calibration =
      auto_size_ ? &auto_size_->calibration() : calibration_.get();
  engine_.observer({state_, tree_, verdict_, *engine_.target_runner,
                    draft != nullptr ? &draft->sampler() : nullptr, target_params_,
                    draft_setting_.params, key_, draft != nullptr ? draft->passes() : 0,
                    step_seconds_, engine_.target_runner->late_rows(),
                    by_chances ? calibration : nullptr});
  observer_seconds_ += now_seconds() - start;
}

void Decoder::note_logprobs() {
  step_logprobs_.clear();
  if (!options_.logprobs) return;
  std::int32_t node = 0;
  for (const std::int32_t next : verdict_.path) {
    note_logprob(node, tree_.token[static_cast<std::size_t>(next)]);
    node = next;
  }
  note_logprob(node, verdict_.bonus);
}

void Decoder::accept() {
  engine_.target_runner->commit(verdict_.path);
  if (speculate_) engine_.draft_runner->commit(tree_, verdict_.path);
  for (const std::int32_t node : verdict_.path) {
    state_.append(tree_.token[static_cast<std::size_t>(node)]);
  }
  state_.append(verdict_.bonus);
}

// The share of the step in which this thread had its processor. On a GPU the host's part is small,
// and it may sleep while it waits.
double Decoder::share_run() const {
  if (!engine_.device->shares_host_memory()) return 1.0;
  return (thread_cpu_seconds() - began_cpu_) / (now_seconds() - began_);
}

// What the first token's pass, which is no step, must not count in.
void Decoder::count_step() {
  Statistics& s = result_.statistics;
  ++s.steps;
  s.seconds.verify += step_seconds_.verify;
  sampling_seconds_ += step_seconds_.judging;
  judged_ += static_cast<std::int64_t>(verdict_.path.size()) + 1;
  drafted_ += tree_.size();
  const std::int64_t passes = speculate_ ? engine_.draft_runner->passes() : 0;
  if (auto_size_) auto_size_->observe(tree_.nodes(), passes, step_seconds_, share_run());
  if (auto_size_ && speculate_) auto_size_->record(tree_, verdict_.path, passes);
  if (auto_size_ && !speculate_) auto_size_->record_plain();
  if (calibration_ && speculate_) calibration_->record(tree_, verdict_.path);
  if (belief_ && speculate_) learn_belief();
}

void Decoder::note_logprob(std::int32_t node, TokenId token) {
  TargetRunner& target = *engine_.target_runner;
  std::span<const float> probs;
  if (target_params_.temperature > 0.0) {
    probs = target.distribution(node);
  } else {
    probs = target.distribution_at(node, {1.0, 0, 1.0, 0.0, target_params_.repetition_penalty});
  }
  const auto log_of = [&](TokenId t) {
    return std::log(static_cast<double>(probs[static_cast<std::size_t>(t)]));
  };
  TokenLogprob entry{token, log_of(token), {}};
  const auto count = std::min<std::size_t>(5, probs.size());
  std::vector<TokenId> ids(probs.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](TokenId a, TokenId b) {
                      const float pa = probs[static_cast<std::size_t>(a)];
                      const float pb = probs[static_cast<std::size_t>(b)];
                      return pa != pb ? pa > pb : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i) {
    if (probs[static_cast<std::size_t>(ids[i])] > 0.0f)
      entry.top.emplace_back(ids[i], log_of(ids[i]));
  }
  step_logprobs_.push_back(std::move(entry));
}

// Hands the step's tokens on, one by one, until one of them ends the text. Tokens that are not
// part of the result are taken back from the sequence.
void Decoder::emit() {
  const auto step_tokens = static_cast<std::int32_t>(verdict_.path.size()) + 1;
  const std::int32_t first = state_.length() - step_tokens;
  std::int32_t used = 0;
  while (used < step_tokens && !finished_) {
    const TokenId token = state_.tokens[static_cast<std::size_t>(first + used)];
    if (emit_token(token) && options_.logprobs) {
      result_.logprobs.push_back(std::move(step_logprobs_[static_cast<std::size_t>(used)]));
    }
    ++used;
  }
  if (!finished_ && state_.length() >= engine_.target.model->max_positions()) {
    finished_ = FinishReason::context;
  }
  if (finished_) {
    state_.cut(prompt_length_ + static_cast<std::int32_t>(result_.tokens.size()));
  }
  const std::string text = text_.release(finished_.has_value());
  result_.text += text;
  std::span<const TokenId> tokens(result_.tokens);
  tokens = tokens.subspan(std::min(handed_out_, tokens.size()));
  handed_out_ = std::max(handed_out_, result_.tokens.size());
  if (callback_ && (!text.empty() || !tokens.empty())) {
    if (!callback_({text, tokens}) && !finished_) {
      finished_ = FinishReason::cancelled;
      result_.text += text_.release(true);
    }
  }
}

// True when the token belongs to the result.
bool Decoder::emit_token(TokenId token) {
  const auto& eos = engine_.target.model->config().eos_tokens;
  if (!options_.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end()) {
    finished_ = FinishReason::eos;
    return false;
  }
  result_.tokens.push_back(token);
  const bool stopped =
      text_.push(engine_.tokenizer ? engine_.tokenizer->bytes_of(token) : std::string());
  if (stopped) {
    finished_ = FinishReason::stop;
    result_.tokens.resize(text_.tokens_before_stop());
    if (result_.logprobs.size() > result_.tokens.size()) {
      result_.logprobs.resize(result_.tokens.size());
    }
    return false;
  }
  if (static_cast<std::int32_t>(result_.tokens.size()) >= options_.max_new_tokens) {
    finished_ = FinishReason::length;
  }
  return true;
}

void Decoder::finish(double seconds) {
  Statistics& s = result_.statistics;
  const auto count = static_cast<double>(result_.tokens.size());
  const auto steps = static_cast<double>(s.steps);
  s.prefill_tokens = first_with_prefill_ && !result_.tokens.empty() ? 1 : 0;
  const double of_steps = count - s.prefill_tokens;
  result_.finish_reason = *finished_;
  if (s.steps > 0) {
    s.accepted_length = static_cast<double>(judged_) / steps;
    s.emitted_per_step = of_steps / steps;
    s.tree_size_mean = static_cast<double>(drafted_) / steps;
  }
  s.tree_size = options_.policy == Policy::none ? 0 : options_.tree_size;
  s.seconds.load = engine_.load_seconds;
  s.seconds.sampling = sampling_seconds_;
  s.seconds.total = s.seconds.load + seconds;
  s.seconds.other = std::max(
      0.0, seconds - s.seconds.prefill - s.seconds.draft - s.seconds.verify - s.seconds.sampling);
  if (seconds > 0.0) s.tokens_per_second = count / seconds;
  if (seconds > s.seconds.prefill) {
    s.decode_tokens_per_second = of_steps / (seconds - s.seconds.prefill);
  }
  learn_rule();
  s.policy = options_.policy;
  s.policy_name =
      options_.policy == Policy::custom ? options_.custom_policy : name_of(options_.policy);
  if (options_.policy == Policy::sequoia) s.planned_for = planned_for_;
  s.acceptance = options_.acceptance;
  s.temperature = options_.temperature;
  s.draft_temperature = options_.draft_temperature;
  if (belief_) {
    s.draft_temperature =
        (options_.temperature > 0.0 ? 1.0 : s.draft_temperature) / belief_->sharpness();
  }
  s.seed = options_.seed;
  s.device = engine_.device->name();
  s.dtype = name_of(engine_.device->compute_dtype());
  s.kv_dtype = name_of(engine_.device->kv_dtype());
}

JudgedTree Decoder::judge_first_tree() {
  const std::lock_guard lock(engine_.mutex);
  const DeviceScope scope(*engine_.device);
  if (!engine_.target_runner->prefill(state_)) {
    throw_failure("tree: too few KV slots for the prompt; raise kv_tokens");
  }
  prefill_draft();
  const std::int64_t passes_of_prompt = result_.statistics.draft_passes;
  const DraftRunner::Step draft = grow();
  const TargetRunner::Pass pass = judge();
  if (!pass) throw_failure("tree: too few KV slots for the tree; raise kv_tokens");
  JudgedTree judged;
  judged.bonus = verdict_.bonus;
  judged.draft_passes = result_.statistics.draft_passes - passes_of_prompt;
  for (std::size_t n = 0; n < tree_.token.size(); ++n) {
    TreeNode node;
    node.token = tree_.token[n];
    node.parent = tree_.parent[n];
    node.depth = tree_.depth[n];
    node.rank = tree_.rank[n];
    node.draft_prob = static_cast<double>(tree_.draft_prob[n]);
    node.path_prob = tree_.path_prob[n];
    node.value = tree_.value[n];
    node.accepted = n == 0 || std::find(verdict_.path.begin(), verdict_.path.end(),
                                        static_cast<std::int32_t>(n)) != verdict_.path.end();
    judged.nodes.push_back(node);
  }
  // A node's target probability is read from its parent's row.
  for (std::size_t n = 1; n < judged.nodes.size(); ++n) {
    judged.nodes[n].target_prob = static_cast<double>(engine_.target_runner->distribution(
        tree_.parent[n])[static_cast<std::size_t>(tree_.token[n])]);
  }
  return judged;
}

}  // namespace coppice

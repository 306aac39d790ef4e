#include "engine/running_sequence.h"

#include <algorithm>
#include <utility>

#include "base/stopwatch.h"
#include "engine/constraint_impl.h"
#include "engine/layer_plan.h"

namespace coppice {

RunningSequence::RunningSequence(Engine::Impl& on, SequenceState& sequence,
                                 const SettledRequest& asked, const PieceCallback& callback,
                                 TextIndex* index)
    : engine(on),
      request(asked),
      state(sequence),
      speculator(on, asked, index),
      callback_(callback),
      prompt_length_(sequence.length()),
      stream_(asked.options.stop) {
  tree.reserve(engine.options.max_tree_size + 1);
  begin_rules();
  if (asked.options.sampling.counts_new()) {
    state.new_counts = TokenCounts(engine.target.model->config().vocab_size);
  }
  state.bias = asked.bias;
  if (state.length() >= engine.target.model->max_positions()) {
    end(FinishReason::context);
  } else if (request.options.max_new_tokens == 0) {
    end(FinishReason::length);
  }
}

RunningSequence::~RunningSequence() {
  state.rules = nullptr;
  state.new_counts = TokenCounts();
  state.bias.clear();
}

// What may follow: by the constraint, and before min_new_tokens no end.
void RunningSequence::begin_rules() {
  const GenerateOptions& asked = request.options;
  if (const auto* const ruling = ConstraintAccess::generations(asked.constraint)) {
    rules_ = ruling->for_text();
    state.rule_state = rules_->start();
  }
  state.rules = rules_.get();
  if (request.ends.empty()) return;
  least_length_.emplace(state.rules, engine.target.model->config().vocab_size, request.ends,
                        asked.min_new_tokens);
  state.rules = &*least_length_;
  state.rule_state = least_length_->start();
}

// Masks cost time: goes on with the constraint alone, or with nothing, once the text is long
// enough.
void RunningSequence::drop_reached_length() {
  if (!least_length_ || state.rules != &*least_length_ || ended()) return;
  const std::optional<std::int32_t> inner = least_length_->once_reached(state.rule_state);
  if (!inner) return;
  state.rules = least_length_->inner();
  state.rule_state = *inner;
}

void RunningSequence::end_between_steps(FinishReason reason) {
  end(reason);
  release_text();
}

void RunningSequence::join(DraftStartPolicy::Batch& batch, DraftGaps& gaps) const {
  const bool ready = (speculator.begun() && draft_ready_) || !speculator.can_follow(state) ||
                     TargetRunner::prefill_rows(state) > 0;
  speculator.join(batch, gaps, state, tokens_left(), ready);
}

std::optional<DraftPrompt> RunningSequence::draft_prompt(DraftStartPolicy::Batch& batch,
                                                         const DraftGaps& gaps) {
  if (speculator.begun() && draft_ready_) return std::nullopt;
  if (TargetRunner::prefill_rows(state) > 0) return std::nullopt;
  draft_ready_ = false;  // a probe may have found out
  // A tree is for two tokens at least.
  if (speculator.can_follow(state) && tokens_left() >= 2) {
    if (!speculator.begins(batch, gaps, state, tokens_left())) return std::nullopt;
    DraftPrompt prompt{&state, speculator.setting().params};
    if (!prompt.done()) return prompt;
    begin_draft(prompt);
  }
  draft_ready_ = true;
  return std::nullopt;
}

// Begins the draft. Draft KV of the prompt that this sequence did not compute came from the cache.
void RunningSequence::begin_draft(const DraftPrompt& prompt) {
  speculator.begin(prompt);
  if (draft_rows_ < 0) return;
  if (state.draft_from < 0) {
    result_.statistics.cached_draft_tokens =
        std::max(0, std::min(prompt_length_, state.draft_kv()) - draft_rows_);
  }
  draft_rows_ = -1;
}

void RunningSequence::find_shared() {
  const std::int32_t before = state.target_kv();
  state.find_shared();
  if (account.preemptions == 0) result_.statistics.cached_tokens += state.target_kv() - before;
}

void RunningSequence::take_pass(const DraftPrompt& prompt, double seconds, double pass_rows) {
  account.seconds.prefill += seconds;
  speculator.note_prefill(prompt, seconds, pass_rows);
  if (prompt.rows > 0) ++account.draft_passes;
  if (draft_rows_ >= 0) draft_rows_ += prompt.rows;
  if (!prompt.done()) return;
  begin_draft(prompt);
  draft_ready_ = true;
}

void RunningSequence::release_kv() {
  state.release();
  draft_ready_ = false;
  speculator.forget_draft();
}

bool RunningSequence::fold_copies() {
  const PrefixCache* const cache = state.base.cache();
  const std::int32_t kv = state.target_kv();
  if (cache == nullptr || std::min(cache->match(state.tokens), kv) <= state.base.length()) {
    return false;
  }
  release_kv();
  state.base.advance(state.tokens, kv);
  return true;
}

std::int32_t RunningSequence::tokens_left() const {
  return std::min(request.options.max_new_tokens - static_cast<std::int32_t>(result_.tokens.size()),
                  engine.target.model->max_positions() - state.length());
}

std::int32_t RunningSequence::tokens_to_end() const {
  std::int32_t tokens = 0;
  for (const std::int32_t node : verdict.path) {
    ++tokens;
    if (end_by(tree.token[static_cast<std::size_t>(node)])) return tokens;
  }
  return tokens + 1;
}

void RunningSequence::take_tokens(bool of_step) {
  const auto step_tokens = static_cast<std::int32_t>(verdict.path.size()) + 1;
  const std::int32_t first = state.length() - step_tokens;
  for (std::int32_t used = 0; used < step_tokens && !ended(); ++used) {
    const TokenId token = state.tokens[static_cast<std::size_t>(first + used)];
    if (take(token, of_step) && request.options.logprobs) {
      result_.logprobs.push_back(std::move(logprobs[static_cast<std::size_t>(used)]));
    }
  }
  if (!ended() && state.length() >= engine.target.model->max_positions()) {
    end(FinishReason::context);
  }
  if (ended()) state.cut(prompt_length_ + static_cast<std::int32_t>(result_.tokens.size()));
  drop_reached_length();
  release_text();
}

// What is safe to show, or all at the sequence's end.
void RunningSequence::release_text() {
  const std::string text = stream_.release(ended());
  result_.text += text;
  if (callback_) piece_ += text;
}

bool RunningSequence::has_piece() const {
  return callback_ && (!piece_.empty() || delivered_ < result_.tokens.size());
}

void RunningSequence::call_back() {
  if (!has_piece()) return;
  const std::string text = std::exchange(piece_, {});
  std::span<const TokenId> tokens(result_.tokens);
  // A stop text may have taken some back.
  tokens = tokens.subspan(std::min(delivered_, tokens.size()));
  std::span<const TokenLogprob> of_tokens(result_.logprobs);
  if (!of_tokens.empty()) of_tokens = of_tokens.last(tokens.size());
  delivered_ = std::max(delivered_, result_.tokens.size());
  if (callback_({text, tokens, of_tokens}) || ended()) return;
  end(FinishReason::cancelled);
  result_.text += stream_.release(true);
}

std::optional<FinishReason> RunningSequence::end_by(TokenId token) const {
  const auto has = [&](const auto& tokens) {
    return std::ranges::find(tokens, token) != tokens.end();
  };
  if (has(request.options.stop_tokens)) return FinishReason::stop;
  if (!request.options.ignore_eos && has(engine.target.model->config().eos_tokens)) {
    return FinishReason::eos;
  }
  return std::nullopt;
}

// True when the token belongs to the result.
bool RunningSequence::take(TokenId token, bool of_step) {
  if (const auto reason = end_by(token)) {
    end(*reason);
    step_brought_end_ = of_step;
    return false;
  }
  if (!of_step) with_prefill_.push_back(result_.tokens.size());
  result_.tokens.push_back(token);
  const Tokenizer* const tokenizer = engine.tokenizer.get();
  const bool stopped = tokenizer != nullptr &&
                       stream_.push(tokenizer->bytes_of(token), tokenizer->added_text(token));
  if (stopped) {
    stopped_by_text_ = true;
    end(FinishReason::stop);
    result_.tokens.resize(stream_.tokens_before_stop());
    if (result_.logprobs.size() > result_.tokens.size()) {
      result_.logprobs.resize(result_.tokens.size());
    }
    return false;
  }
  if (static_cast<std::int32_t>(result_.tokens.size()) >= request.options.max_new_tokens) {
    end(FinishReason::length);
  }
  return true;
}

Generation RunningSequence::finish(double seconds) {
  const GenerateOptions& options = request.options;
  if (stopped_by_text_) ++state.epoch;  // a sequence that failed is undone instead
  Statistics& s = result_.statistics;
  const auto count = static_cast<double>(result_.tokens.size());
  const auto steps = static_cast<double>(account.steps);
  seconds -= account.observer_seconds;
  s.steps = account.steps;
  s.draft_passes = account.draft_passes;
  // A stop text may have taken some of them back.
  s.prefill_tokens = static_cast<std::int32_t>(std::ranges::count_if(
      with_prefill_, [&](std::size_t at) { return at < result_.tokens.size(); }));
  s.looked_up = account.looked_up;
  s.looked_up_accepted = account.looked_up_accepted;
  s.queue_seconds = account.queue_seconds;
  s.preemptions = account.preemptions;
  s.preparing_seconds = account.preparing_seconds;
  const double of_steps = count - s.prefill_tokens;
  result_.finish_reason = *ended_;
  if (s.steps > 0) {
    s.accepted_length = (of_steps + (step_brought_end_ ? 1.0 : 0.0)) / steps;
    s.emitted_per_step = of_steps / steps;
    s.tree_size_mean = static_cast<double>(account.drafted) / steps;
    s.batch_mean = account.batch / steps;
  }
  s.seconds = account.seconds;
  s.seconds.load = engine.load_seconds;
  s.seconds.total = s.seconds.load + seconds;
  const double decoding = s.decode_seconds();
  s.seconds.other =
      std::max(0.0, decoding - s.seconds.draft - s.seconds.verify - s.seconds.sampling);
  if (seconds > 0.0) s.tokens_per_second = count / seconds;
  if (decoding > 0.0) s.decode_tokens_per_second = of_steps / decoding;
  speculator.learn_pair(s);
  speculator.leave_answer(result_.tokens);
  Used& used = result_.used;
  used.policy = name_of(options.speculation);
  if (!std::holds_alternative<Plain>(options.speculation)) {
    used.tree_size = request.plan.size;
    used.planned_for = request.plan.planned_for;
  }
  used.lookup = options.lookup;
  used.constrained = static_cast<bool>(options.constraint);
  used.acceptance = options.acceptance;
  used.temperature = options.sampling.temperature;
  used.presence_penalty = options.sampling.presence_penalty;
  used.frequency_penalty = options.sampling.frequency_penalty;
  used.min_new_tokens = options.min_new_tokens;
  used.biased_tokens = static_cast<std::int32_t>(options.logit_bias.size());
  used.draft_temperature = speculator.draft_temperature();
  used.seed = options.seed;
  used.target_layers = placement_of(*engine.target.model);
  used.target_devices = engine.target.model->ranks();
  if (engine.draft.model) {
    used.draft_layers = placement_of(*engine.draft.model);
    used.draft_devices = static_cast<std::int32_t>(engine.draft.model->devices().size());
  }
  used.device = engine.device->name();
  used.dtype = compute_name(*engine.target.model);
  used.kv_dtype = name_of(engine.device->kv_dtype());
  used.target_weights = engine.target.model->quantised_formats();
  if (request.has_draft) used.draft_weights = engine.draft.model->quantised_formats();
  return std::move(result_);
}

}  // namespace coppice

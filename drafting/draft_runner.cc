#include "drafting/draft_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"

namespace coppice {
namespace {

/// Most tokens that a step's first pass catches up with.
constexpr std::int32_t longest_lag = 64;
/// Last tokens that the draft catches up with where it lacks more.
constexpr std::int32_t caught_up = 32;

[[noreturn]] void throw_no_room() {
  throw RoomError(ErrorKind::failure,
                  "draft: no KV slot is left for the text so far; raise kv_tokens");
}

bool is_root(std::span<const std::int32_t> nodes) { return nodes.size() == 1 && nodes[0] == 0; }

}  // namespace

// --- one text's step --------------------------------------------------------------------------

DraftStep::DraftStep(DraftRunner& runner)
    : runner_(runner), sampler_(runner.sampling_->make()), slots_(&runner.pool_) {}

void DraftStep::evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) {
  const DraftRunner::StepNodes frontier{this, &candidates, nodes};
  runner_.evaluate({&frontier, 1});
}

void DraftStep::forget(std::span<const std::int32_t> nodes) {
  sampler_->forget(nodes);
  for (const std::int32_t node : nodes) {
    const auto n = static_cast<std::size_t>(node);
    if (n >= slot_index_.size() || slot_index_[n] < 0) continue;
    slots_.give_back(std::exchange(slot_index_[n], -1));
  }
}

// What a device has drawn is looked up, in less time than the clock: that counts as construction.
template <typename Call>
auto DraftStep::timed(const Call& call) {
  if (sampler_->distributions() == nullptr) return call();
  const Stopwatch timing(seconds_.drawing);
  return call();
}

std::optional<DrawnChild> DraftStep::child(const TokenTree& candidates, std::int32_t node,
                                           std::int32_t rank) {
  std::optional<DrawnChild> drawn = timed([&] { return sampler_->child(candidates, node, rank); });
  if (drawn && !uniforms_judge_) drawn->uniform = -1.0f;
  return drawn;
}

double DraftStep::belief_of(const TokenTree& candidates, std::int32_t node, TokenId token) {
  return timed([&] { return sampler_->belief_of(candidates, node, token); });
}

double DraftStep::expected_share(std::int32_t node) {
  return timed([&] { return sampler_->expected_share(node); });
}

void DraftStep::commit(const TokenTree& tree, std::span<const std::int32_t> path) {
  for (const std::int32_t node : path) {
    const auto candidate = static_cast<std::size_t>(tree.candidate[static_cast<std::size_t>(node)]);
    if (candidate >= slot_index_.size() || slot_index_[candidate] < 0) break;
    state_->draft_slots.keep(slots_, slot_index_[candidate]);
  }
}

// --- steps ------------------------------------------------------------------------------------

DraftRunner::DraftRunner(Model& model, KvPool& pool, std::unique_ptr<DraftSampling> sampling)
    : model_(model),
      pool_(pool),
      prefix_(model, pool, PassLayout::Of::draft),
      sampling_(std::move(sampling)),
      prefill_(model, pool, *sampling_) {}

DraftRunner::Step DraftRunner::begin(SequenceState& state, const StepKey& key,
                                     const Setting& setting) {
  if (free_steps_.empty()) {
    free_steps_.reserve(steps_.size() + 1);  // so that no step's end can fail
    steps_.push_back(std::make_unique<DraftStep>(*this));
    free_steps_.push_back(steps_.back().get());
  }
  Step step(free_steps_.back());
  free_steps_.pop_back();
  // A step that failed may have evaluated the root already.
  state.cut_draft(state.length() - 1);
  step->state_ = &state;
  step->uniforms_judge_ = setting.uniforms_judge;
  step->passes_ = 0;
  step->seconds_ = {};
  step->sampler_->begin(state, key, setting.params, setting.draw, setting.inverse_temperature);
  return step;
}

void DraftRunner::EndStep::operator()(DraftStep* step) const { step->runner_.end(step); }

void DraftRunner::end(DraftStep* step) {
  step->slots_.cut(0);
  step->slot_index_.clear();
  step->sampler_->end();
  free_steps_.push_back(step);
}

void DraftRunner::plant(DrawingFault fault) {
  sampling_->plant(fault);
  for (const auto& step : steps_) step->sampler_ = sampling_->make();
}

std::int32_t DraftRunner::lag(const SequenceState& state) {
  return std::min(missing(state), longest_lag);
}

std::int32_t DraftRunner::after_long_lag(const SequenceState& state) {
  return missing(state) > longest_lag ? caught_up : missing(state);
}

std::int32_t DraftRunner::room(std::int32_t lag, std::int32_t texts) const {
  return std::clamp((pool_.free_slots() - lag) / texts, 0, model_.options().max_rows - 1);
}

bool DraftRunner::prefill(std::span<DraftPrompt> prompts) {
  if (!prefill_.pass(prompts)) return false;
  ++passes_;
  return true;
}

bool DraftRunner::prefill(DraftPrompt& prompt) {
  while (!prompt.done() && prefill({&prompt, 1})) {
  }
  return !prompt.out_of_slots;
}

// --- passes -----------------------------------------------------------------------------------

/// Takes back the slots of texts' tokens, unless their KV was computed after all.
struct DraftRunner::RootGuard {
  std::span<const StepNodes> frontiers;
  bool computed = false;

  ~RootGuard() {
    for (const StepNodes& of_text : frontiers) {
      const std::int32_t before = std::exchange(of_text.step->root_before_, -1);
      if (!computed && before >= 0) of_text.step->state_->draft_slots.cut(before);
    }
  }
};

void DraftRunner::evaluate(std::span<const StepNodes> frontiers) {
  while (!frontiers.empty()) frontiers = frontiers.subspan(run_pass(frontiers));
}

void DraftRunner::evaluate(std::span<const GrowingText> texts) {
  frontiers_.clear();
  for (const GrowingText& text : texts) {
    if (text.step == nullptr || text.frontier().empty()) continue;
    frontiers_.push_back({text.step, &text.policy.growth().candidates, text.frontier()});
  }
  evaluate(frontiers_);
}

// Skips a long stretch of plain decoding but for its end: a trial of speculation
// must stay cheap, and the draft guesses well enough from the recent past. Any draft
// distribution is exact, so nothing else depends on the gap.
void DraftRunner::skip_long_lag(SequenceState& state) {
  if (missing(state) > longest_lag) state.skip_draft(state.length() - caught_up);
}

// Lists the leading texts' rows, as many as fit, and runs their pass. Returns how many they are.
std::size_t DraftRunner::run_pass(std::span<const StepNodes> frontiers) {
  const ModelOptions& options = model_.options();
  sampled_.clear();
  rows_of_text_.clear();
  segments_.clear();
  write_slots_.clear();
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  layout_.begin(PassLayout::Of::draft);
  RootGuard guard{frontiers};
  std::size_t texts = 0, rows = 0, logits = 0;
  for (const StepNodes& of_text : frontiers) {
    DraftStep& step = *of_text.step;
    const SequenceState& state = *step.state_;
    const bool root = is_root(of_text.nodes);
    if (root) catch_up(step);
    const std::size_t new_rows =
        root ? static_cast<std::size_t>(missing(state)) : of_text.nodes.size();
    rows += new_rows;
    logits += of_text.nodes.size();
    const bool fits = rows <= static_cast<std::size_t>(options.max_rows) &&
                      logits <= static_cast<std::size_t>(options.max_logit_rows);
    if (!fits && texts > 0) break;
    take_slots(of_text);
    rows_of_text_.push_back(static_cast<double>(new_rows));
    ++texts;
  }
  for (std::size_t t = 0; t < texts; ++t) {
    const DraftStep& step = *frontiers[t].step;
    const std::span<const KvSlot> own = step.state_->draft_slots.all();
    const bool root = step.root_before_ >= 0;
    layout_.add(step.state_->base,
                root ? own.first(static_cast<std::size_t>(step.root_before_)) : own,
                static_cast<std::int32_t>(rows_of_text_[t]), step.state_->draft_begin());
  }
  layout_.arrange();
  for (const std::int32_t index : layout_.order()) {
    const StepNodes& of_text = frontiers[static_cast<std::size_t>(index)];
    layout_.list_before(index, segments_);
    if (is_root(of_text.nodes)) {
      queue_root(of_text);
    } else {
      queue_nodes(of_text);
    }
  }
  const double all_rows = static_cast<double>(tokens_.size());
  sampling_->begin_pass();
  for (const auto& [step, candidates, nodes] : sampled_) step->sampler_->stage(*candidates, nodes);
  PassEpilogue* const epilogue = sampling_->epilogue();
  const float* result = nullptr;
  double draft_seconds = 0.0, drawing_seconds = 0.0;
  {
    const Stopwatch timing(draft_seconds);
    result = model_.forward({tokens_, positions_, write_slots_, segments_, logit_rows_}, pool_,
                            epilogue);
    sampling_->collect(result);
  }
  guard.computed = true;
  ++passes_;
  {
    const Stopwatch timing(drawing_seconds);
    for (const auto& [step, candidates, nodes] : sampled_) step->sampler_->take(*candidates, nodes);
  }
  for (std::size_t t = 0; t < texts; ++t) {
    DraftStep& step = *frontiers[t].step;
    const double share = rows_of_text_[t] / all_rows;
    ++step.passes_;
    step.seconds_.draft += share * draft_seconds;
    step.seconds_.drawing += share * drawing_seconds;
    if (is_root(frontiers[t].nodes)) step.seconds_.first_draft = step.seconds_.draft;
  }
  return texts;
}

std::int32_t DraftRunner::missing(const SequenceState& state) {
  return state.length() - state.draft_kv();
}

// The root's pass also catches up with what the draft has not seen: accepted leaves it never
// evaluated, the bonus token, or a whole prompt. Here: until the rest fits one pass.
void DraftRunner::catch_up(DraftStep& step) {
  SequenceState& state = *step.state_;
  state.yield_draft();
  skip_long_lag(state);
  // What the tree lacks of the draft's KV is for prefills to compute; this is the text's own.
  if (state.fills_draft()) state.draft_from = state.draft_kv();
  const std::int32_t most = model_.options().max_rows;
  const Stopwatch timing(step.seconds_.draft);
  while (missing(state) > most) {
    if (!prefix_.extend(state.tokens, state.draft_kv() + most, state.base, state.draft_slots,
                        state.draft_begin())) {
      throw_no_room();
    }
    ++passes_;
  }
}

// For the rows of a text: those of tokens are its own at once, until the pass fails.
void DraftRunner::take_slots(const StepNodes& frontier) {
  DraftStep& step = *frontier.step;
  KvSlots& own = step.state_->draft_slots;
  if (is_root(frontier.nodes)) {
    const std::int32_t before = own.size();
    if (!own.take(missing(*step.state_))) throw_no_room();
    step.root_before_ = before;
    return;
  }
  const auto count = static_cast<std::int32_t>(frontier.nodes.size());
  own.make_room(step.slots_.size() + count);  // so that keeping cannot fail
  if (!step.slots_.take(count)) {
    throw RoomError(ErrorKind::failure, cat("draft: ", count, " KV slots wanted for tree nodes, ",
                                            pool_.free_slots(), " are free; raise kv_tokens"));
  }
}

void DraftRunner::queue_root(const StepNodes& frontier) {
  DraftStep& step = *frontier.step;
  const SequenceState& state = *step.state_;
  const std::span<const KvSlot> fresh =
      state.draft_slots.all().subspan(static_cast<std::size_t>(step.root_before_));
  const std::int32_t before = state.draft_begin() + step.root_before_,
                     rows = static_cast<std::int32_t>(fresh.size()),
                     first = static_cast<std::int32_t>(tokens_.size());
  for (std::int32_t row = 0; row < rows; ++row) {
    segments_.push_back({fresh.subspan(static_cast<std::size_t>(row), 1), first + row, first + rows,
                         false, before + row});
    tokens_.push_back(state.tokens[static_cast<std::size_t>(before + row)]);
    positions_.push_back(before + row);
  }
  write_slots_.insert(write_slots_.end(), fresh.begin(), fresh.end());
  logit_rows_.push_back(first + rows - 1);
  sampled_.push_back(frontier);
}

void DraftRunner::queue_nodes(const StepNodes& frontier) {
  DraftStep& step = *frontier.step;
  const TokenTree& candidates = *frontier.candidates;
  step.slot_index_.resize(static_cast<std::size_t>(candidates.nodes()), -1);
  order_rows(step, candidates, frontier.nodes);
  const std::int32_t count = static_cast<std::int32_t>(frontier.nodes.size()),
                     before = step.slots_.size() - count;
  for (std::int32_t i = 0; i < count; ++i) {
    step.slot_index_[static_cast<std::size_t>(step.rows_[static_cast<std::size_t>(i)])] =
        before + i;
  }

  const std::span<const KvSlot> slots = step.slots_.all(),
                                fresh = slots.subspan(static_cast<std::size_t>(before));
  const auto first = static_cast<std::int32_t>(tokens_.size());
  const std::int32_t prefix = step.state_->length();
  for (std::size_t row = 1; row < order_.node_of_row.size(); ++row) {
    const std::size_t past = row + static_cast<std::size_t>(order_.subtree_rows[row]);
    if (new_before_[row] == new_before_[past]) continue;  // no new row descends from it
    const auto node = static_cast<std::size_t>(order_.node_of_row[row]);
    const std::int32_t index = step.slot_index_[node];
    segments_.push_back({slots.subspan(static_cast<std::size_t>(index), 1),
                         first + new_before_[row], first + new_before_[past], index < before,
                         prefix - 1 + candidates.depth[node]});
  }
  write_slots_.insert(write_slots_.end(), fresh.begin(), fresh.end());
  for (const std::int32_t id : step.rows_) {
    const auto node = static_cast<std::size_t>(id);
    logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
    tokens_.push_back(candidates.token[node]);
    positions_.push_back(prefix - 1 + candidates.depth[node]);
  }
  sampled_.push_back({&step, &candidates, step.rows_});
}

// Puts the root, everything evaluated so far and `nodes` in depth-first order: every KV token is
// then seen by one run of the new rows.
void DraftRunner::order_rows(DraftStep& step, const TokenTree& candidates,
                             std::span<const std::int32_t> nodes) {
  constexpr std::int32_t is_new = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t node : nodes) step.slot_index_[static_cast<std::size_t>(node)] = is_new;
  order_.assign(candidates, [&](std::int32_t node) {
    return step.slot_index_[static_cast<std::size_t>(node)] >= 0;
  });
  step.rows_.clear();
  new_before_.clear();
  for (const std::int32_t node : order_.node_of_row) {
    new_before_.push_back(static_cast<std::int32_t>(step.rows_.size()));
    if (step.slot_index_[static_cast<std::size_t>(node)] == is_new) step.rows_.push_back(node);
  }
  new_before_.push_back(static_cast<std::int32_t>(step.rows_.size()));
}

}  // namespace coppice

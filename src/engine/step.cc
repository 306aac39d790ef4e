#include "engine/step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/stopwatch.h"
#include "engine/token_logprob.h"
#include "sizing/constants.h"

namespace coppice {
namespace {

// In debug and sanitized builds every tree is validated before it is judged.
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool trees_are_validated = true;
#else
constexpr bool trees_are_validated = false;
#endif

// Stands in for the draft of a sequence without one: draws nothing.
class NoDraft final : public DraftSource {
 public:
  std::optional<DrawnChild> child(const TokenTree&, std::int32_t, std::int32_t) override {
    return std::nullopt;
  }
};

class NoPasses final : public DraftPasses {
 public:
  void evaluate(std::span<const GrowingText>) override {}
};

}  // namespace

Step::Step(Engine::Impl& engine, TreeJudge& judge, const StepPlan& plan)
    : engine_(engine),
      judge_(judge),
      common_(plan.common),
      processors_(engine.device->shares_host_memory()),
      passes_(*engine.device) {
  parts_.reserve(plan.sequences.size());
  for (const SequencePlan& of : plan.sequences) {
    Part& part = parts_.emplace_back(Part{&of});
    if (!of.judged) continue;
    RunningSequence& sequence = part.sequence();
    part.key = {.seed = sequence.request.options.seed,
                .sequence = sequence.request.options.stream,
                .step = sequence.state.steps++,
                .position = static_cast<std::uint64_t>(sequence.state.length()),
                .epoch = sequence.state.epoch};
    sequence.state.begin_tree(sequence.tree);
  }
}

void Step::grow() {
  std::vector<GrowingText> growing;
  std::vector<Part*> growing_parts;
  NoDraft no_draft;
  NoPasses no_passes;
  const double start = now_seconds();
  for (Part& part : parts_) {
    if (!part.plan->limits) continue;
    RunningSequence& sequence = part.sequence();
    if (part.plan->limits->drafts) {
      part.draft =
          engine_.draft_runner->begin(sequence.state, part.key, sequence.speculator.setting());
    }
    growing_parts.push_back(&part);
  }
  if (growing_parts.empty()) return;
  growing.reserve(growing_parts.size());
  for (Part* const part : growing_parts) {
    RunningSequence& sequence = part->sequence();
    DraftSource& source = part->draft ? static_cast<DraftSource&>(*part->draft) : no_draft;
    GrowthLimits limits = *part->plan->limits;
    limits.rules = sequence.state.rules;
    limits.rule_state = sequence.state.rule_state;
    growing.push_back(
        {sequence.speculator.policy(), source, limits, sequence.tree, nullptr, part->draft.get()});
  }
  DraftPasses* passes = engine_.draft_runner.get();
  if (passes == nullptr) passes = &no_passes;
  grow_trees(growing, *passes, common_);
  double rest = now_seconds() - start, nodes = 0.0;
  for (std::size_t g = 0; g < growing.size(); ++g) {
    Part& part = *growing_parts[g];
    RunningSequence& sequence = part.sequence();
    if (part.draft) part.seconds = part.draft->seconds();
    rest -= part.seconds.draft + part.seconds.drawing;
    sequence.failure = growing[g].failure;
    if (sequence.failure) sequence.state.begin_tree(sequence.tree);
    nodes += sequence.tree.nodes();
  }
  for (Part* const part : growing_parts) {
    RunningSequence& sequence = part->sequence();
    // By the sizes that came of it.
    part->seconds.construction = rest * sequence.tree.nodes() / nodes;
    sequence.account.seconds.draft += part->seconds.draft;
    sequence.account.seconds.sampling += part->seconds.drawing + part->seconds.construction;
    if (part->draft) sequence.account.draft_passes += part->draft->passes();
    if constexpr (trees_are_validated) {
      sequence.tree.validate(static_cast<std::int32_t>(engine_.target.model->config().vocab_size));
    }
  }
}

bool Step::judge() {
  std::vector<TextTree> trees;
  trees.reserve(parts_.size());
  double rows = 0.0;
  for (Part& part : parts_) {
    if (!part.takes_part()) continue;
    RunningSequence& sequence = part.sequence();
    part.in_pass = trees.size();
    rows += part.rows();
    if (part.plan->judged) {
      trees.push_back({&sequence.state, &sequence.tree, sequence.request.options.sampling,
                       sequence.request.rule(), part.key,
                       part.draft ? &part.draft->sampler() : nullptr, &sequence.verdict});
      ++sequences_;
    } else {
      TextTree& chunk = trees.emplace_back();
      chunk.state = &sequence.state;
      chunk.prefill_rows = part.plan->prefill_rows;
    }
  }
  if (trees.empty()) return true;
  StepSeconds seconds;
  pass_ = judge_.judge(trees, seconds);
  if (!pass_) return false;
  engine_.target.model->confirm();
  if (engine_.draft.model) engine_.draft.model->confirm();
  for (Part& part : parts_) {
    if (!part.takes_part()) continue;
    part.share = part.rows() / rows;
    part.seconds.verify = part.share * seconds.verify;
    part.seconds.construction += part.share * seconds.construction;
    part.seconds.judging = part.share * seconds.judging;
    if (!part.plan->judged) continue;
    part.sequence().note_failure([&] {
      part.note_logprobs(pass_->text(part.in_pass));
      if (engine_.observer) show(part);
    });
  }
  return true;
}

void Step::commit() {
  observe();  // first: if it throws, the step may be taken again
  for (Part& part : parts_) {
    if (!part.takes_part()) continue;
    part.sequence().note_failure([&] { part.commit(pass_->text(part.in_pass)); });
  }
}

void Step::Part::commit(TargetRows& target) {
  SequenceState& state = sequence().state;
  if (!plan->judged) {
    target.commit({});
    return state.share(state.target_kv());
  }
  const std::vector<std::int32_t>& path = sequence().verdict.path;
  target.commit(path);
  if (draft) draft->commit(sequence().tree, path);
  for (const std::int32_t node : path) {
    state.append(sequence().tree.token[static_cast<std::size_t>(node)]);
  }
  // Sequences that begin alike need not compute the prompt, too.
  if (plan->prefill_rows > 0) state.share(state.target_kv());
  state.append(sequence().verdict.bonus);
}

void Step::account() {
  const double preparing = passes_.preparing();
  if (sequences_ > 0) engine_.step_counts.count_pass();
  for (Part& part : parts_) {
    if (!part.takes_part()) continue;
    part.sequence().note_failure([&] {
      RunningSequence::Account& account = part.sequence().account;
      if (part.is_step()) {
        account.batch += sequences_;
        const RunningSequence& sequence = part.sequence();
        const std::span<const std::int32_t> path = sequence.verdict.path;
        const auto most = static_cast<std::size_t>(sequence.tokens_to_end());
        engine_.step_counts.count_tree(sequence.tree, path.first(std::min(path.size(), most)));
      }
      account.preparing_seconds += part.share * preparing;
      part.account(work_);
    });
  }
}

// What the step was, and what it took: for all automatic sizes. Its sequences are as they were
// before.
void Step::observe() {
  StepWork& work = work_;
  StepSeconds seconds;
  double tokens = 0.0;
  bool asked = false;
  for (const Part& part : parts_) {
    if (!part.takes_part()) continue;
    seconds += part.seconds;
    if (!part.is_step()) {
      work.prompt_rows += part.rows();
      continue;
    }
    const RunningSequence& sequence = part.sequence();
    work.add(sequence.tree.size(), part.draft ? part.draft->passes() : 0, sequence.state.length());
    tokens += sequence.tokens_to_end();
    asked |= sequence.speculator.asks_for_the_clock();
  }
  if (work.texts > 1 && engine_.batch_sizer) engine_.batch_sizer->record(work, tokens);
  if (asked && passes_.were_usual()) {
    engine_.correction.observe_step(*engine_.costs, work, seconds, disturbed());
  }
}

void Step::Part::account(const StepWork& work) {
  RunningSequence::Account& a = sequence().account;
  if (!is_step()) {
    a.seconds.prefill += seconds.verify + seconds.judging;
    return;
  }
  ++a.steps;
  a.seconds.verify += seconds.verify;
  a.seconds.sampling += seconds.judging;
  a.drafted += sequence().tree.size();
  const auto looked_up = [&](std::int32_t node) { return sequence().tree.is_certain(node); };
  for (std::int32_t node = 1; node < sequence().tree.nodes(); ++node)
    a.looked_up += looked_up(node);
  a.looked_up_accepted += std::ranges::count_if(sequence().verdict.path, looked_up);
  sequence().speculator.learn(sequence().tree, sequence().verdict, sequence().tokens_to_end(),
                              draft.get(), work);
}

// Whether others ran in the place of this thread, or of one that helps it: a pass then waits for
// that one's part. On a GPU the host's part is small.
bool Step::disturbed() const {
  return engine_.device->shares_host_memory() &&
         processors_.disturbed(SizingConstants::least_share_run);
}

void Step::show(Part& part) {
  RunningSequence& sequence = part.sequence();
  const Stopwatch timing(sequence.account.observer_seconds);
  TargetRows& target = pass_->text(part.in_pass);
  engine_.observer({sequence.state, sequence.tree, sequence.verdict, target,
                    part.draft ? &part.draft->sampler() : nullptr,
                    sequence.request.options.sampling, sequence.speculator.setting().params,
                    part.key, part.draft ? part.draft->passes() : 0, part.seconds,
                    target.prefill_rows(), part.draft ? sequence.speculator.calibration() : nullptr,
                    sequence.tokens_to_end()});
}

void Step::Part::note_logprobs(TargetRows& target) const {
  RunningSequence& run = sequence();
  run.logprobs.clear();
  if (!run.request.options.logprobs) return;
  std::int32_t node = 0;
  for (const std::int32_t next : run.verdict.path) {
    note_logprob(target, node, run.tree.token[static_cast<std::size_t>(next)]);
    node = next;
  }
  note_logprob(target, node, run.verdict.bonus);
}

void Step::Part::note_logprob(TargetRows& target, std::int32_t node, TokenId token) const {
  const SamplingParams& params = sequence().request.options.sampling;
  const std::span<const float> probs = params.temperature > 0.0
                                           ? target.distribution(node)
                                           : target.distribution_at(node, params.unfiltered());
  sequence().logprobs.push_back(logprob_of(probs, token, sequence().request.options.top_logprobs));
}

}  // namespace coppice

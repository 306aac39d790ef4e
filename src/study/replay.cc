#include "study/replay.h"

#include <algorithm>

#include "base/error.h"
#include "drafting/expand_rerank.h"
#include "tree_plan.h"

namespace coppice::study {
namespace {

GrowthKind kind_of(const GenerateOptions& options, const TreePlan& plan) {
  GrowthKind kind;
  switch (options.policy) {
    case Policy::dyspec:
      kind.displacement = Displacement::by_value;
      break;
    case Policy::expand_rerank:
      kind.displacement = Displacement::by_value;
      kind.depth = options.tree_depth > 0 ? options.tree_depth : ExpandRerankOptions{}.depth;
      break;
    case Policy::dyspec_threshold:
      kind.displacement = Displacement::by_layer;
      break;
    case Policy::static_tree:
    case Policy::sequoia:
      kind.depth = plan.map.shape.height();
      break;
    case Policy::specinfer:
      kind.depth = static_cast<std::int32_t>(plan.widths.size());
      break;
    case Policy::chain:
    case Policy::custom:
    case Policy::none:
      break;
  }
  return kind;
}

GenerateOptions settled(GenerateOptions options, const RecordingHeader& header) {
  const SamplingParams& target = header.target_params;
  options.temperature = target.temperature;
  options.top_k = target.top_k;
  options.top_p = target.top_p;
  options.min_p = target.min_p;
  options.repetition_penalty = target.repetition_penalty;
  options.draft_temperature = header.draft_params.temperature;
  options.sampled_children = false;
  options.validate();
  if (options.policy == Policy::custom) {
    throw_usage(cat("replay: what policy ", quote(options.custom_policy),
                    " would have made of nodes that are not on record is not known; use the "
                    "policies that coppice has"));
  }
  if (options.calibrate) {
    throw_usage(
        "replay: learned acceptance follows the run it was learned in; leave calibrate out");
  }
  if (options.policy == Policy::none) {
    throw_usage("replay: policy none grows no tree; its accepted length is 1");
  }
  return options;
}

}  // namespace

Replayer::Replayer(const Recording& recording, const GenerateOptions& options)
    : recording_(recording),
      options_(settled(options, recording.header)),
      draw_(child_draw(options_)),
      noise_(LocalVocabulary::size(recording)),
      draft_(recording),
      target_(recording, draft_) {
  const TreePlan plan = plan_trees(options_, largest_tree_size);
  if (plan.size == 0) {
    throw_usage(cat("replay: policy ", name_of(options_.policy),
                    " needs a tree-size; automatic sizes weigh costs, which are not recorded"));
  }
  if (plan.size > largest_tree_size) {
    throw_usage(cat("replay: tree-size ", plan.size, ": use 1 to ", largest_tree_size));
  }
  if (options_.policy == Policy::dyspec_threshold) {
    if (options_.threshold == 0.0) {
      throw_usage(
          "replay: policy dyspec-threshold needs a threshold; automatic ones weigh costs, which "
          "are not recorded");
    }
    limits_.min_value = options_.threshold;
  }
  limits_.max_size = plan.size;
  kind_ = kind_of(options_, plan);
  policy_ = make_policy(options_, plan, nullptr);
  rule_ = draw_ == ChildDraw::top       ? make_greedy_rule()
          : draw_ == ChildDraw::coupled ? make_coupled_rule(noise_)
                                        : make_rejection_rule();
}

Replayer::~Replayer() = default;

std::vector<ReplayedStep> Replayer::replay(const RecordedText& text, std::uint64_t seed) {
  std::vector<ReplayedStep> steps;
  for (std::int32_t position = 0; position < text.length();) {
    // A walk comes to a position once at most, so that it can stand for the step in the noise:
    // settings that meet at a position judge there by the same numbers.
    const auto place = static_cast<std::uint64_t>(text.prompt_tokens + position);
    const StepKey key{seed, static_cast<std::uint64_t>(text.prompt), place, place};
    steps.push_back(step(text, position, key));
    position += steps.back().accepted_length;
  }
  return steps;
}

ReplayedStep Replayer::step(const RecordedText& text, std::int32_t position, const StepKey& key) {
  // As the engine bounds a step of a text of this length.
  GrowthLimits limits = limits_;
  limits.max_depth = std::min(text.length() - position - 1,
                              recording_.header.draft_context - (text.prompt_tokens + position));
  tree_.reset(0);
  draft_.begin(text, position, draw_);
  const std::int64_t passes_before = draft_.passes();
  if (limits.max_depth > 0) policy_->grow(draft_, limits, tree_);
  target_.begin(tree_, draw_ != ChildDraw::sampled);
  rule_->judge(tree_, target_, draft_.distributions(), key, verdict_);
  ReplayedStep step;
  step.position = position;
  step.accepted_length = static_cast<std::int32_t>(verdict_.path.size()) + 1;
  step.bounds = bounds_.find(tree_, limits, kind_, verdict_, draft_, target_,
                             draw_ == ChildDraw::sampled, key);
  step.tree_size = tree_.size();
  step.draft_passes = static_cast<std::int32_t>(draft_.passes() - passes_before);
  step.complete = draft_.shortfalls().empty();
  return step;
}

}  // namespace coppice::study

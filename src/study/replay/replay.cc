#include "study/replay/replay.h"

#include <algorithm>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "engine/step_view.h"

namespace coppice::study {
namespace {

GenerateOptions settled(GenerateOptions options, const RecordingHeader& header) {
  options.sampling = header.target_params;
  options.draft_temperature = header.draft_params.temperature;
  options.sampled_children = false;
  options.acceptance = settled_acceptance(options);
  options.validate();
  if (std::holds_alternative<Custom>(options.speculation)) {
    throw_usage(cat("replay: what policy ", quote(name_of(options.speculation)),
                    " would have made of nodes that are not on record is not known; use the "
                    "policies that coppice has"));
  }
  if (options.lookup == Lookup::automatic) options.lookup = Lookup::none;  // sizes are given
  check_lookup(options);
  if (options.lookup == Lookup::engine) {
    throw_usage(
        "replay: lookup engine looks in what other texts wrote, which is not recorded; use lookup "
        "text");
  }
  const bool plain = std::holds_alternative<Plain>(options.speculation);
  if (plain || (!options.use_draft && options.lookup == Lookup::none)) {
    throw_usage("replay: policy none grows no tree; its accepted length is 1");
  }
  return options;
}

/// Children of the node of a planned shape that has most; 0 where shapes grow.
std::int32_t most_children(const TreePlan& plan) {
  std::int32_t most = 0;
  for (const std::int32_t width : plan.widths) most = std::max(most, width);
  for (std::int32_t node = 0; node <= plan.map.shape.size() && plan.map.shape.size() > 0; ++node) {
    most = std::max(most, plan.map.shape.children(node));
  }
  return most;
}

/// Scatters numbers evenly (the finaliser of splitmix64, Steele et al. 2014).
std::uint64_t scattered(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15u;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9u;
  number = (number ^ (number >> 27)) * 0x94d049bb133111ebu;
  return number ^ (number >> 31);
}

}  // namespace

Replayer::Setting Replayer::setting_of(const Recording& recording, const GenerateOptions& options) {
  const auto lacks_prompt = [](const RecordedText& text) { return text.prompt_ids.empty(); };
  if (asks_for(options.lookup) && std::ranges::any_of(recording.texts, lacks_prompt)) {
    throw_usage(
        "replay: lookup needs the tokens of prompts, which recordings of version 3 lack; record "
        "anew");
  }
  Setting setting;
  setting.options = settled(options, recording.header);
  setting.draw = drawing_rule(setting.options);
  setting.local_vocab = local_vocabulary(recording);
  const Speculation& asked = setting.options.speculation;
  SequoiaTrees sequoia_trees;
  setting.plan = plan_trees(asked, largest_tree_size, sequoia_trees);
  const std::int32_t size = setting.plan.size;
  if (size == 0) {
    throw_usage(cat("replay: policy ", name_of(asked),
                    " needs a tree-size; automatic sizes weigh costs, which are not recorded"));
  }
  if (const auto* above = std::get_if<DyspecThreshold>(&asked)) {
    if (above->threshold == 0.0) {
      throw_usage(
          "replay: policy dyspec-threshold needs a threshold; automatic ones weigh costs, which "
          "are not recorded");
    }
    setting.limits.min_value = above->threshold;
  }
  const std::int32_t most = most_children(setting.plan), recorded = recording.header.top_k;
  if (most > recorded && recorded < recording.header.vocab_size) {
    throw_usage(cat("replay: policy ", name_of(asked), " asks for ", most,
                    " children of a node, and of each the recording holds the first ", recorded,
                    "; record with --entries ", most, ", or ask for fewer"));
  }
  setting.limits.max_size = size;
  setting.limits.drafts = setting.options.use_draft;
  // Others give the places of what is not on record to nodes of lower value.
  setting.fixed_shape = setting.options.use_draft && !std::holds_alternative<Dyspec>(asked) &&
                        !std::holds_alternative<DyspecThreshold>(asked) &&
                        !std::holds_alternative<ExpandRerank>(asked);
  return setting;
}

// Under coupled acceptance the noise has chosen the target's token when the text was recorded.
// What is left of the rule is to follow it, as at temperature 0.
Replayer::Replayer(const Recording& recording, Setting setting)
    : recording_(recording),
      setting_(std::move(setting)),
      policy_(make_policy(setting_.options, setting_.plan, nullptr)),
      verifier_(setting_.draw == AcceptanceRule::rejection ? make_rejection_verifier()
                                                           : make_greedy_verifier()),
      draft_(setting_.local_vocab),
      target_(setting_.local_vocab, draft_),
      lookup_(draft_) {
  if (looks_up()) setting_.limits.proposer = &lookup_;
}

Replayer::Replayer(const Recording& recording, const GenerateOptions& options)
    : Replayer(recording, setting_of(recording, options)) {}

Replayer::Replayer(const Replayer& like) : Replayer(like.recording_, like.setting_) {}

Replayer::~Replayer() = default;

void Replayer::replay(const RecordedText& text, std::uint64_t first_seed, std::uint64_t seeds,
                      const Visit& visit) {
  const std::int32_t first = tokens_with_prefill(static_cast<std::size_t>(text.prompt_tokens));
  next_.assign(static_cast<std::size_t>(seeds), first);
  trees_print_ = 0;
  for (std::size_t walk = 0; looks_up() && walk < next_.size(); ++walk) {
    lookup_.start(text);
    for (std::int32_t& position = next_[walk]; position < text.length();) {
      lookup_.follow(position);
      grow(text, position);
      note_tree(position);
      const ReplayedStep step = judge(text, position, first_seed + walk);
      lookup_.record(tree_, verdict_.path);
      position += step.accepted_length;
      visit(first_seed + walk, step);
    }
  }
  if (looks_up()) return;
  for (std::int32_t position = first; position < text.length(); ++position) {
    bool grown = false;
    for (std::size_t walk = 0; walk < next_.size(); ++walk) {
      if (next_[walk] != position) continue;
      if (!grown) {
        grow(text, position);
        note_tree(position);
      }
      grown = true;
      const std::uint64_t seed = first_seed + walk;
      const ReplayedStep step = judge(text, position, seed);
      next_[walk] += step.accepted_length;
      visit(seed, step);
    }
  }
}

// The recorded draws are all that growth depends on, so that every walk finds the same tree.
void Replayer::grow(const RecordedText& text, std::int32_t position) {
  // As the engine bounds a step of a text of this length.
  GrowthLimits limits = setting_.limits;
  limits.max_depth = text.length() - position - 1;
  if (limits.drafts) {
    limits.max_depth = std::min(limits.max_depth,
                                recording_.header.draft_context - (text.prompt_tokens + position));
  }
  tree_.reset(0);
  draft_.begin(text, position, setting_.draw, has_fixed_shape(), limits.drafts);
  if (limits.max_depth > 0) grow_tree(*policy_, draft_, limits, tree_);
  size_ = tree_.size();
  if (has_fixed_shape() && !draft_.shortfalls().empty()) leave_out_stand_ins();
  target_.begin(tree_);
}

// A node is known by its parent and its token, and a tree by its nodes in any order.
void Replayer::note_tree(std::int32_t position) {
  node_prints_.assign(1, scattered(static_cast<std::uint64_t>(position)));
  trees_print_ += scattered(node_prints_[0] + static_cast<std::uint64_t>(size_));
  for (std::int32_t node = 1; node < tree_.nodes(); ++node) {
    const auto parent = static_cast<std::size_t>(tree_.parent[node]);
    const auto token = static_cast<std::uint64_t>(tree_.token[node]);
    node_prints_.push_back(scattered(node_prints_[parent] ^ scattered(token)));
    trees_print_ += node_prints_.back();
  }
}

// Below a stand-in there is nothing else, so that what is left is a tree.
void Replayer::leave_out_stand_ins() {
  std::swap(tree_, grown_);
  recorded_.clear();
  for (std::int32_t node = 1; node < grown_.nodes(); ++node) {
    if (!RecordedDraft::is_stand_in(grown_, node)) recorded_.push_back(node);
  }
  tree_.assign_part(grown_, recorded_);
}

ReplayedStep Replayer::judge(const RecordedText& text, std::int32_t position, std::uint64_t seed) {
  // A walk comes to a position once at most, so that it can stand for the step in the noise:
  // settings that meet at a position judge there by the same numbers.
  const auto place = static_cast<std::uint64_t>(text.prompt_tokens + position);
  const StepKey key{seed, static_cast<std::uint64_t>(text.prompt), place, place};
  verifier_->judge(tree_, target_, draft_.distributions(), key, verdict_);
  ReplayedStep step;
  step.position = position;
  step.accepted_length = static_cast<std::int32_t>(verdict_.path.size()) + 1;
  step.tree_size = size_;
  const auto looked_up = [&](std::int32_t node) { return tree_.is_certain(node); };
  step.looked_up = static_cast<std::int32_t>(std::ranges::count(tree_.origin, Origin::lookup));
  step.looked_up_accepted =
      static_cast<std::int32_t>(std::ranges::count_if(verdict_.path, looked_up));
  step.draft_passes = draft_.passes();
  step.complete = draft_.shortfalls().empty();
  step.lacks_nodes = draft_.lacks_nodes();
  step.lacks_entries = draft_.lacks_entries();
  const std::int32_t end = verdict_.path.empty() ? 0 : verdict_.path.back();
  step.ended_short =
      std::ranges::find(draft_.shortfalls(), tree_.candidate[end]) != draft_.shortfalls().end();
  return step;
}

}  // namespace coppice::study

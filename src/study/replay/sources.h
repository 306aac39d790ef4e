// A recorded text in the place of the models: what policies and acceptance rules read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/distributions.h"
#include "base/random.h"
#include "drafting/grow.h"
#include "drafting/policy.h"
#include "study/replay/recording.h"
#include "verify/acceptance.h"

namespace coppice::study {

/// A node of a recording: a position of its text, and a node around it. Negative: not recorded.
struct RecordedPlace {
  std::int32_t position = -1;
  std::int32_t node = -1;
  bool recorded() const { return position >= 0; }
};

/// Tokens of a replayed tree are not vocabulary entries: a child of a node is named by its entry
/// there, 0, 1, ..., and three more stand for all tokens that were not recorded, which are never
/// drawn: one that D and T have alike (the overlap), one that D alone has, one that T alone has. So
/// masses, and that of max(T - D, 0), are the recorded node's own. The mass of max(T - c D, 0) for
/// larger c, which judges third and later children, is then at most too large.
///
/// This is how many tokens the largest node has.
inline std::int64_t local_vocabulary(const Recording& recording) { return recording.widest() + 3; }

/// Where growth went beyond the recording.
struct Shortfall {
  std::int32_t node = -1;  ///< of the arena
  /// Value of the first position that is missing below it; an upper bound where it is a later one.
  double value = 0.0;
};

/// The draft, out of a recording.
class RecordedDraft final : public TextDraft {
 public:
  /// `vocab_size`: local_vocabulary().
  explicit RecordedDraft(std::int64_t vocab_size) : distributions_(0, vocab_size) {}

  /// Token of a child that stands for one that is not on record.
  static constexpr TokenId stand_in = -1;
  static bool is_stand_in(const TokenTree& tree, std::int32_t node) {
    return node > 0 && tree.token[node] == stand_in;
  }

  /// Starts a step at a position of a text, which must outlive the step. `stand_ins`: children
  /// that are not on record are drawn as stand-ins, below which all are, so that a tree whose shape
  /// is fixed gets the size and takes the passes that it would have had. They cannot be judged.
  void begin(const RecordedText& text, std::int32_t position, ChildDraw draw, bool stand_ins);
  void evaluate(const TokenTree& arena, std::span<const std::int32_t> nodes) override;
  std::optional<DrawnChild> child(const TokenTree& arena, std::int32_t node,
                                  std::int32_t rank) override;

  RecordedPlace root() const { return {start_, 0}; }
  /// Where the child with this token leads.
  RecordedPlace place_below(RecordedPlace parent, TokenId local_token) const;
  /// Of an evaluated node, by arena node.
  RecordedPlace place(std::int32_t node) const { return nodes_[node].place; }
  bool evaluated(std::int32_t node) const {
    return std::cmp_less(node, nodes_.size()) && nodes_[node].evaluated;
  }
  const RecordedPosition& position(RecordedPlace place) const {
    return text_->positions[place.position];
  }
  const RecordedText& text() const { return *text_; }

  /// D over the local vocabulary, of those nodes that it was written for.
  const DistributionTable& distributions() const { return distributions_; }
  /// Writes D of an evaluated and recorded node, unless this step has done so already. Of a grown
  /// tree's nodes few are judged.
  void write_distribution(std::int32_t node);
  std::span<const Shortfall> shortfalls() const { return shortfalls_; }
  std::int64_t passes() const { return passes_; }

 private:
  struct Node {
    RecordedPlace place;
    std::span<const ChildTable::Child> children;  ///< none where it is not recorded
    bool evaluated = false;
  };

  const ChildTable& children_of(const RecordedPosition& position) const {
    return draw_ == ChildDraw::sampled ? position.sampled : position.settled;
  }
  RecordedPlace led_to(RecordedPlace parent, const ChildTable::Child& child) const;
  bool note_used_up(const TokenTree& arena, std::int32_t node);

  DistributionTable distributions_;
  const RecordedText* text_ = nullptr;
  std::int32_t start_ = 0;
  ChildDraw draw_ = ChildDraw::sampled;
  bool stand_ins_ = false;
  std::vector<Node> nodes_;  ///< by arena node
  std::vector<Shortfall> shortfalls_;
  std::int64_t passes_ = 0;
};

/// The target, out of a recording, at the nodes of a tree that was grown from `draft`. At a node
/// that is not recorded it gives a distribution of a token that no child is: what ends there has
/// the right length, but its bonus token means nothing.
class RecordedTarget final : public TargetSource {
 public:
  explicit RecordedTarget(std::int64_t vocab_size, RecordedDraft& draft)
      : draft_(draft), probs_(static_cast<std::size_t>(vocab_size)) {}
  /// `tree` must outlive its judging.
  void begin(const TokenTree& tree) { tree_ = &tree; }
  /// T, and in the draft's table the node's D, if it may have children: rules look at D only where
  /// they have asked for T.
  std::span<const float> distribution(std::int32_t node) override;
  TokenId argmax(std::int32_t node) override;
  RecordedPlace place(std::int32_t node) const;

 private:
  TokenId none() const { return static_cast<TokenId>(probs_.size()) - 1; }

  RecordedDraft& draft_;
  std::vector<float> probs_;
  const TokenTree* tree_ = nullptr;
};

// How far a replayed step may be from the step that the models would have made.

/// What nodes that could not be grown would have taken from others.
enum class Displacement {
  none,      ///< nothing: the shape is fixed
  by_value,  ///< places of nodes of lower value (DySpec; rerankers, whose value is the path's D)
};

/// How a policy grows, as far as bounds need to know.
struct GrowthKind {
  Displacement displacement = Displacement::none;
  std::int32_t depth = 1 << 20;  ///< most layers
};

struct StepBounds {
  std::int32_t lowest = 1, highest = 1;  ///< accepted length, the bonus token included
  bool ended_short = false;  ///< the walk ended at a node that lacks children for want of records
  bool doubtful = false;     ///< a decision depends on what was not recorded
};

/// Bounds the accepted length of a judged step, the random numbers being the same.
///
/// Growth: a node that is not recorded gets no children, and one whose entries are used up no
/// more. Had they been recorded, nodes would stand below them, at most as many as the tree's size
/// and depth leave room for, and others would have lost their places to them: the lower bound
/// keeps what they could not displace, and the upper bound counts all they could have added where
/// the walk ended at them.
///
/// Decisions, under `rejection` only: with c the residual's scalar (verify/rejection.cc), the
/// mass of max(T - c D, 0) over tokens that are not recorded is known for c = 0 and c = 1, and
/// lies between target_rest - c draft_rest and target_rest - overlap for larger c. So the first
/// two children are judged exactly, later ones with an interval of acceptance; a random number
/// within it is a doubt, and from there on all below that node is open.
class BoundsFinder {
 public:
  /// Looks at a tree as it was grown from `draft`.
  void begin(const TokenTree& tree, const GrowthLimits& limits, const GrowthKind& kind,
             const RecordedDraft& draft);
  /// Of a verdict on that tree; there may be several.
  StepBounds find(const TokenTree& tree, const GrowthKind& kind, const Verdict& verdict,
                  const RecordedDraft& draft, const RecordedTarget& target, bool rejection,
                  const StepKey& key) const;

 private:
  std::int32_t room_below(const TokenTree& tree, const GrowthLimits& limits, const GrowthKind& kind,
                          std::int32_t node) const;
  bool in_doubt(const TokenTree& tree, std::int32_t node, std::uint64_t node_key,
                std::int32_t accepted, const RecordedDraft& draft, const RecordedTarget& target,
                const StepKey& key) const;

  std::vector<std::int32_t> tree_node_;  ///< by arena node, -1: not in the tree
  std::vector<std::int32_t> extra_;      ///< by tree node: levels that may be missing below it
  double largest_missing_ = 0.0;         ///< value of what is missing
  bool grew_short_ = false;
};

}  // namespace coppice::study

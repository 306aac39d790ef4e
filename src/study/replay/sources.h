// A recorded text in the place of the models: what policies and acceptance rules read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/distributions.h"
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

  /// D over the local vocabulary, of those nodes that it was written for.
  const DistributionTable& distributions() const { return distributions_; }
  /// Writes D of an evaluated and recorded node, unless this step has done so already. Of a grown
  /// tree's nodes few are judged.
  void write_distribution(std::int32_t node);
  /// Arena nodes below which growth wanted others that were not recorded.
  std::span<const std::int32_t> shortfalls() const { return shortfalls_; }
  std::int32_t passes() const { return passes_; }  ///< of this step

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
  bool has_others(std::int32_t node) const;

  DistributionTable distributions_;
  const RecordedText* text_ = nullptr;
  std::int32_t start_ = 0;
  ChildDraw draw_ = ChildDraw::sampled;
  bool stand_ins_ = false;
  std::vector<Node> nodes_;  ///< by arena node
  std::vector<std::int32_t> shortfalls_;
  std::int32_t passes_ = 0;
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

}  // namespace coppice::study

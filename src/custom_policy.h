// A drafting policy of one's own: how the draft's token trees grow.
//
//   // The two most promising chains.
//   class TwoChains : public coppice::CustomPolicy {
//     std::vector<std::int32_t> grow(coppice::GrowingTree& tree,
//                                    std::span<const std::int32_t> evaluated) override {
//       std::vector<std::int32_t> tips;
//       for (const std::int32_t node : evaluated) {  // first the root, 0
//         for (int children = node == 0 ? 2 : 1; children > 0 && tree.room() > 0; --children) {
//           if (const auto child = tree.draw(node)) tips.push_back(*child);
//         }
//       }
//       if (tree.room() == 0 || tree.node(tree.nodes() - 1).depth == tree.max_depth()) return {};
//       return tips;  // to be evaluated by the next pass of the draft
//     }
//   };
//
//   options.speculation =
//       coppice::Custom{[] { return std::make_unique<TwoChains>(); }, "two-chains"};
//
// What a policy decides does not change what the text is distributed as. What it draws is in the
// tree at once and stays there, in the order drawn, so whether a token stays cannot depend on the
// token, which is what sampled rejection needs; every decision may look at all that was drawn so
// far. Where any tree is exact (temperature 0 and coupled acceptance), tokens may also be dropped
// again. Two things are left to the policy under sampled rejection. It must not throw because of
// tokens it saw: a caller who then tries again drops them for what they are. And it must not rest
// on what another generation of the same seed and stream drew, which draws the same again: what is
// learned may be shared between different streams.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/api.h"
#include "base/token_id.h"

namespace coppice {

/// One node of a growing tree.
struct DraftNode {
  TokenId token = -1;
  std::int32_t parent = -1;  ///< -1 for the root
  std::int32_t depth = 0;    ///< edges from the root
  std::int32_t rank = 0;     ///< among its siblings, in the order drawn
  double draft_prob = 1.0;   ///< D(token | path), of the processed draft distribution
  double path_prob = 1.0;    ///< product of draft_prob along the path; the root's is 1
};

/// The tree of one step while a policy grows it. Node 0 is the root, the text's last token; nodes
/// are numbered as they are drawn and keep their numbers.
///
/// What breaks a rule throws Error(usage), one line that names the policy, the call and the rule,
/// and ends the generation even where the policy catches it; the engine stays usable.
class COPPICE_API GrowingTree {
 public:
  /// Most nodes of the finished tree, the root not counted; at least 1.
  virtual std::int32_t max_size() const = 0;
  /// Deepest depth that a node may have; at least 1. Nodes of that depth are not evaluated.
  virtual std::int32_t max_depth() const = 0;
  /// Places left: max_size() less the nodes in the tree, at least 0. At 0 nothing more may be
  /// drawn; only where any tree is exact draw() goes on, up to 8 * max_size() nodes in all, and
  /// keep() must then choose max_size() of them before the tree is finished.
  virtual std::int32_t room() const = 0;
  /// True at temperature 0 (but for sampled children) and under coupled acceptance.
  virtual bool any_tree_is_exact() const = 0;

  /// Nodes drawn so far, the root included.
  virtual std::int32_t nodes() const = 0;
  virtual DraftNode node(std::int32_t node) const = 0;

  /// Draws the next child of an evaluated node and adds it to the tree; returns its number.
  /// nullopt: the draft has no further token of positive probability. Under sampled rejection
  /// children come as samples from D without replacement, at temperature 0 most probable first,
  /// under coupled acceptance by the noise that they share with the target.
  virtual std::optional<std::int32_t> draw(std::int32_t node) = 0;

  /// Drops all nodes but the root and these, each of whose parents must be the root or among them.
  /// Refused unless any_tree_is_exact(): choosing tokens for what they are would bias the text.
  virtual void keep(std::span<const std::int32_t> nodes) = 0;

 protected:
  ~GrowingTree() = default;
};

/// Derive from this, and ask for it by Custom (speculation.h). One object serves one generation,
/// step after step, so it may learn from what it saw, but is told nothing of other generations.
///
/// A tree grows in rounds, each after a pass of the draft, which may be shared with other texts'
/// trees. `tree` is good during a call only. Calls come while the engine is locked and must not use
/// the engine. What they throw ends the generation: an Error as it is, any other exception as
/// Error(failure) with its text.
class COPPICE_API CustomPolicy {
 public:
  virtual ~CustomPolicy() = default;

  /// A step begins, and with it a tree of its root alone. False: it stays so, and the step costs no
  /// pass of the draft.
  virtual bool begin(const GrowingTree& /*tree*/) { return true; }

  /// One round. The last pass has evaluated `evaluated`, in ascending order: the root alone in the
  /// first round, then what the last round returned. Draws children, of these or of nodes evaluated
  /// before, and returns what the next pass is to evaluate; nothing: the tree is finished.
  ///
  /// Each node returned must be in the tree, of a depth below max_depth(), and not evaluated yet;
  /// of a tree's nodes at most max_size() beside the root may be.
  virtual std::vector<std::int32_t> grow(GrowingTree& tree,
                                         std::span<const std::int32_t> evaluated) = 0;
};

/// Called once per generation, on the thread that generates; several may call it at once.
using PolicyFactory = std::function<std::unique_ptr<CustomPolicy>()>;

}  // namespace coppice

// What a policy sees of the draft model: children of nodes that a pass of it has evaluated.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/token_tree.h"

namespace coppice {

struct DrawnChild {
  TokenId token = -1;
  float prob = 0.0f;  ///< D(token), of the processed distribution, before any sibling was drawn
  /// The chance that it is the target's token, by the draft and by the noise that both will use
  /// (drafting/child_drawer.h); below 0: the noise is not known, D says it.
  float belief = -1.0f;
  /// Number by which sampled rejection will judge it, to within a cell; below 0: not known. What
  /// may look at it is said in drafting/dyspec.cc.
  float uniform = -1.0f;
};

/// The draft's distributions over one growing tree. Node ids are indices of the tree that the
/// policy grows in (its candidate tree); the finished tree has them as TokenTree::candidate.
class DraftSource {
 public:
  virtual ~DraftSource() = default;

  /// These nodes and all below them have lost their place for good: their memory may be reused.
  virtual void forget(std::span<const std::int32_t> /*nodes*/) {}

  /// The child of an evaluated node with this sibling rank. Ranks are asked for in order 0, 1,
  /// ..., but for those of excluded children; nullopt when D has no mass left. The same (seed,
  /// sequence, step, path of ranks) gives the same child, whatever else was drawn.
  virtual std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                          std::int32_t rank) = 0;

  /// A node, evaluated or not, has been given a child with this token by somebody else: it takes
  /// the next rank, and no child drawn later repeats it.
  virtual void exclude(std::int32_t /*node*/, TokenId /*token*/) {}

  /// What the draft thinks of `token` as the child of an evaluated node, drawn or not: as
  /// DrawnChild::belief, or prob where the noise is not known. It looks at no number that is still
  /// to judge. Below 0: not known.
  virtual double belief_of(const TokenTree& /*candidates*/, std::int32_t /*node*/,
                           TokenId /*token*/) {
    return -1.0;
  }

  /// Expects the share that an evaluated node's next child has of what D has left, which
  /// is the sum of squared shares; below 0: not known.
  virtual double expected_share(std::int32_t /*node*/) { return -1.0; }
};

}  // namespace coppice

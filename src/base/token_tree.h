// The value type at which drafting and verification meet.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/token_rules.h"
#include "base/types.h"

namespace coppice {

/// A tree of draft tokens over one root.
///
/// Node 0 is the root: the last token of the text so far, whose successors the tree
/// guesses. Every other node follows its parent and its earlier siblings (so node order
/// is a valid order of addition). All arrays have nodes() entries; entry 0 describes the
/// root (parent -1, depth 0, rank 0, draft_prob, belief, path_prob and value 1).
struct TokenTree {
  std::vector<TokenId> token;
  std::vector<std::int32_t> parent;  ///< node index, -1 for the root
  std::vector<std::int32_t> depth;   ///< edges from the root
  std::vector<std::int32_t> rank;    ///< place among its siblings in the order drawn, from 0
  std::vector<float> draft_prob;     ///< D(token | path) of the processed draft distribution; 1
                                     ///< where Origin is another
  std::vector<float> belief;         ///< draft_prob, or better where the noise is known
  std::vector<float> uniform;        ///< number that will judge it; below 0: not known
  std::vector<double> path_prob;     ///< w: product of draft_prob along the path
  std::vector<double> value;         ///< heap value of its position (drafting/position_values.h)
  std::vector<std::int32_t>
      candidate;                   ///< index in the candidate tree, by which the draft evaluated it
  std::vector<Origin> origin;      ///< model for the root
  std::vector<std::uint64_t> key;  ///< names its noise by its path of ranks (base/random.h)
  const TokenRules* rules = nullptr;     ///< of the text; null: none
  std::vector<std::int32_t> rule_state;  ///< after each node; below 0: it may not be there
  // Children in drawn order, -1 where there is none:
  std::vector<std::int32_t> first_child, last_child, next_sibling;

  /// Nodes, the root included: rows of the verify pass.
  std::int32_t nodes() const { return static_cast<std::int32_t>(token.size()); }
  /// Draft tokens, the root not counted.
  std::int32_t size() const { return nodes() - 1; }

  /// Empties the tree and sets its root, after which rules have a text in `root_state`.
  void reset(TokenId root_token, const TokenRules* of_text = nullptr, std::int32_t root_state = 0);
  /// Room for `nodes` nodes, root included, so that adding does not allocate.
  void reserve(std::int32_t nodes);
  /// Appends a node and returns its index; `candidate` is the index itself. Below 0, `believed` is
  /// the probability.
  std::int32_t add(std::int32_t parent_node, TokenId node_token, std::int32_t sibling_rank,
                   float probability, double position_value, float believed = -1.0f,
                   float judged_by = -1.0f);

  /// Appends a node that no distribution proposed, in the same way. Its draft_prob is 1 and its
  /// belief `chance`, the estimate that it is the target's token.
  std::int32_t add_certain(std::int32_t parent_node, TokenId node_token, std::int32_t sibling_rank,
                           double position_value, double chance);
  /// Sets this to the root of `whole` and these of its nodes, in this order: each behind its
  /// parent. Siblings that are left out leave no gap in the ranks; candidates are those of `whole`.
  void assign_part(const TokenTree& whole, std::span<const std::int32_t> nodes);

  /// What may follow a node; null: everything.
  std::shared_ptr<const TokenMask> mask(std::int32_t node) const {
    const std::int32_t state = rule_state[static_cast<std::size_t>(node)];
    return rules == nullptr || state < 0 ? nullptr : rules->mask(state);
  }

  /// The child of `node` with this token, -1 if there is none.
  std::int32_t child_with(std::int32_t node, TokenId wanted) const;
  bool is_certain(std::int32_t node) const {
    return origin[static_cast<std::size_t>(node)] != Origin::model;
  }

  /// Deepest node's depth.
  std::int32_t height() const;

  /// Throws Error(failure) that names the first broken invariant: array lengths, parents
  /// before children, depths, links, sibling ranks contiguous from 0 and in node order, siblings
  /// with distinct tokens, tokens in [0, vocab_size), probabilities in [0, 1].
  void validate(std::int32_t vocab_size) const;

 private:
  std::vector<std::int32_t> part_node_;  ///< scratch of assign_part(): here, by node of `whole`
};

}  // namespace coppice

// Draws the children of a tree's nodes from the draft's distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/decisions.h"
#include "base/distributions.h"
#include "base/random.h"
#include "base/token_tree.h"
#include "base/types.h"
#include "drafting/belief_temperature.h"
#include "drafting/draft_source.h"
#include "drafting/mass_left.h"
#include "kernels/logits.h"
#include "kernels/noise.h"

namespace coppice {

/// As many cells of (0, 1) are told apart of the number that will judge a child.
inline constexpr std::int32_t acceptance_cells = 64;

/// Middle of the cell that holds u.
inline float acceptance_cell(double u, std::int32_t cells = acceptance_cells) {
  return static_cast<float>((std::floor(u * cells) + 0.5) / cells);
}

/// Holds D of every evaluated node of one growing tree and draws children from it, without
/// replacement and lazily. HostDraftSampler has the distributions of nodes that a pass evaluated
/// written to prepare(), and answers child() from here:
///
///   drawer.begin(key, AcceptanceRule::rejection);
///   process_logits(logits, params, seen, scratch, drawer.prepare(node));  // take()
///   drawer.ready(node);
///   drawer.child(candidates, node, rank);                                 // child()
///   verifier.judge(tree, target, drawer.distributions(), key, verdict);
///
/// A child depends on its node's row, path of ranks and own rank alone, so it is the same in
/// whatever order nodes are evaluated and children drawn. A draw costs about the square root of
/// the vocabulary. After warm-up nothing is allocated. Not for several threads at a time.
/// Members are defined in drafting/child_drawer-inl.h.
template <typename Decisions>
class BasicChildDrawer {
 public:
  /// `noise` serves AcceptanceRule::coupled; share it with the acceptance rule. `cells`: how finely
  /// DrawnChild::uniform is known, 0 for not at all. `spare`: of drawers that share the memory of
  /// D; null: this one has its own.
  BasicChildDrawer(std::int64_t vocab_size, NoiseCache& noise, Decisions decide = {},
                   std::int32_t cells = acceptance_cells,
                   std::shared_ptr<SpareRows> spare = nullptr);

  /// Starts a step: forgets all nodes and keeps their memory. `inverse_temperature`: of beliefs
  /// (drafting/belief_temperature.h); 0: children come without, as they do
  /// under rejection.
  void begin(const StepKey& key, AcceptanceRule draw, double inverse_temperature = 1.0);
  /// Ends it: drawers that share memory may have that of D.
  void end();

  /// The row to which D of `node` is to be written, [vocab]. Rows never move.
  std::span<float> prepare(std::int32_t node);
  /// D of `node` has been written.
  void ready(std::int32_t node);

  /// The child of a ready node with this sibling rank, or nullopt when D has no mass left: when
  /// every token of positive probability has been drawn. Ranks are asked for in order 0, 1, ...;
  /// never repeats a token, never returns one of probability 0.
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank);

  /// See DraftSource::exclude.
  void exclude(std::int32_t node, TokenId token);

  /// See DraftSource::belief_of.
  double belief_of(const TokenTree& candidates, std::int32_t node, TokenId token);

  /// See DraftSource::expected_share; known where children are sampled.
  double expected_share(std::int32_t node);

  /// What `token` as the target's at a node, of which a child was drawn, says of the inverse
  /// temperature; nullopt where D excludes it, or the noise is not known.
  std::optional<BeliefEvidence> evidence(std::int32_t node, TokenId token);

  Decisions& decisions() { return decide_; }

  /// D by node id, bit for bit as sampled from.
  const DistributionTable& distributions() const { return distributions_; }

 private:
  struct Node {
    std::int32_t place = -1;  ///< in block_values_ and taken_; -1: not prepared in this step
    std::int32_t drawn = 0;   ///< children so far, drawn or excluded
    std::int32_t depth = 0;
    bool ready = false;
    bool summarised = false;  ///< whether depth, block values and beliefs stand
    PowerMoments beliefs;     ///< where children are not sampled
    MassLeft left;
    std::optional<double> squares;  ///< of all of D, once asked for
  };

  std::span<double> block_values(const Node& node);
  std::span<std::uint64_t> taken_words(const Node& node);
  std::span<const float> noise_of(const Node& node);
  void start_drawing(const TokenTree& candidates, std::int32_t node_id);
  void take(Node& node, std::span<const float> probs, TokenId token);
  double score(const Node& node, std::size_t token, double prob);
  void summarise_block(const Node& node, std::span<const float> probs, std::span<const float> noise,
                       std::size_t block);
  TokenId draw_sampled(const Node& node, std::span<const float> probs, double u);
  TokenId draw_largest(const Node& node, std::span<const float> probs,
                       std::span<const float> noise);

  Decisions decide_;
  NoiseCache& noise_;
  std::size_t block_ = 64;  ///< tokens per block, a multiple of 64
  std::size_t blocks_ = 0;
  std::int32_t cells_;
  AcceptanceRule draw_ = AcceptanceRule::rejection;
  double inverse_temperature_ = 0.0;
  StepKey key_;
  DistributionTable distributions_;
  std::vector<Node> nodes_;  ///< by node id
  struct Excluded {
    std::int32_t node;
    TokenId token;
  };
  std::vector<Excluded> excluded_;
  std::int32_t places_used_ = 0;
  std::vector<double> block_values_;  ///< [place, block] mass, or largest score, of what is left
  std::vector<std::uint64_t> taken_;  ///< [place, word] one bit per token: already drawn
};

extern template class BasicChildDrawer<PhiloxDecisions>;
using ChildDrawer = BasicChildDrawer<PhiloxDecisions>;

}  // namespace coppice

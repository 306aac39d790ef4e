// What a tree's further growth would bring, before its tokens are drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/growth_economics.h"

namespace coppice {

/// Siblings beyond this rank bring nothing.
inline constexpr std::int32_t last_useful_rank = 7;

/// What the positions of one tree have in common.
struct GrowthPrior {
  const AcceptanceCalibration* calibration = nullptr;
  std::int32_t most = 0;                      ///< further nodes, at most
  std::int32_t most_depth = 0;                ///< of a node
  std::int32_t last_rank = last_useful_rank;  ///< of a node, as OpenPosition::rank
  double weight = 1.0;                        ///< of a token, against other trees'
  bool drafts = true;                         ///< nodes may have children of the draft model
};

/// A position that growth may fill next, and what is expected of it.
struct OpenPosition {
  double value = 0.0;       ///< that its child is accepted
  double reach = 0.0;       ///< that its parent is, and its earlier siblings are not
  std::int32_t depth = 0;   ///< of the child
  std::int32_t rank = 0;    ///< of the child among siblings that are drawn (not TokenTree::rank)
  std::int32_t passes = 0;  ///< draft passes that it takes: 1 if its parent is not evaluated
  std::int32_t tree = 0;    ///< whose position it is
  /// Its child is known, for it was proposed and is not to be drawn.
  bool certain = false;
  double follow = 0.0;  ///< then, of a proposal below it: that it is accepted, once this is
};

/// The growth that pays best.
struct GrowthPlan {
  double net = 0.0;  ///< tokens that it is expected to bring, less its price
  std::int32_t passes = 0, nodes = 0;
  double least = 0.0;  ///< value of its last position: those that are worth more are in it
};

/// Looks several layers ahead, for one tree or for all that share the passes. Positions are taken
/// best first, whosever they are, those to come valued by rank and depth alone, for every number of
/// nodes and for numbers of draft passes around the last best one. So a pass that does not pay by
/// itself may pay with those behind it, and a row that opens a dear bucket of the matrix products
/// with those that fill it.
class Lookahead {
 public:
  explicit Lookahead(const GrowthEconomics& economics) : economics_(economics) {}

  /// Before another tree, for which costs may be others: what one plan began with is no part of the
  /// next tree's.
  void reset();
  /// From trees of `size` nodes together on to `most`, after `passed` draft passes.
  GrowthPlan best(std::span<const OpenPosition> open, std::span<const GrowthPrior> trees,
                  std::int32_t size, std::int32_t most, std::int32_t passed);

 private:
  /// A position in the order of taking.
  struct Taken {
    double value;
    std::int32_t tree;
    std::int32_t passes;
    bool is_row;      ///< it is its parent's first: the parent is a row of its last pass
    bool has_deeper;  ///< positions under it follow
  };
  /// By its place in `offered_`.
  struct Offer {
    double value;
    std::size_t at;
    bool operator<(const Offer& other) const {
      return value < other.value || (value == other.value && at > other.at);
    }
  };

  /// What a tree of some size costs.
  struct Price {
    double rows;   ///< of the target's pass, beyond those of the tree as it is
    double floor;  ///< no number of further rows costs less for each
  };

  /// The best growth in at most so many passes; whether it is better than `best`, then replaced.
  bool try_passes(std::int32_t passes, GrowthPlan& best);
  /// Place in `taken_` of the first from `at` on that takes no more passes; none: they are worth
  /// `floor` at most.
  std::optional<std::size_t> next(std::size_t at, std::int32_t passes, double floor);
  void begin_taking(std::int32_t most_passes);
  void take();
  void offer(const OpenPosition& position);
  // What is asked for again by every number of passes that is tried:
  const Price& price(std::int32_t size);
  double pass_cost(std::int32_t rows, std::int32_t pass);

  const GrowthEconomics& economics_;
  std::span<const OpenPosition> open_;
  std::span<const GrowthPrior> trees_;
  std::int32_t size_ = 0, most_ = 0, passed_ = 0;
  double least_value_ = 0.0;  ///< of a position that is looked at
  std::int32_t last_passes_ = 0;
  bool more_passes_add_ = false;  // whether a position was left out for its passes
  // Positions best first, as far as they were asked for: all that take `most_passes_` at most.
  // Those that take fewer come in the same order by themselves.
  std::int32_t most_passes_ = 0;
  std::vector<Taken> taken_;
  std::vector<OpenPosition> offered_;
  std::vector<Offer> heap_;                      // of those that are not taken
  std::vector<std::int32_t> rows_;               // of each draft pass
  std::vector<std::int32_t> nodes_;              // taken, of each tree
  std::vector<Price> prices_;                    // by nodes beyond `size_`
  std::vector<std::vector<double>> pass_costs_;  // of a tree, by draft pass and rows
};

}  // namespace coppice

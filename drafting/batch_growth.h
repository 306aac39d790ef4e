// Growth by costs, of all trees at a common price.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafting/grower.h"
#include "drafting/growth_economics.h"
#include "drafting/lookahead.h"

namespace coppice {

/// Grows one tree or several: every row of the target's pass, and every pass of the draft, goes to
/// the text to which it brings most. After every draft pass, and when tokens have said what was not
/// known, the growth that pays best from here on is planned for all (drafting/lookahead.h). Then,
/// best first, only what the next pass is to evaluate is drawn; what the plan leaves without
/// children waits, for it may turn out that its row is better spent, and is drawn when no further
/// pass pays. Nodes may be evaluated, and get children, in any later round. What is drawn stays.
///
/// Decisions are functions of the prices, of what was drawn so far, and of the numbers that will
/// judge it, of all trees: src/sizing/README.md proves that this biases no text, if the noise of
/// each is its own.
class BatchGrowth final : public Grower {
 public:
  /// Prices are of all trees' nodes together; they outlive this.
  explicit BatchGrowth(const GrowthEconomics& economics)
      : economics_(economics), lookahead_(economics) {}

  void begin(std::int32_t most) override;
  /// For which texts it pays to evaluate the root of their tree, by what is expected of it;
  /// [texts].
  void choose(std::span<const GrowthPrior> texts, std::vector<char>& chosen);
  /// All candidates; but nodes that are not worth their row are dropped where any tree is exact.
  void keep(const ValuedTree& tree, std::vector<std::int32_t>& kept) const override;

 private:
  bool plan() override;
  bool admits(const Offer& offer) const override;
  // By place: the same noise gives the same trees.
  bool comes_after(const Offer& a, const Offer& b) const override {
    if (a.tree != b.tree) return a.tree > b.tree;
    return a.node != b.node ? a.node > b.node : a.proposed < b.proposed;
  }
  void note_added(const Offer&) override { ++added_; }
  bool want() override;
  void end() override;

  void look_ahead(std::int32_t size);
  bool is_planned(double value) const { return value > 0.0 && value >= plan_.least; }
  std::int32_t nodes() const;
  // Calls `with` every planned node that the next pass could evaluate, and its value.
  template <typename With>
  void for_planned(const ValuedTree& tree, const With& with) const;
  bool next_pass_pays() const;
  bool want_planned();

  const GrowthEconomics& economics_;
  Lookahead lookahead_;
  GrowthPlan plan_;
  std::int32_t rounds_left_ = 0;  ///< for which the plan is good
  std::int32_t added_ = 0;        ///< nodes, since it was last looked at,
  std::int32_t most_added_ = 0;   ///< of at most so many
  std::vector<GrowthPrior> priors_;
  std::vector<OpenPosition> open_;
  double least_kept_ = 0.0;  ///< value of a node, weighted, where any tree is exact
  std::vector<double> values_;
};

}  // namespace coppice

// One heap over the positions of all trees that grow at a common price.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafting/growth_economics.h"
#include "drafting/lookahead.h"

namespace coppice {

class CostDrivenDyspec;

/// Grows trees from one heap: every row of the target's pass, and every pass of the draft, goes to
/// the text to which it brings most. After every draft pass, and when tokens have said what was not
/// known, the growth that pays best from here on is planned for all (drafting/lookahead.h). Then,
/// best first, only what the next pass is to evaluate is drawn; what the plan leaves without
/// children waits, for it may turn out that its row is better spent, and is drawn when no further
/// pass pays. Nodes may be evaluated, and get children, in any later round. What is drawn stays.
///
/// Decisions are functions of the prices, of what was drawn so far, and of the numbers that will
/// judge it, of all trees: src/sizing/README.md proves that this biases no text, if the noise of
/// each is its own.
class BatchGrowth {
 public:
  /// Prices are of all trees' nodes together; they outlive this.
  explicit BatchGrowth(const GrowthEconomics& economics)
      : economics_(economics), lookahead_(economics) {}

  /// Before a step: no trees yet, and `most` nodes for all of them.
  void begin(std::int32_t most);
  /// For which texts it pays to evaluate the root of their tree, by what is expected of it;
  /// [texts].
  void choose(std::span<const GrowthPrior> texts, std::vector<char>& chosen);
  /// After the trees have taken what was evaluated: draws, and says what they want next.
  void grow();

  // For the trees:
  void join(CostDrivenDyspec& tree) { trees_.push_back(&tree); }
  /// A tree has taken what was evaluated, or proposed.
  void note_taken() { taken_ = true; }
  /// Nodes of less value, weighted, are dropped where any tree is exact.
  double least_kept() const { return least_kept_; }

 private:
  /// A node whose next child can be drawn.
  struct Drawable {
    double value;
    std::size_t tree;
    std::int32_t node;
    bool proposed;  ///< the child is, instead of drawn
    /// Ties by place: the same noise gives the same trees.
    bool operator<(const Drawable& other) const {
      if (value != other.value) return value < other.value;
      if (tree != other.tree) return tree > other.tree;
      return node != other.node ? node > other.node : proposed < other.proposed;
    }
  };

  std::int32_t nodes() const;
  void plan(std::int32_t size);
  bool is_planned(double value) const { return value > 0.0 && value >= plan_.least; }
  bool is_drawn_now(const CostDrivenDyspec& tree, std::int32_t node) const;
  std::int32_t draw_planned(std::int32_t most);
  bool next_pass_pays(std::int32_t size) const;
  bool want_planned();
  void cut(std::int32_t size);

  const GrowthEconomics& economics_;
  Lookahead lookahead_;
  std::int32_t most_ = 0;
  std::vector<CostDrivenDyspec*> trees_;
  GrowthPlan plan_;
  std::int32_t rounds_left_ = 0;  ///< for which the plan is good
  std::int32_t passes_ = 0;       ///< that there were
  bool taken_ = false;            ///< by a tree, since it last grew
  std::vector<GrowthPrior> priors_;
  std::vector<OpenPosition> open_;
  std::vector<Drawable> heap_;
  double least_kept_ = 0.0;  ///< value of a node, where any tree is exact
  std::vector<double> values_;
};

}  // namespace coppice

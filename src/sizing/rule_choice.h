// Which acceptance rule a text is to be written by.
#pragma once

#include <cstdint>

#include "coppice.h"
#include "sizing/cost_table.h"

namespace coppice {

/// Rejection accepts a node's first child more often than shared noise does; in large trees the
/// belief in the noise brings more than that. So what is usual is a matter of size. What a pair's
/// own texts say comes on top: the logarithm g of coupled's tokens per second over rejection's is
/// taken for normal around what is usual at the size that trees turn out to have, and every text
/// measures one of the two rates, with the spread that texts have. For one model pair, policy and
/// temperature; not for several threads at a time.
///
/// Which rule a text uses is settled before it begins, from earlier texts and costs: texts of other
/// seeds or streams have other noise, so both rules stay exact. Turns of one Sequence share coupled
/// noise by position: where a turn ended inside a step, that step's size and time are all that the
/// next turn's choice can know of its own noise.
class RuleChoice {
 public:
  /// g for trees of `nodes`.
  static double usual_gain(double nodes);
  /// Nodes that a tree may be expected to have where nothing but costs is known: as many rows as
  /// make a verify pass half as long again as a plain one.
  static double usual_nodes(const CostTable& costs, std::int32_t most);

  /// For the next text. One in a few takes the rule that seems worse, while that is not sure.
  Acceptance choose(double usual_nodes);
  /// After a text: tokens per plain step's time, and nodes of a step's tree, on average.
  void record(Acceptance rule, double rate, double nodes);

 private:
  struct Texts {
    double count = 0.0;
    double log_rate = 0.0;  ///< sum
  };
  struct Gain {
    double mean, deviation;
  };
  Gain gain(double usual_nodes) const;

  Texts rejection_, coupled_;
  double log_nodes_ = 0.0;  ///< sum over all texts
  std::int32_t chosen_ = 0;
};

}  // namespace coppice

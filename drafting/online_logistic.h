// Logistic regression that learns one observation at a time.
#pragma once

#include <array>

namespace coppice {

/// Of a chance or a share, for features. Those nearer to 0 and 1 than 0.003 are rounding.
double log_odds(double chance);

/// Chance of an event, logistic in three features: logit chance = c . x. Coefficients are found by
/// maximum likelihood, from a start that counts as `information` on each of them: one Newton step
/// for each observation. The chance never decreases with the second and third feature.
class OnlineLogistic {
 public:
  using Coefficients = std::array<double, 3>;

  OnlineLogistic(const Coefficients& start, const Coefficients& information)
      : c_(start), start_information_(information) {
    add_start(1.0);
  }
  /// Starts anew from where `other` is.
  void start_from(const OnlineLogistic& other);
  /// What was observed counts for that much less.
  void fade(double left);
  double chance(const Coefficients& x) const;
  void observe(const Coefficients& x, bool happened);

 private:
  void add_start(double weight);

  Coefficients c_, start_information_;
  std::array<Coefficients, 3> information_{};
};

}  // namespace coppice

// What is left of a draft distribution once some of its tokens have been drawn.
#pragma once

#include <algorithm>

namespace coppice {

/// D without the tokens drawn so far.
class MassLeft {
 public:
  void take(double prob) {
    drawn_ += prob;
    drawn_squares_ += prob * prob;
  }
  /// The share of what is left that the next token drawn has, on average: the sum of squared
  /// shares. `squares`: the sum of squares of all of D.
  double expected_share(double squares) const {
    const double left = 1.0 - drawn_;
    if (left < rounding) return 1.0;
    return std::clamp((squares - drawn_squares_) / (left * left), 0.0, 1.0);
  }

 private:
  static constexpr double rounding = 1e-6;  ///< of D's sum, and more
  double drawn_ = 0.0, drawn_squares_ = 0.0;
};

}  // namespace coppice

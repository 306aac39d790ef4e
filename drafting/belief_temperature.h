// How far the draft's guess of the target's token is trusted, learned while a text is written.
#pragma once

#include <algorithm>
#include <cmath>

namespace coppice {

/// What the target's token at one evaluated node says about the inverse temperature of beliefs
/// there: the log-likelihood's derivative by log inverse temperature, and its Fisher information.
struct BeliefEvidence {
  double derivative = 0.0;
  double information = 0.0;
};

/// Where the noise G of a position is known (coupled acceptance; temperature 0, where it is 0), the
/// target's token is argmax of log T + G. Given D, and with log T = log D + error where the error
/// is about Gumbel of scale tau, that is token y with probability
///   B(y) = softmax((log D(y) + G(y)) / tau),
/// the belief in y. tau is the belief temperature. Here it is its inverse s, the inverse
/// temperature that (log D + G) is multiplied by. It is found by maximum likelihood on the tokens
/// that came: one Newton step for each, with the information so far, in log s, which keeps it
/// positive.
///
/// If beliefs are right, derivatives are as large as the information says: their squares have it
/// for their mean. A draft that agrees with the target far better than it is believed surprises
/// less than that, again and again. Steps are then longer by as much:
/// else a draft that equals the target would hardly be found out within a text, for
/// the surer a belief is, the less each token adds.
class BeliefTemperature {
 public:
  /// What fits without any text, for log D at the target's `temperature`, or at 0 for log D at
  /// temperature `draft_temperature`: the error lives in the logits, so that it grows as
  /// 1 / temperature.
  static double usual(double temperature, double draft_temperature) {
    return (temperature > 0.0 ? temperature : draft_temperature) / usual_at_one;
  }
  /// Starts from the nearest `inverse_temperature` that can be learned: e^-4 to e^4.
  explicit BeliefTemperature(double inverse_temperature = 1.0)
      : log_inverse_temperature_(std::clamp(std::log(inverse_temperature), -most, most)) {}

  double inverse_temperature() const { return std::exp(log_inverse_temperature_); }
  void observe(const BeliefEvidence& seen) {
    information_ = std::max(start_information, keep * information_ + seen.information);
    expected_ = std::max(least_squares, keep * expected_ + seen.information);
    found_ = std::max(least_squares, keep * found_ + seen.derivative * seen.derivative);
    const double longer = std::clamp(expected_ / found_, 1.0, most_longer);
    const double step = std::clamp(seen.derivative / information_ * longer, -most_step, most_step);
    log_inverse_temperature_ = std::clamp(log_inverse_temperature_ + step, -most, most);
  }

 private:
  static constexpr double usual_at_one = 0.45;  ///< tau at temperature 1
  static constexpr double start_information = 8.0;
  /// What was seen counts for less with every token: texts change.
  static constexpr double keep = 0.98;
  static constexpr double least_squares = 3.0, most_longer = 20.0;
  static constexpr double most_step = 0.5, most = 4.0;
  double log_inverse_temperature_;
  double information_ = start_information;
  /// Squares of derivatives, expected and found.
  double expected_ = least_squares, found_ = least_squares;
};

/// Where a text's inverse temperature starts, by where those of the pair's earlier texts at about
/// this temperature ended: by how much they were off what is usual at theirs, the mean of
/// logarithms, with one text that was not.
class PairInverseTemperature {
 public:
  double start(double usual) const { return usual * std::exp(sum_ / (1.0 + texts_)); }
  /// After a text, for whose temperature `usual` is.
  void record(double inverse_temperature, double usual) {
    sum_ = keep * sum_ + std::log(inverse_temperature / usual);
    texts_ = keep * texts_ + 1.0;
  }

 private:
  static constexpr double keep = 0.95;  ///< of 20 texts at most
  double sum_ = 0.0, texts_ = 0.0;
};

}  // namespace coppice

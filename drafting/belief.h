// Beliefs of a row's tokens, from their scores and the moments of the row's.
#pragma once

#include <cmath>

#include "drafting/belief_temperature.h"
#include "kernels/logits.h"

namespace coppice {

/// log (score / largest)^inverse_temperature, where a score is D times the noise: exp(log D + G).
inline double log_power(const PowerMoments& row, double inverse_temperature, double score) {
  return inverse_temperature * std::log(score / row.largest);
}

/// softmax(inverse_temperature (log D + G)).
inline float belief(const PowerMoments& row, double inverse_temperature, double score) {
  return static_cast<float>(
      std::exp(log_power(row, inverse_temperature, score) - std::log(row.sum)));
}

/// Returns the evidence of the target's token having this score. With x = inverse_temperature (log
/// D + G), its log-likelihood is x(token) - log sum exp(x); the derivative by log inverse
/// temperature is x(token) - mean of x, and the information the variance of x.
inline BeliefEvidence evidence_of(const PowerMoments& row, double inverse_temperature,
                                  double score) {
  return {log_power(row, inverse_temperature, score) - row.mean, row.variance};
}

}  // namespace coppice

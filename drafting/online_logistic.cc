#include "drafting/online_logistic.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace coppice {
namespace {

using Coefficients = OnlineLogistic::Coefficients;

// Solves a x = b by Gauss elimination; a is symmetric and positive definite.
Coefficients solve(std::array<Coefficients, 3> a, Coefficients b) {
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = i + 1; j < 3; ++j) {
      const double factor = a[j][i] / a[i][i];
      for (std::size_t k = i; k < 3; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  for (std::size_t i = 3; i-- > 0;) {
    for (std::size_t k = i + 1; k < 3; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

double log_odds(double chance) {
  constexpr double least = 0.003;
  return std::log(std::max(chance, least) / std::max(1.0 - chance, least));
}

void OnlineLogistic::add_start(double weight) {
  for (std::size_t i = 0; i < 3; ++i) information_[i][i] += weight * start_information_[i];
}

void OnlineLogistic::start_from(const OnlineLogistic& other) {
  c_ = other.c_;
  information_ = {};
  add_start(1.0);
}

void OnlineLogistic::fade(double left) {
  for (Coefficients& row : information_) {
    for (double& value : row) value *= left;
  }
  add_start(1.0 - left);
}

double OnlineLogistic::chance(const Coefficients& x) const {
  const double z = c_[0] * x[0] + c_[1] * x[1] + c_[2] * x[2];
  return 1.0 / (1.0 + std::exp(-std::clamp(z, -5.0, 5.0)));
}

void OnlineLogistic::observe(const Coefficients& x, bool happened) {
  const double expected = chance(x);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      information_[i][j] += expected * (1.0 - expected) * x[i] * x[j];
    }
  }
  const double error = (happened ? 1.0 : 0.0) - expected;
  const Coefficients step = solve(information_, {error * x[0], error * x[1], error * x[2]});
  for (std::size_t i = 0; i < 3; ++i) c_[i] += step[i];
  c_[1] = std::max(0.0, c_[1]);
  c_[2] = std::max(0.0, c_[2]);
}

}  // namespace coppice

#include "drafting/acceptance_model.h"

#include <algorithm>

namespace coppice {
namespace {

using Coefficients = AcceptanceModel::Coefficients;

// Information of the start's c[0] and of its other coefficients, by log loss on texts of the
// shipped pair and of one with half its acceptance.
constexpr double level_information = 3.0, slope_information = 60.0;
// Shares nearer to 0 and 1 are rounding.
constexpr double least_share = 0.003;

double logistic(const Coefficients& c, const Coefficients& x) {
  const double z = c[0] * x[0] + c[1] * x[1] + c[2] * x[2];
  return 1.0 / (1.0 + std::exp(-std::clamp(z, -5.0, 5.0)));
}

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

// What a start counts for, weighted.
void AcceptanceModel::add_start(Class& of, double weight) {
  for (std::size_t i = 0; i < 3; ++i) {
    of.information[i][i] += weight * (i == 0 ? level_information : slope_information);
  }
}

AcceptanceModel::AcceptanceModel(const Start& start) {
  for (std::size_t k = 0; k < classes_.size(); ++k) {
    classes_[k].c = start[k];
    add_start(classes_[k], 1.0);
  }
}

void AcceptanceModel::start_from(const AcceptanceModel& others) {
  for (std::size_t k = 0; k < classes_.size(); ++k) {
    classes_[k] = {others.classes_[k].c, {}};
    add_start(classes_[k], 1.0);
  }
}

void AcceptanceModel::fade(double left) {
  for (Class& of : classes_) {
    for (Coefficients& row : of.information) {
      for (double& value : row) value *= left;
    }
    add_start(of, 1.0 - left);
  }
}

std::size_t AcceptanceModel::class_of(std::int32_t rank) {
  return static_cast<std::size_t>(std::min(rank, 2));
}

AcceptanceModel::Coefficients AcceptanceModel::features(double share, double u) {
  const double odds = std::max(share, least_share) / std::max(1.0 - share, least_share);
  return {1.0, std::log(odds), u > 0.0 ? -u - std::log(u) : 0.0};
}

double AcceptanceModel::chance(std::int32_t rank, double share, double u) const {
  return logistic(classes_[class_of(rank)].c, features(share, u));
}

void AcceptanceModel::observe(std::int32_t rank, double share, bool accepted, double u) {
  Class& of = classes_[class_of(rank)];
  const Coefficients x = features(share, u);
  const double chance = logistic(of.c, x);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      of.information[i][j] += chance * (1.0 - chance) * x[i] * x[j];
    }
  }
  const double error = (accepted ? 1.0 : 0.0) - chance;
  const Coefficients step = solve(of.information, {error * x[0], error * x[1], error * x[2]});
  for (std::size_t i = 0; i < 3; ++i) of.c[i] += step[i];
  of.c[1] = std::max(0.0, of.c[1]);
  of.c[2] = std::max(0.0, of.c[2]);
}

}  // namespace coppice

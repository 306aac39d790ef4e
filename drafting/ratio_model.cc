#include "drafting/ratio_model.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

// Left for what the model does not know.
constexpr double least = 0.01, most = 0.995;
// Of each coefficient of the start. What is learned then gains on the start where it fits badly,
// and loses little where it fits (log loss over 24 texts of the shipped pair).
constexpr double start_information = 25.0;
// What was seen counts for less with every child: early steps are taken far from where they lead.
constexpr double keep = 0.998;
// So that no coefficient is ever left to chance.
constexpr double least_information = 5.0;

struct Point {
  double x;  // what the coefficients multiply
  double z;  // (mean - log u) / width
  double width;
};

double normal_cdf(double z) { return 0.5 * std::erfc(-z * 0.70710678118654752); }
double normal_pdf(double z) { return 0.39894228040143268 * std::exp(-0.5 * z * z); }

Point point_of(const std::array<double, 4>& c, double share, double u) {
  const double x = 1.0 - share;
  const double width = std::exp(std::clamp(c[2] + c[3] * x, -4.0, 3.0));
  return {x, std::clamp((c[0] + c[1] * x - std::log(u)) / width, -6.0, 6.0), width};
}

// Solves a x = b by Gauss elimination; a is symmetric and positive definite.
std::array<double, 4> solve(std::array<std::array<double, 4>, 4> a, std::array<double, 4> b) {
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = i + 1; j < 4; ++j) {
      const double factor = a[j][i] / a[i][i];
      for (std::size_t k = i; k < 4; ++k) a[j][k] -= factor * a[i][k];
      b[j] -= factor * b[i];
    }
  }
  for (std::size_t i = 4; i-- > 0;) {
    for (std::size_t k = i + 1; k < 4; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

RatioModel::RatioModel() {
  // Maximum likelihood on 10,000 children of the shipped pair, at temperatures 0.6 and 1. Ratios of
  // later children are often 0 and else large, hence the widths.
  static constexpr std::array<Vector, 3> start = {
      {{0.48, -1.17, -0.62, 0.95}, {1.9, -9.4, 1.9, 0.4}, {1.5, -8.5, 1.6, 0.3}}};
  for (std::size_t k = 0; k < classes_.size(); ++k) {
    classes_[k].c = start[k];
    for (std::size_t i = 0; i < coefficients; ++i) {
      classes_[k].information[i][i] = start_information;
    }
  }
}

std::size_t RatioModel::class_of(std::int32_t rank) {
  return static_cast<std::size_t>(std::min(rank, 2));
}

double RatioModel::chance(std::int32_t rank, double share, double u) const {
  const double z = point_of(classes_[class_of(rank)].c, share, u).z;
  return least + (most - least) * normal_cdf(z);
}

void RatioModel::observe(std::int32_t rank, double share, double u, bool accepted) {
  Class& of = classes_[class_of(rank)];
  const Point at = point_of(of.c, share, u);
  const double chance = least + (most - least) * normal_cdf(at.z);
  const double slope = (most - least) * normal_pdf(at.z);
  const double information = slope * slope / (chance * (1.0 - chance));
  const Vector by = {1.0 / at.width, at.x / at.width, -at.z, -at.z * at.x};
  for (std::size_t i = 0; i < coefficients; ++i) {
    for (std::size_t j = 0; j < coefficients; ++j) {
      of.information[i][j] = keep * of.information[i][j] + information * by[i] * by[j];
    }
  }
  Vector gradient;
  const double error = ((accepted ? 1.0 : 0.0) - chance) * slope / (chance * (1.0 - chance));
  for (std::size_t i = 0; i < coefficients; ++i) gradient[i] = error * by[i];
  auto known = of.information;
  for (std::size_t i = 0; i < coefficients; ++i) known[i][i] += least_information;
  const Vector step = solve(known, gradient);
  for (std::size_t i = 0; i < coefficients; ++i) of.c[i] += std::clamp(step[i], -0.5, 0.5);
}

}  // namespace coppice

// Acceptance by recursive rejection where the number that judges is known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace coppice {

/// A child is accepted when its number u is below the ratio R(y) / D'(y) of what the target and the
/// draft give its token (kernels/rejection_rule.h). u is known before the target runs, the ratio is
/// not: its logarithm is taken for normal, with a mean and a log width that are linear in the
/// child's share of the draft's mass, for each class of sibling ranks. So
///   chance(rank, share, u) = Phi((mean - log u) / width),
/// with a few hundredths left for what the model does not know. The four coefficients of a class
/// are found by maximum likelihood on accepted and refused children: from a start that fits the
/// shipped pair, one step of Fisher scoring for each child judged.
class RatioModel {
 public:
  RatioModel();
  double chance(std::int32_t rank, double share, double u) const;
  void observe(std::int32_t rank, double share, double u, bool accepted);

 private:
  static constexpr std::size_t coefficients = 4;
  using Vector = std::array<double, coefficients>;
  /// Of one class: mean = c[0] + c[1] x, log width = c[2] + c[3] x, x as below.
  struct Class {
    Vector c{};
    std::array<Vector, coefficients> information{};
  };
  static std::size_t class_of(std::int32_t rank);

  std::array<Class, 3> classes_;  ///< first, second, later children
};

}  // namespace coppice

// What rope_write_kv() (kernels/cpu/rope.h) makes of one row, in double, and mistakes that a test
// of it must notice.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace coppice::testing {

enum class RopeFault {
  none,
  norm_of_other_kind,  ///< keys' weights for queries and the other way
  mean_of_neighbour,   ///< the next head's mean square
  mean_of_rotated,     ///< mean square of rotated elements alone
  epsilon_left_out,
  norm_after_rotation,
  rest_rotated,         ///< elements beyond 2 half_dim too
  pairs_of_whole_head,  ///< i with i + head_dim / 2
  next_position,
};

struct RopeReference {
  std::int32_t heads, kv_heads, head_dim, half_dim;
  std::vector<float> cosine, sine;          ///< [positions, half_dim]
  std::vector<float> query_norm, key_norm;  ///< [head_dim], or empty
  float epsilon = 0.0f;

  struct Value {
    double value;
    double error;  ///< that f32 arithmetic may make, before any rounding of the result
  };
  /// Element i of a head of row [(heads + 2 kv_heads) head_dim].
  Value value(const float* row, std::int32_t position, std::int32_t head, std::int32_t i,
              RopeFault fault = RopeFault::none) const {
    if (fault == RopeFault::next_position) ++position;
    const bool is_value = head >= heads + kv_heads;
    const float* x = row + std::int64_t{head} * head_dim;
    if (is_value) return {x[i], 0.0};
    const bool of_queries = (head < heads) != (fault == RopeFault::norm_of_other_kind);
    const std::vector<float>& norm = of_queries ? query_norm : key_norm;
    const bool late = fault == RopeFault::norm_after_rotation;
    const auto scaled = [&](std::int32_t j, std::int32_t weight) {
      return norm.empty() ? double{x[j]} : x[j] * factor(x, fault) * norm[at(weight)];
    };
    std::int32_t half = fault == RopeFault::pairs_of_whole_head ? head_dim / 2 : half_dim;
    std::int32_t begin = 0;  // of the elements among which partners are
    if (fault == RopeFault::rest_rotated && i >= 2 * half_dim) {
      begin = 2 * half_dim;
      half = head_dim / 2 - half_dim;
    }
    const std::int32_t j = (i - begin) % half;  // angle
    if (i - begin >= 2 * half || j >= half_dim) {
      return {scaled(i, i), error(scaled(i, i), 0.0, norm)};
    }
    const bool low = i - begin < half;
    const std::int32_t partner = low ? i + half : i - half;
    const double c = cosine[at(position * half_dim + j)];
    const double s = sine[at(position * half_dim + j)];
    const double own = scaled(i, i) * c;
    const double other = scaled(partner, late ? i : partner) * (low ? -s : s);
    return {own + other, error(own, other, norm)};
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  double factor(const float* x, RopeFault fault) const {
    if (fault == RopeFault::mean_of_neighbour) x += head_dim;
    const std::int32_t n = fault == RopeFault::mean_of_rotated ? 2 * half_dim : head_dim;
    double sum = 0.0;
    for (std::int32_t j = 0; j < n; ++j) sum += double{x[j]} * x[j];
    const double added = fault == RopeFault::epsilon_left_out ? 0.0 : double{epsilon};
    return 1.0 / std::sqrt(sum / n + added);
  }
  /// Bounds the error of two products and their sum, and of the norm: the root takes half of the
  /// sum's head_dim u, and six more roundings.
  double error(double own, double other, const std::vector<float>& norm) const {
    const double of_norm = norm.empty() ? 0.0 : head_dim / 2.0 + 6.0;
    const double roundings = (other == 0.0 ? 0.0 : 3.0) + of_norm;
    return roundings * 0x1p-24 * (std::abs(own) + std::abs(other));
  }
};

struct PlantedRopeFault {
  RopeFault fault;
  const char* name;
};
/// Faults that change what this shape computes.
inline std::vector<PlantedRopeFault> rope_faults_of(const RopeReference& shape) {
  std::vector<PlantedRopeFault> faults = {{RopeFault::next_position, "the next position"}};
  const bool partial = 2 * shape.half_dim < shape.head_dim;
  if (partial) {
    faults.push_back({RopeFault::pairs_of_whole_head, "pairs of the whole head"});
    faults.push_back({RopeFault::rest_rotated, "the rest rotated too"});
  }
  if (shape.query_norm.empty() && shape.key_norm.empty()) return faults;
  faults.push_back({RopeFault::norm_of_other_kind, "the other kind's norm"});
  faults.push_back({RopeFault::mean_of_neighbour, "the next head's mean square"});
  faults.push_back({RopeFault::norm_after_rotation, "the norm after the rotation"});
  faults.push_back({RopeFault::epsilon_left_out, "no epsilon"});
  if (partial) faults.push_back({RopeFault::mean_of_rotated, "the mean over what is rotated"});
  return faults;
}

}  // namespace coppice::testing

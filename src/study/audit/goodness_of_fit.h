// Whether samples follow a known law: chi-square, total variation, and what they could have seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// Probability that a chi-square variable of `degrees` degrees of freedom is at least
/// `chi_square`. With no degree of freedom: 1 at 0, else 0.
double chi_square_tail(double chi_square, double degrees);

/// Least noncentrality at which the chi-square test of `degrees` (above 0) at `significance`
/// rejects with probability `power`.
double detectable_noncentrality(double degrees, double significance, double power);

/// The smallest bias, as total variation over the test's bins, that so many samples show with
/// probability `power`, wherever in the bins it lies. A bias of total variation d has
/// noncentrality n * sum (q - p)^2 / p >= 4 n d^2 (Cauchy and Schwarz), so d is
/// sqrt(noncentrality / 4n). 1 where no bias is sure to be seen.
double detectable_variation(double degrees, double samples, double significance, double power);

/// The target's law of one token, prepared for tests.
struct TokenLaw {
  std::vector<float> probability;  ///< [vocab]
  std::vector<TokenId> order;      ///< the most probable tokens, best first
  /// [vocab] false: no sample may be this token. Tokens that a filter leaves out by less than
  /// rounding are possible, at probability 0.
  std::vector<bool> possible;
};
/// Most entries of TokenLaw::order.
inline constexpr std::size_t ordered_tokens = 64;
/// From probabilities [vocab] and the tokens that rounding alone keeps out.
TokenLaw make_token_law(std::vector<float> probability, std::span<const TokenId> borderline);

/// One test's outcome.
struct Fit {
  double samples = 0.0;
  std::int64_t contexts = 0;  ///< laws that samples were compared with
  double chi_square = 0.0;
  double degrees = 0.0;
  double p_value = 1.0;             ///< 0 where an impossible token was seen
  double total_variation = 0.0;     ///< of the binned counts, contexts weighted by their samples
  double expected_variation = 0.0;  ///< its expectation without bias, about
  std::int64_t impossible = 0;      ///< samples that the law rules out

  COPPICE_MEMBERS(samples, contexts, chi_square, degrees, p_value, total_variation,
                  expected_variation, impossible)
};

/// The largest bias, as total variation over the test's bins, that an outcome leaves possible with
/// probability `power`. 0 where there is no degree of freedom.
double largest_variation(const Fit& fit, double power);

/// Fewest expected samples of a bin.
inline constexpr double least_expected = 10.0;

/// Single tokens: a context's most probable ones have a bin each, the others share one. Bins
/// depend on the law and the number of samples alone. The chi-squares of contexts add up, and so
/// do their degrees of freedom: given who came into which context, contexts are independent. A
/// context with too few samples for two bins is looked at for impossible tokens alone.
class TokenTest {
 public:
  void add(const TokenLaw& law, std::span<const TokenId> samples);
  Fit fit() const;

 private:
  Fit sums_;  ///< variations: sums over samples
};

}  // namespace coppice::study

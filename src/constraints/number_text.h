// Decimal numbers within bounds, as languages of their digits.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "constraints/expressions.h"

namespace coppice::constraints {

/// A number exactly as decimal digits say it.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";  ///< without leading zeros
  std::string fraction;     ///< without trailing zeros

  static Decimal of(const nlohmann::ordered_json& number);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
/// Below 0 if a < b, 0 if equal, above if a > b.
int compare(const Decimal& a, const Decimal& b);

struct NumberBound {
  Decimal value;
  bool is_exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> lower, upper;
  bool is_integer = false, is_fraction = false;  ///< nothing else
  std::vector<Decimal> multiples_of;             ///< above 0
  std::vector<Decimal> others_than;

  void raise(const NumberBound& bound);  ///< the lower one
  void cut(const NumberBound& bound);    ///< the upper one
  void meet(const NumberRange& other);   ///< leaves what is in both
  bool is_open() const {
    return !lower && !upper && !is_fraction && multiples_of.empty() && others_than.empty();
  }
};

/// Numbers in the range without exponent, and without "-0". `nothing` if there is none. Throws
/// Error(usage) for a multiple of more digits than can be counted by.
Expr number_text(Expressions& expressions, const NumberRange& range);

}  // namespace coppice::constraints

#include "constraints/number_text.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::constraints {
namespace {

// The remainders that a multiple's digits may leave are states.
constexpr std::size_t longest_modulus = 5;
// A number's digits, as 1e308 has.
constexpr std::size_t most_exponent = 2000;

int compare_sizes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int order = a.whole.compare(b.whole);
  return order != 0 ? order : a.fraction.compare(b.fraction);
}

// Numbers without sign on one side of a bound.
class BoundText {
 public:
  BoundText(Expressions& expressions, const NumberBound& bound, bool is_integer, bool is_lower)
      : x_(expressions),
        whole_(bound.value.whole),
        fraction_(bound.value.fraction),
        is_exclusive_(bound.is_exclusive),
        is_integer_(is_integer),
        is_lower_(is_lower) {}

  Expr build() {
    // As many digits as the bound has, compared from the last to the first.
    Expr same_length = at_equal_whole();
    for (std::size_t i = whole_.size(); i > 0; --i) {
      const char digit = whole_[i - 1];
      const char least = i == 1 && whole_.size() > 1 ? '1' : '0';
      const auto left = static_cast<std::int32_t>(whole_.size() - i);
      const Expr further = x_.sequence({differing(digit, least), digits(left, left), fraction()});
      same_length = x_.either({x_.concat(one(digit, digit), same_length), further});
    }
    const auto length = static_cast<std::int32_t>(whole_.size());
    if (is_lower_) {
      const Expr longer = x_.sequence({one('1', '9'), digits(length, no_limit), fraction()});
      return x_.either({same_length, longer});
    }
    if (length == 1) return same_length;
    const Expr shorter = x_.either({x_.text("0"), x_.concat(one('1', '9'), digits(0, length - 2))});
    return x_.either({same_length, x_.concat(shorter, fraction())});
  }

 private:
  Expr one(char low, char high) { return x_.bytes(ByteSet::range(low, high)); }
  Expr digits(std::int32_t least, std::int32_t most) {
    return x_.repeat(one('0', '9'), least, most);
  }
  Expr any_digits() { return digits(0, no_limit); }
  Expr fraction() {
    return is_integer_ ? empty : x_.optional(x_.concat(x_.text("."), digits(1, no_limit)));
  }
  // A digit that decides for the right side.
  Expr differing(char digit, char least) {
    return is_lower_ ? one(static_cast<char>(digit + 1), '9')
                     : one(least, static_cast<char>(digit - 1));
  }
  Expr at_equal_whole() {
    const bool is_equal = fraction_.empty();
    if (is_integer_) {
      // Below 1.5, but not above it.
      const bool fits = is_equal ? !is_exclusive_ : !is_lower_;
      return fits ? empty : nothing;
    }
    const Expr zeros = x_.repeat(x_.text("0"), 0, no_limit);
    const Expr some_left = x_.sequence({any_digits(), one('1', '9'), any_digits()});
    Expr behind;  // the fraction's digits, where all so far are the bound's
    if (is_lower_) {
      behind = is_exclusive_ ? some_left : any_digits();
    } else {
      behind = is_exclusive_ ? nothing : zeros;
    }
    if (is_equal) {
      const Expr dot = x_.text(".");
      if (is_lower_) return is_exclusive_ ? x_.concat(dot, behind) : fraction();
      return is_exclusive_ ? nothing
                           : x_.optional(x_.concat(dot, x_.repeat(x_.text("0"), 1, no_limit)));
    }
    for (std::size_t i = fraction_.size(); i > 0; --i) {
      const char digit = fraction_[i - 1];
      behind = x_.either(
          {x_.concat(one(digit, digit), behind), x_.concat(differing(digit, '0'), any_digits())});
      // Fewer digits than the bound has are less.
      if (!is_lower_ && i > 1) behind = x_.optional(behind);
    }
    behind = x_.concat(x_.text("."), behind);
    return is_lower_ ? behind : x_.optional(behind);
  }

  Expressions& x_;
  const std::string& whole_;
  const std::string& fraction_;
  bool is_exclusive_, is_integer_, is_lower_;
};

}  // namespace

Decimal Decimal::of(const nlohmann::ordered_json& number) {
  std::string text = number.dump();
  Decimal decimal;
  if (text.front() == '-') {
    decimal.is_negative = true;
    text.erase(0, 1);
  }
  int exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != text.npos) {
    exponent = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  const std::size_t dot = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, dot);
  int before = static_cast<int>(dot) + exponent;
  if (dot < text.size()) digits += text.substr(dot + 1);
  if (std::abs(before) > static_cast<int>(most_exponent)) before = 0;  // no double is so large
  if (before <= 0) {
    digits.insert(0, static_cast<std::size_t>(1 - before), '0');
    before = 1;
  }
  const auto whole_digits = static_cast<std::size_t>(before);
  if (digits.size() < whole_digits) digits.append(whole_digits - digits.size(), '0');
  decimal.whole = digits.substr(0, whole_digits);
  decimal.fraction = digits.substr(whole_digits);
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size() - 1));
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.is_zero()) decimal.is_negative = false;
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  return a.is_negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

void NumberRange::raise(const NumberBound& bound) {
  const int order = lower ? compare(bound.value, lower->value) : 1;
  if (order > 0 || (order == 0 && bound.is_exclusive)) lower = bound;
}

void NumberRange::cut(const NumberBound& bound) {
  const int order = upper ? compare(bound.value, upper->value) : -1;
  if (order < 0 || (order == 0 && bound.is_exclusive)) upper = bound;
}

void NumberRange::meet(const NumberRange& other) {
  if (other.lower) raise(*other.lower);
  if (other.upper) cut(*other.upper);
  is_integer = is_integer || other.is_integer;
  is_fraction = is_fraction || other.is_fraction;
  multiples_of.insert(multiples_of.end(), other.multiples_of.begin(), other.multiples_of.end());
  others_than.insert(others_than.end(), other.others_than.begin(), other.others_than.end());
}

Expr number_text(Expressions& x, const NumberRange& range) {
  const Decimal zero;
  std::vector<Expr> always;
  for (const Decimal& divisor : range.multiples_of) {
    std::string units = divisor.whole + divisor.fraction;
    units.erase(0, std::min(units.find_first_not_of('0'), units.size() - 1));
    if (units.size() > longest_modulus) {
      throw_usage(
          cat("multipleOf of more than ", longest_modulus, " digits is not supported; remove it"));
    }
    always.push_back(
        x.multiple(std::stoi(units), static_cast<std::int32_t>(divisor.fraction.size())));
  }
  // The size of numbers of one sign.
  const auto sizes = [&](const std::optional<NumberBound>& least,
                         const std::optional<NumberBound>& most) {
    std::vector<Expr> all = always;
    const NumberBound from = least.value_or(NumberBound{});
    // From 0 on are all, which multiples say themselves.
    if (all.empty() || !from.value.is_zero() || from.is_exclusive) {
      all.push_back(BoundText(x, from, range.is_integer, true).build());
    }
    if (most) all.push_back(BoundText(x, *most, range.is_integer, false).build());
    return x.both(std::move(all));
  };
  const auto size_of = [](NumberBound bound) {
    bound.value.is_negative = false;
    return bound;
  };
  const auto side = [&](const std::optional<NumberBound>& bound) {
    return bound ? compare(bound->value, zero) : 0;
  };
  std::vector<Expr> all;
  if (!range.upper || side(range.upper) >= 0) {
    std::optional<NumberBound> least;
    if (range.lower && side(range.lower) >= 0) least = range.lower;
    all.push_back(sizes(least, range.upper));
  }
  if (!range.lower || side(range.lower) < 0) {
    std::optional<NumberBound> least = NumberBound{zero, true}, most;
    if (range.upper && side(range.upper) < 0) least = size_of(*range.upper);
    if (range.lower) most = size_of(*range.lower);
    all.push_back(x.concat(x.text("-"), sizes(least, most)));
  }
  const Expr in_range = x.either(std::move(all));
  if (!range.is_fraction && range.others_than.empty()) return in_range;
  // Zeros behind a number's last decimal change nothing.
  const Expr zeros = x.repeat(x.text("0"), 0, no_limit);
  std::vector<Expr> excluded;
  for (const Decimal& number : range.others_than) {
    const std::string whole = (number.is_negative ? "-" : "") + number.whole;
    const std::string& fraction = number.fraction;
    const Expr decimals = x.concat(x.text("." + fraction), zeros);
    excluded.push_back(x.concat(x.text(whole), fraction.empty() ? x.optional(decimals) : decimals));
  }
  if (range.is_fraction) {
    ByteSet whole = ByteSet::range('0', '9');
    whole.add('-');
    excluded.push_back(
        x.concat(x.repeat(x.bytes(whole), 1, no_limit), x.optional(x.concat(x.text("."), zeros))));
  }
  return x.both({in_range, x.complement(x.either(std::move(excluded)))});
}

}  // namespace coppice::constraints

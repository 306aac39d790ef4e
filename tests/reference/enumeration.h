// Every outcome of a run's random decisions, with its probability: exact laws in place of samples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/decisions.h"

namespace coppice::testing {

/// Walks depth first through the outcomes of all decisions that a run takes. The run is repeated
/// from its start for every path: it must take the same decisions after the same outcomes.
///
/// A number is not drawn but stands for an interval of (0, 1), at first all of it. A decision cuts
/// its number's interval where the outcome changes (found by bisection of the very function that
/// the product calls) and goes on in one part, whose share of the interval is the outcome's
/// probability. So two decisions at one address get the same number, as in the product, and their
/// outcomes depend on each other as they would there. So does what growth sees of the numbers that
/// will judge its children: a look tells which cell a number is in, with the cell's length for its
/// probability.
///
/// The product's numbers are the middles of 2^52 cells; here they are all reals. That moves a
/// probability by 2^-52 at most.
class Enumeration {
 public:
  /// Calls run() for every path. Within run(), decisions are taken by EnumeratedDecisions; at its
  /// end probability() is the path's.
  template <typename Run>
  void each(const Run& run) {
    decisions_.clear();
    do {
      taken_ = 0;
      probability_ = 1.0;
      numbers_.clear();
      run();
      ++paths_;
    } while (next_path());
  }

  double probability() const { return probability_; }
  std::int64_t paths() const { return paths_; }
  /// Whether two decisions of one run had the same address.
  bool address_shared() const { return address_shared_; }

  template <typename Outcome>
  auto decide(const RandomAddress& at, const Outcome& outcome) {
    Number& number = number_at(at);
    address_shared_ |= number.decided;
    number.decided = true;
    return go_on(number.interval, outcome);
  }

  /// The same for a look at a number that another decision takes, before or after.
  template <typename Outcome>
  auto look(const RandomAddress& at, const Outcome& outcome) {
    return go_on(number_at(at).interval, outcome);
  }

 private:
  struct Interval {
    double begin = 0.0, end = 1.0;
  };

  template <typename Outcome>
  auto go_on(Interval& number, const Outcome& outcome) {
    if (taken_ == decisions_.size()) decisions_.push_back({parts_of(number, outcome), 0});
    const Decision& decision = decisions_[taken_++];
    const Interval part = decision.parts[decision.chosen];
    probability_ *= (part.end - part.begin) / (number.end - number.begin);
    number = part;
    return outcome(0.5 * (part.begin + part.end));
  }

  struct Decision {
    std::vector<Interval> parts;
    std::size_t chosen;
  };
  struct Number {
    RandomAddress at;
    Interval interval;
    bool decided = false;
  };

  static bool same(const RandomAddress& a, const RandomAddress& b) {
    return a.stream == b.stream && a.node_key == b.node_key && a.index == b.index &&
           a.key.step == b.key.step && a.key.sequence == b.key.sequence &&
           a.key.seed == b.key.seed;  // the position names coupled noise only
  }

  Number& number_at(const RandomAddress& at) {
    for (Number& number : numbers_) {
      if (same(number.at, at)) return number;
    }
    numbers_.push_back({at, {}});
    return numbers_.back();
  }

  template <typename Outcome>
  static std::vector<Interval> parts_of(const Interval& whole, const Outcome& outcome) {
    constexpr double least = 0x1p-53;  // the middle of the first of 2^52 cells
    std::vector<Interval> parts;
    const double last = std::min(whole.end, 1.0 - least) - (whole.end < 1.0 ? least : 0.0);
    const auto last_outcome = outcome(last);
    double begin = whole.begin;
    while (true) {
      const auto here = outcome(std::max(begin, least));
      if (here == last_outcome || last <= begin) break;
      double inside = begin, outside = last;
      while (outside - inside > 0x1p-55) {
        const double middle = 0.5 * (inside + outside);
        if (middle <= inside || middle >= outside) break;
        (outcome(std::max(middle, least)) == here ? inside : outside) = middle;
      }
      parts.push_back({begin, outside});
      begin = outside;
    }
    parts.push_back({begin, whole.end});
    return parts;
  }

  // The next path in depth-first order; false after the last.
  bool next_path() {
    while (!decisions_.empty()) {
      Decision& last = decisions_.back();
      if (++last.chosen < last.parts.size()) return true;
      decisions_.pop_back();
    }
    return false;
  }

  std::vector<Decision> decisions_;  // of the path at hand
  std::size_t taken_ = 0;            // of these, in this run
  std::vector<Number> numbers_;      // asked for in this run
  double probability_ = 1.0;
  std::int64_t paths_ = 0;
  bool address_shared_ = false;
};

/// Decisions (base/decisions.h) by an enumeration, which must outlive them.
class EnumeratedDecisions {
 public:
  explicit EnumeratedDecisions(Enumeration& enumeration) : enumeration_(&enumeration) {}
  template <typename Outcome>
  auto operator()(const RandomAddress& at, const Outcome& outcome) const {
    return enumeration_->decide(at, outcome);
  }
  template <typename Outcome>
  auto look(const RandomAddress& at, const Outcome& outcome) const {
    return enumeration_->look(at, outcome);
  }

 private:
  Enumeration* enumeration_;
};

}  // namespace coppice::testing

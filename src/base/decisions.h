// Random decisions: a number's address, and what follows from the number.
//
// Acceptance rules and child drawing take every random decision through a type `Decisions`, a
// template parameter:
//   decide(address, outcome)   outcome(u), where u in (0, 1) is the number at that address.
//                              `outcome` is a step function of u, and no two of its steps are equal
//                              (accepted below some u, refused above; tokens in order of id).
//   decide.look(address, outcome)   the same, at a number that another decision takes
// In the product that is PhiloxDecisions, which costs nothing. Tests walk through every outcome
// with its probability (tests/reference/enumeration.h), and plant faults of addressing.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace coppice {

/// What a number is for (base/random.h).
struct RandomAddress {
  RandomStream stream = RandomStream::draft;
  StepKey key;
  std::uint64_t node_key = 0;
  std::uint64_t index = 0;
};

struct PhiloxDecisions {
  template <typename Outcome>
  auto operator()(const RandomAddress& at, const Outcome& outcome) const {
    return outcome(uniform(at.stream, at.key, at.node_key, at.index));
  }
  template <typename Outcome>
  auto look(const RandomAddress& at, const Outcome& outcome) const {
    return (*this)(at, outcome);
  }
};

}  // namespace coppice

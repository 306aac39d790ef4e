// How evenly plain decoding ran: what tells of a machine that others used meanwhile.
#pragma once

#include <span>
#include <string>

#include "study/grid/results.h"
#include "study/statistics.h"

namespace coppice::study {

/// Tokens/s of plain decoding, prefill left out, in the slowest and the fastest part of a run: in
/// its rounds, or, where it has one, in thirds of its prompts, in the order in which they were run.
/// Figures of several runs are those of the one where they differ most. 0: too little was run to
/// say.
struct PlainPace {
  double slowest = 0.0, fastest = 0.0;
  bool of_rounds = false;

  bool noisy() const { return fastest > noisy_ratio * slowest; }
};

/// Takes the parts of all plain decoding on `prompts`. Thirds have at least two prompts; their
/// texts are not the same, so that their speeds are those for texts of average length: seconds a
/// pass are fitted as a line over tokens in the context, and a third is as fast as its passes are
/// faster than the line.
PlainPace plain_pace(const Results& results, std::span<const std::string> prompts);

/// Says that the machine was noisy, and what to do; empty if it was not. `whose`: "This machine".
std::string noise_sentence(const PlainPace& pace, const std::string& whose);

}  // namespace coppice::study

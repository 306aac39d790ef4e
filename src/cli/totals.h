// What many texts took together.
#pragma once

#include <cstdint>
#include <string>

#include "coppice.h"

namespace coppice::cli {

class Totals {
 public:
  void add(const Generation& generation);
  /// As lines for a terminal; `seconds` is the wall clock from the first text's beginning.
  std::string table(double seconds) const;

 private:
  std::int64_t texts_ = 0, tokens_ = 0, prompt_tokens_ = 0, steps_ = 0, preemptions_ = 0;
  std::int64_t without_room_ = 0;  ///< texts that ended because context or memory was full
  double judged_ = 0.0;            ///< tokens, by steps
  double drafted_ = 0.0;           ///< tokens, by steps
  double shared_ = 0.0;            ///< texts in a step, by steps
  double queue_seconds_ = 0.0;
};

}  // namespace coppice::cli

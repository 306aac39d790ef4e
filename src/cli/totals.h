// What many texts took together, and what they were made with.
#pragma once

#include <cstdint>
#include <string>

#include "coppice.h"

namespace coppice::cli {

class Totals {
 public:
  /// Texts begin, and have ended so far: the wall clock, and Engine::load_seconds(), to which the
  /// first text may add the measuring of costs, which is no time of the texts.
  void begin(double now, double load_seconds) { start_ = now - load_seconds; }
  void end(double now, double load_seconds) { seconds_ = now - load_seconds - start_; }
  void add(const Generation& generation);
  /// As lines for a terminal.
  std::string table() const;
  /// Says so if texts ended because there was no room for more; else empty.
  std::string shortage() const;

 private:
  std::int64_t texts_ = 0, tokens_ = 0, steps_ = 0, preemptions_ = 0;
  std::int64_t prompt_tokens_ = 0, cached_tokens_ = 0;
  std::int64_t without_room_ = 0;  ///< texts that ended because context or memory was full
  double judged_ = 0.0;            ///< tokens, by steps
  double drafted_ = 0.0;           ///< tokens, by steps
  double shared_ = 0.0;            ///< texts in a step, by steps
  double queue_seconds_ = 0.0;
  double start_ = 0.0, seconds_ = 0.0;
  // As used: what the texts share, else "several ...".
  std::string policy_, acceptance_, temperature_, seed_;
  std::string machine_;
};

}  // namespace coppice::cli

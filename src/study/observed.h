// What an engine does, step by step, and what its texts brought.
#pragma once

#include <span>
#include <utility>

#include "engine/access.h"

namespace coppice::study {

/// What texts brought, prefill left out.
struct Trial {
  double tokens = 0.0, seconds = 0.0;
  double steps = 0.0, kept = 0.0;  ///< kept: tokens of steps (Statistics::accepted_length)
  double drafted = 0.0;            ///< draft tokens
  double looked_up = 0.0, looked_up_accepted = 0.0;  ///< of these
  double draft_seconds = 0.0, verify_seconds = 0.0;

  static Trial of(const Statistics& s) {
    const auto steps = static_cast<double>(s.steps);
    const double seconds = s.decode_seconds();
    return {s.decode_tokens_per_second * seconds,
            seconds,
            steps,
            s.accepted_length * steps,
            s.tree_size_mean * steps,
            static_cast<double>(s.looked_up),
            static_cast<double>(s.looked_up_accepted),
            s.seconds.draft,
            s.seconds.verify};
  }
  Trial& operator+=(const Trial& other) {
    tokens += other.tokens;
    seconds += other.seconds;
    steps += other.steps;
    kept += other.kept;
    drafted += other.drafted;
    looked_up += other.looked_up;
    looked_up_accepted += other.looked_up_accepted;
    draft_seconds += other.draft_seconds;
    verify_seconds += other.verify_seconds;
    return *this;
  }
  double tokens_per_second() const { return seconds > 0.0 ? tokens / seconds : 0.0; }
  double accepted_length() const { return steps > 0.0 ? kept / steps : 1.0; }
  double tree_size() const { return steps > 0.0 ? drafted / steps : 0.0; }
};

/// The same request for a text of so many new tokens, which nothing said in it ends before.
inline GenerateOptions whole_text(GenerateOptions options, std::int32_t new_tokens) {
  options.max_new_tokens = new_tokens;
  options.ignore_eos = true;
  options.logprobs = false;
  options.stop.clear();
  return options;
}

/// Watches every step of `engine` while it lives, then puts the former observer back.
class Observed {
 public:
  Observed(Engine& engine, StepObserver observer)
      : engine_(engine), former_(engine_.observe(std::move(observer))) {}
  ~Observed() { engine_.observe(std::move(former_)); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  EngineAccess engine_;
  StepObserver former_;
};

}  // namespace coppice::study

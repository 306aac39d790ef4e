// An engine's step observer, for a while.
#pragma once

#include <utility>

#include "engine/access.h"

namespace coppice::study {

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

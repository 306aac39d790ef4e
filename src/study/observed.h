// An engine's step observer, for a while.
#pragma once

#include <utility>

#include "engine/engine_impl.h"

namespace coppice::study {

/// Watches every step of `engine` while it lives, then puts the former observer back.
class Observed {
 public:
  Observed(Engine& engine, StepObserver observer)
      : engine_(engine.impl()), former_(std::exchange(engine_.observer, std::move(observer))) {}
  ~Observed() { engine_.observer = std::move(former_); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Engine::Impl& engine_;
  StepObserver former_;
};

}  // namespace coppice::study

// Where the time of a step goes.
#pragma once

namespace coppice {

/// Wall-clock seconds of one step.
struct StepSeconds {
  double draft = 0.0;         ///< the draft's forward passes
  double first_draft = 0.0;   ///< of these the first, which finds cold caches and new text
  double drawing = 0.0;       ///< children out of the draft's logits
  double construction = 0.0;  ///< the policy's own work, and the depth-first order
  double verify = 0.0;        ///< the target's forward pass
  double judging = 0.0;       ///< 0 where a device judges behind the pass: it is the pass's then

  StepSeconds& operator+=(const StepSeconds& other) {
    draft += other.draft;
    first_draft += other.first_draft;
    drawing += other.drawing;
    construction += other.construction;
    verify += other.verify;
    judging += other.judging;
    return *this;
  }
};

}  // namespace coppice

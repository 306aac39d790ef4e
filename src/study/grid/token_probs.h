// What the target says of the tokens of a judged tree.
#pragma once

#include <vector>

#include "engine/step_view.h"

namespace coppice::study {

/// T(token | path) of every node, [nodes], 1 for the root: the logits of the step's pass, processed
/// by `params`. On a GPU a row of logits is downloaded for every node that has children.
std::vector<float> token_probs(const StepView& step, const SamplingParams& params);

}  // namespace coppice::study

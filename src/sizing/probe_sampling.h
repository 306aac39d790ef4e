// Sampling as a step does it behind a pass, so that a pass is priced with what it brings.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/device_sampler.h"
#include "kernels/pass_epilogue.h"

namespace coppice {

/// For devices that sample: stage() before a pass of `rows` logit rows, whose epilogue it returns,
/// collect() behind it.
class ProbeSampling {
 public:
  virtual ~ProbeSampling() = default;
  virtual PassEpilogue* stage(std::int32_t rows) = 0;
  virtual void collect() = 0;
};

/// Draws children of the draft's rows.
std::unique_ptr<ProbeSampling> make_draw_probe(DeviceSampler& sampler, std::int32_t store_rows);
/// Judges a chain by recursive rejection.
std::unique_ptr<ProbeSampling> make_judge_probe(DeviceSampler& sampler, std::int64_t target_vocab,
                                                std::int32_t store_rows);

}  // namespace coppice

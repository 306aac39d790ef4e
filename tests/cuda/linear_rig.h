// A linear engine on a test's stream.
#pragma once

#include <optional>

#include "cuda/guarded_array.h"
#include "kernels/cuda/linear/linear.h"

namespace coppice::testing {

class LinearRig : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped()) return;
    upload_.emplace(allocate_for_test, stream_);
    engine_.emplace(*upload_, allocate_for_test);
  }
  void TearDown() override {
    engine_.reset();
    upload_.reset();
    KernelTest::TearDown();
  }

  std::optional<cuda::WeightUpload> upload_;
  std::optional<cuda::LinearEngine> engine_;
};

}  // namespace coppice::testing

// The device that tests of whole engines and models run on.
#pragma once

#include <memory>
#include <string>

#include "kernels/device.h"

namespace coppice::testing {

/// "cpu", or "cuda" where the environment variable COPPICE_TEST_DEVICE says so: the same programs
/// then test the CUDA backend, and skip every test where no GPU can be used.
std::string test_device();
inline bool on_cuda() { return test_device() == "cuda"; }

/// Ranks that the target is split over in engines' tests, as the environment variable
/// COPPICE_TEST_RANKS says: the same programs then test tensor parallelism. 1 if it is not set.
int test_ranks();

/// That device; on the CPU with one thread and f32.
std::unique_ptr<Device> make_test_device();

/// Unit roundoff of activations on that device.
inline double test_roundoff() { return on_cuda() ? 0x1.0p-9 : 0x1.0p-24; }

}  // namespace coppice::testing

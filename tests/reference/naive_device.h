// A Device without any cleverness: f32 buffers, every sum in double. An oracle, not a backend.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace coppice::testing {

/// Activations are f32. tree_attention reads a plan's tokens and intervals and ignores its
/// chunks, so that it also judges the chunking of others. Matrix products never pad rows.
std::unique_ptr<Device> make_naive_device();

}  // namespace coppice::testing

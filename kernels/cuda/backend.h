// What the module's entry point hands out (kernels/cuda_module.h).
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda_code.h"
#include "kernels/device.h"

namespace coppice::cuda {

/// As make_cuda_device() and has_cuda_device() of kernels/device.h.
std::unique_ptr<Device> make_device(const CudaOptions& options);
bool has_device(std::string* why_not = nullptr, bool* present = nullptr);
/// As cuda_device_count(). Only where has_device() says yes.
int device_count();
/// Names the GPU and the kernels that it gets. Only where has_device() says yes.
CardCode describe_card();

}  // namespace coppice::cuda

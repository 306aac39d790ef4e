#include "kernels/device.h"

#include <atomic>

#include "kernels/device_sampler.h"

namespace coppice {

namespace {

std::atomic<std::uint64_t> samplers_made = 0;

}  // namespace

DeviceSampler::DeviceSampler() : id_(++samplers_made) {}

std::unique_ptr<DeviceSampler> Device::make_sampler(const SamplerLimits&) { return nullptr; }

std::size_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
  }
  return "?";
}

}  // namespace coppice

#include "kernels/device.h"

#include "base/error.h"
#include "kernels/communicator.h"
#include "kernels/device_sampler.h"

namespace coppice {

std::unique_ptr<DeviceSampler> Device::make_sampler(const SamplerLimits&) { return nullptr; }

std::unique_ptr<WeightStream> Device::make_weight_stream(std::int32_t) {
  throw_failure(cat("device ", name(), ": it cannot stream weights"));
}

std::vector<std::unique_ptr<Communicator>> Device::make_communicators(
    std::span<Device* const> devices, std::chrono::milliseconds) {
  throw_failure(cat("device ", name(), ": ", devices.size(), " of them cannot share a model"));
}

std::unique_ptr<Communicator> Device::join_group(const RankGroup& group) {
  throw_failure(
      cat("device ", name(), ": processes with ", group.ranks, " of them cannot share a model"));
}

void Device::qkv_linear(const Pass& pass, const LinearWeights& weights, const void* x,
                        std::int32_t rows, float* qkv, const QkvOutput& to) {
  linear(weights, x, rows, qkv, false);
  rope_write_kv(pass, qkv, to);
}

void Device::add_rms_norm_then_norm(const float* x, const float* weight, const float* next_weight,
                                    float epsilon, std::int32_t rows, std::int64_t hidden,
                                    float* into, void* out) {
  add_rms_norm(x, weight, epsilon, rows, hidden, into);
  rms_norm(into, next_weight, epsilon, rows, hidden, out);
}

void Device::gated_linear(Activation activation, const LinearWeights& weights, const void* x,
                          std::int32_t rows, float* gate_up, void* out) {
  linear(weights, x, rows, gate_up, false);
  glu(activation, gate_up, rows, weights.out_features() / 2, out);
}

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

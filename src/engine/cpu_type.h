// Which types the CPU computes a model in and keeps its KV in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "coppice.h"
#include "kernels/device.h"

namespace coppice {

/// The type of activations.
DType cpu_type(CpuDtype cpu_dtype);

/// Whether matrices of a model's files are in blocks of few bits.
bool is_stored_quantised(const std::filesystem::path& model);
/// Throws Error(usage) for such a model but of FP8: nothing of it is rounded again. `option` is
/// what asks for that.
void require_roundable(const std::filesystem::path& model, const std::string& option);

/// For people, of this model: the types of weights, activations and sums.
std::string describe_cpu_types(const std::filesystem::path& model, CpuDtype cpu_dtype,
                               std::optional<WeightFormat> rounding = std::nullopt);
/// For people: what bf16 brings on this processor.
std::string describe_cpu_bf16();

/// nullopt: automatic.
std::optional<DType> asked_kv_type(KvDtype kv_dtype);
/// Throws Error(usage) if that is another type than the device keeps keys and values in.
void require_kv_type(KvDtype kv_dtype, const Device& device);

}  // namespace coppice

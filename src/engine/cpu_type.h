// Which types the CPU computes a model in and keeps its KV in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "kernels/device.h"

namespace coppice {

/// What EngineOptions::cpu_dtype asks for: the type of activations, f32 or bf16. "auto" is f32 on
/// every CPU. Throws Error(usage) for an unknown name.
DType cpu_type(const std::string& cpu_dtype);

/// For people, of the model in this folder: the types of weights, activations and sums.
std::string describe_cpu_types(const std::filesystem::path& model, DType type);
/// For people: what bf16 brings on this processor.
std::string describe_cpu_bf16();

/// What EngineOptions::kv_dtype asks for; nullopt: "auto". Throws Error(usage) for an unknown name.
std::optional<DType> asked_kv_type(const std::string& kv_dtype);
/// Throws Error(usage) if that is another type than the device keeps keys and values in.
void require_kv_type(const std::string& kv_dtype, const Device& device);

}  // namespace coppice

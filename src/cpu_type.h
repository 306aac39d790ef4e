// Which types the CPU computes a model in.
#pragma once

#include <filesystem>
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

}  // namespace coppice

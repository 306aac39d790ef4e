// Which type the CPU computes a model in.
#pragma once

#include <filesystem>
#include <string>

#include "kernels/device.h"

namespace coppice {

struct CpuType {
  DType type = DType::f32;  ///< f32 or bf16
  std::string why;          ///< for people
};

/// What EngineOptions::cpu_dtype asks for. "auto" looks at the headers of the model's weight files
/// alone: bf16 if all matrices are stored so and the CPU multiplies it, else f32. Each model of a
/// pair goes by its own weights, so that what is written does not depend on the draft's.
/// Throws Error(usage) for an unknown name; a folder that cannot be read is f32.
CpuType choose_cpu_type(const std::filesystem::path& model, const std::string& cpu_dtype);

}  // namespace coppice

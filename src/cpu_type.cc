#include "cpu_type.h"

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "models/checkpoint.h"

namespace coppice {
namespace {

// Of all matrices, as safetensors names it; "several types" if they differ.
std::string stored_type(const Checkpoint& checkpoint) {
  std::string type;
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const auto& [name, tensor] : file.tensors()) {
      // Norms and biases are computed with in f32 whatever the type.
      if (tensor.shape.size() < 2) continue;
      if (!type.empty() && type != tensor.dtype) return "several types";
      type = tensor.dtype;
    }
  }
  return type;
}

}  // namespace

CpuType choose_cpu_type(const std::filesystem::path& model, const std::string& cpu_dtype) {
  if (cpu_dtype == "f32") return {DType::f32, "as asked for"};
  if (cpu_dtype == "bf16") return {DType::bf16, "as asked for"};
  if (cpu_dtype != "auto") {
    throw_usage(cat("cpu dtype ", quote(cpu_dtype), " is unknown; use auto, f32 or bf16"));
  }
  std::string stored;
  try {
    stored = stored_type(Checkpoint(model));
  } catch (const Error&) {
    return {DType::f32, "its weights cannot be read"};
  }
  if (stored != "BF16") return {DType::f32, cat("its weights are of ", stored)};
  const std::string set = cpu::name_of(cpu::instruction_set());
  if (cpu::has_native_bf16())
    return {DType::bf16, cat("as its weights are; ", set, " multiplies it")};
  return {DType::f32, cat("its weights are BF16, which ", set, " does not multiply")};
}

}  // namespace coppice

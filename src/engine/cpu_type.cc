#include "engine/cpu_type.h"

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "models/checkpoint.h"

namespace coppice {
namespace {

// Of all matrices, as safetensors names it.
std::string stored_type(const std::filesystem::path& model) {
  std::string type;
  try {
    const Checkpoint checkpoint(model);
    for (const SafetensorsFile& file : checkpoint.files()) {
      for (const auto& [name, tensor] : file.tensors()) {
        // Norms and biases are kept in f32 whatever the type.
        if (tensor.shape.size() < 2) continue;
        if (!type.empty() && type != tensor.dtype) return "several types";
        type = tensor.dtype;
      }
    }
  } catch (const Error&) {
    return "an unknown type";
  }
  return type;
}

}  // namespace

DType cpu_type(CpuDtype cpu_dtype) {
  return cpu_dtype == CpuDtype::bf16 ? DType::bf16 : DType::f32;
}

std::string describe_cpu_types(const std::filesystem::path& model, DType type) {
  const std::string stored = stored_type(model);
  if (type == DType::f32 && stored == "F16" && !cpu::has_native_f16()) {
    return cat("weights F16 kept as F32, as ", cpu::name_of(cpu::instruction_set()),
               " does not widen them, activations and sums F32");
  }
  if (type == DType::f32) return cat("weights ", stored, " as stored, activations and sums F32");
  return cat("weights and activations BF16, sums F32",
             stored == "BF16" ? "" : cat(" (stored as ", stored, ")"));
}

std::string describe_cpu_bf16() {
  const std::string set = cpu::name_of(cpu::instruction_set());
  if (!cpu::has_native_bf16())
    return cat("not on this processor: ", set, " does not multiply BF16");
  return cat("activations rounded to BF16, which ", set,
             " multiplies: passes of many rows may be faster, and texts part at near-ties");
}

std::optional<DType> asked_kv_type(KvDtype kv_dtype) {
  switch (kv_dtype) {
    case KvDtype::f32:
      return DType::f32;
    case KvDtype::bf16:
      return DType::bf16;
    case KvDtype::f16:
      return DType::f16;
    case KvDtype::automatic:
      break;
  }
  return std::nullopt;
}

void require_kv_type(KvDtype kv_dtype, const Device& device) {
  const DType kept = device.kv_dtype();
  if (asked_kv_type(kv_dtype).value_or(kept) == kept) return;
  throw_usage(cat("kv dtype ", name_of(kv_dtype), " on ", device.description(),
                  ": KV is kept in the models' ", name_of(kept),
                  " there; use auto, or the CPU (--device cpu)"));
}

}  // namespace coppice

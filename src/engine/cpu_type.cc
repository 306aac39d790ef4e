#include "engine/cpu_type.h"

#include <algorithm>
#include <memory>
#include <set>

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "models/weight_source.h"

namespace coppice {
namespace {

/// The types of a model's matrices. Norms and biases are kept in f32 whatever the type.
std::set<std::string> stored_types(const std::filesystem::path& model,
                                   std::optional<WeightFormat> rounding) {
  std::set<std::string> types;
  const std::unique_ptr<WeightSource> source = open_weights(model, rounding);
  for (const std::string& name : source->names()) {
    const StoredTensor& tensor = *source->find(name);
    if (tensor.shape.size() >= 2) types.insert(tensor.dtype);
  }
  return types;
}

bool is_quantised(const std::string& type) {
  const auto format = format_named(type);
  return format && !dtype_of(*format);
}

bool is_of_integers(const std::string& type) {
  const auto format = format_named(type);
  return format && has_integers(*format);
}

}  // namespace

DType cpu_type(CpuDtype cpu_dtype) {
  return cpu_dtype == CpuDtype::bf16 ? DType::bf16 : DType::f32;
}

std::string describe_cpu_types(const std::filesystem::path& model, CpuDtype cpu_dtype,
                               std::optional<WeightFormat> rounding) {
  std::set<std::string> types;
  try {
    types = stored_types(model, rounding);
  } catch (const Error&) {
  }
  std::string stored;
  for (const std::string& type : types) stored += (stored.empty() ? "" : ", ") + type;
  if (stored.empty()) stored = "an unknown type";
  if (cpu_type(cpu_dtype) == DType::bf16) {
    return cat("weights and activations BF16, sums F32",
               stored == "BF16" ? "" : cat(" (stored as ", stored, ")"));
  }
  if (stored == "F16" && !cpu::has_native_f16()) {
    return cat("weights F16 kept as F32, as ", cpu::name_of(cpu::instruction_set()),
               " does not widen them, activations and sums F32");
  }
  const bool integers =
      cpu_dtype == CpuDtype::automatic && std::any_of(types.begin(), types.end(), is_of_integers);
  return cat("weights ", stored, rounding ? " as rounded" : " as stored",
             ", activations and sums F32",
             !integers               ? ""
             : types.contains("FP8") ? ", 8 bits where activations meet quantised weights but FP8"
                                     : ", 8 bits where activations meet quantised weights");
}

bool is_stored_quantised(const std::filesystem::path& model) {
  const std::set<std::string> types = stored_types(model, std::nullopt);
  return std::any_of(types.begin(), types.end(), is_quantised);
}

void require_roundable(const std::filesystem::path& model, const std::string& option) {
  const std::set<std::string> types = stored_types(model, std::nullopt);
  if (std::none_of(types.begin(), types.end(), is_of_integers)) return;
  throw_usage(cat(option, ": ", quote(model.string()),
                  " is stored quantised, and is not rounded again; leave it out, or name the model "
                  "in 16 or 32 bits, or in FP8"));
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

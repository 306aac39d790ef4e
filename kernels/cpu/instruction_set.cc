#include "kernels/cpu/instruction_set.h"

#include <sys/utsname.h>

#include <cstdint>
#include <cstdlib>
#include <dnnl.hpp>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "hwy/targets.h"

namespace coppice::cpu {
namespace {

dnnl::cpu_isa onednn_name(InstructionSet set) {
  switch (set) {
    case InstructionSet::sse4:
      return dnnl::cpu_isa::sse41;
    case InstructionSet::avx2:
      return dnnl::cpu_isa::avx2;
    case InstructionSet::avx512:
      return dnnl::cpu_isa::avx512_core;
    case InstructionSet::avx512_bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case InstructionSet::amx:
      break;
  }
  return dnnl::cpu_isa::avx512_core_amx;
}

// The best Highway target of a set. Better ones have lower bits.
std::int64_t highway_target(InstructionSet set) {
  switch (set) {
    case InstructionSet::sse4:
      return HWY_SSE4;
    case InstructionSet::avx2:
      return HWY_AVX2;
    case InstructionSet::avx512:
      return HWY_AVX3;
    case InstructionSet::avx512_bf16:
#ifdef HWY_AVX3_ZEN4
      return HWY_AVX3_ZEN4;
#else
      return HWY_AVX3_DL;
#endif
    case InstructionSet::amx:
      break;
  }
  return 1;
}

bool onednn_uses(InstructionSet set) {
  const auto wanted = static_cast<unsigned>(onednn_name(set));
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

const char* cap_text() {
  const char* text = std::getenv(instruction_set_variable);
  return text == nullptr ? "" : text;
}

std::optional<InstructionSet> cap() {
  const std::string text = cap_text();
  if (text.empty()) return std::nullopt;
  std::string names;
  for (const InstructionSet set : all_instruction_sets) {
    if (text == name_of(set)) return set;
    names += cat(names.empty() ? "" : ", ", name_of(set));
  }
  throw_usage(
      cat(instruction_set_variable, "=", quote(text), ": no such instruction set; use ", names));
}

InstructionSet settle() {
  const auto most = cap();
  if (most) {
    // Refused where oneDNN is in use already, or was built without: what counts is looked at below.
    (void)dnnl::set_max_cpu_isa(onednn_name(*most));
    hwy::DisableTargets(highway_target(*most) - 1);
  }
  auto best = InstructionSet::sse4;
  for (const InstructionSet set : all_instruction_sets) {
    if (onednn_uses(set)) best = set;
  }
  if (most && best > *most) {
    throw_failure(cat(instruction_set_variable, "=", name_of(*most), ": oneDNN already uses ",
                      name_of(best), " in this process; set ONEDNN_MAX_CPU_ISA as well"));
  }
  return best;
}

}  // namespace

const char* name_of(InstructionSet set) {
  constexpr std::array names = {"sse4", "avx2", "avx512", "avx512_bf16", "amx"};
  return names[static_cast<std::size_t>(set)];
}

InstructionSet instruction_set() {
  static const InstructionSet settled = settle();  // tried again after an exception
  return settled;
}

std::string processor_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  utsname machine{};
  return uname(&machine) == 0 ? machine.machine : "an unnamed processor";
}

std::string describe_processor() {
  return cat(name_of(instruction_set()), " of ", processor_model());
}

}  // namespace coppice::cpu

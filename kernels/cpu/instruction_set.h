// The instructions that the CPU's code may use: oneDNN's, Highway's and coppice's own.
#pragma once

#include <array>
#include <string>

namespace coppice::cpu {

/// x86-64 levels that some code here makes a difference between; each holds those before it.
enum class InstructionSet { sse4, avx2, avx512, avx512_bf16, amx };
inline constexpr std::array all_instruction_sets = {
    InstructionSet::sse4, InstructionSet::avx2, InstructionSet::avx512, InstructionSet::avx512_bf16,
    InstructionSet::amx};

/// The names that the environment variable takes: "sse4", "avx2" and so on.
const char* name_of(InstructionSet set);

/// Environment variable that caps the instruction set; unset or empty: no cap.
inline constexpr const char* instruction_set_variable = "COPPICE_CPU_ISA";

/// What code runs with: the best that the processor and the variable above allow (oneDNN's own
/// ONEDNN_MAX_CPU_ISA too). Settled for the whole process by the first call, which every CPU
/// device makes and which must come before any other use of Highway's dispatch. Throws
/// Error(usage) for an unknown name, Error(failure) if the process has used oneDNN before with
/// more than the cap.
InstructionSet instruction_set();

/// Whether the processor, so capped, multiplies bf16.
inline bool has_native_bf16() { return instruction_set() >= InstructionSet::avx512_bf16; }

/// Whether the processor, so capped, widens f16 (F16C, which comes with AVX2).
inline bool has_native_f16() { return instruction_set() >= InstructionSet::avx2; }

/// "AMD EPYC 9B45", as the kernel names it; the machine's kind if it names none.
std::string processor_model();
/// "avx2 of AMD EPYC 9B45": for people.
std::string describe_processor();

}  // namespace coppice::cpu

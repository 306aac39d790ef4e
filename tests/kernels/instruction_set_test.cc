// That the cap of COPPICE_CPU_ISA, or the processor's own, reaches every library. Run under each
// cap by scripts/test-instruction-sets.
#include "kernels/cpu/instruction_set.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "hwy/targets.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/workers.h"

namespace coppice::cpu {
namespace {

TEST(InstructionSet, IsWithinTheCap) {
  const char* cap = std::getenv(instruction_set_variable);
  if (cap == nullptr || *cap == '\0') GTEST_SKIP() << "no cap is set";
  std::size_t most = 0;
  while (cap != std::string(name_of(all_instruction_sets.at(most)))) ++most;
  EXPECT_LE(instruction_set(), all_instruction_sets[most]);
}

TEST(InstructionSet, DoesNotChangeWithinAProcess) {
  const InstructionSet settled = instruction_set();
  const char* before = std::getenv(instruction_set_variable);
  const std::string kept = before == nullptr ? "" : before;
  setenv(instruction_set_variable, "no such set", 1);
  EXPECT_EQ(instruction_set(), settled);
  setenv(instruction_set_variable, kept.c_str(), 1);
}

TEST(InstructionSet, ReachesHighway) {
  std::int64_t better = 0;  // targets that take more than the set has; better ones have lower bits
  if (instruction_set() == InstructionSet::sse4) better = HWY_SSE4 - 1;
  if (instruction_set() == InstructionSet::avx2) better = HWY_AVX2 - 1;
  if (instruction_set() == InstructionSet::avx512) better = HWY_AVX3 - 1;
  EXPECT_EQ(hwy::SupportedTargets() & better, 0);
}

TEST(InstructionSet, ReachesOneDnn) {
  Workers workers(1);
  LinearEngine engine(DType::f32, false, workers);
  const std::int64_t in = 64, out = 64;
  const std::vector<float> values(static_cast<std::size_t>(in * out), 1.0f);
  const LinearPart part{values.data(), DType::f32, out};
  const auto weights = engine.pack({&part, 1}, in, {}, 256);
  const std::string code = engine.implementation(*weights, 256);
  if (instruction_set() < InstructionSet::avx512) {
    EXPECT_EQ(code.find("avx512"), std::string::npos) << code;
  }
  if (instruction_set() < InstructionSet::avx2) {
    EXPECT_EQ(code.find("avx2"), std::string::npos) << code;
  }
  EXPECT_EQ(code.find("amx"), std::string::npos) << code << " for f32";
}

}  // namespace
}  // namespace coppice::cpu

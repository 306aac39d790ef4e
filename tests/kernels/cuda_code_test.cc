// Which kernels a card gets of a module's code, and when a line warns.
#include "kernels/cuda_code.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(CudaCode, HopperWithItsKernelsIsNotWarnedOf) {
  const CardCode code = card_code("NVIDIA H200", 9, 0, "80 90a 120 120-ptx", true);
  EXPECT_EQ(code.card, "NVIDIA H200, compute capability 9.0");
  EXPECT_EQ(code.kernels, "Hopper kernels (streamed products, wgmma attention)");
  EXPECT_EQ(code.warning, "");
}

TEST(CudaCode, HopperWithoutThemIs) {
  for (const char* architectures : {"90", "80", "80 90-ptx"}) {
    const CardCode code = card_code("NVIDIA H100 PCIe", 9, 0, architectures, false);
    EXPECT_EQ(code.kernels, "general kernels");
    EXPECT_NE(code.warning.find("the kernels for NVIDIA H100 PCIe (90a)"), std::string::npos);
    EXPECT_NE(code.warning.find("-DCOPPICE_CUDA_ARCHITECTURES=native"), std::string::npos);
  }
}

TEST(CudaCode, MachineCodeRunsWithinAMajorVersion) {
  EXPECT_EQ(card_code("NVIDIA A100", 8, 0, "80", false).warning, "");
  EXPECT_EQ(card_code("NVIDIA L40S", 8, 9, "80 90a", false).warning, "");
  EXPECT_EQ(card_code("NVIDIA B300", 10, 3, "100 120", false).warning, "");
  EXPECT_EQ(card_code("NVIDIA GeForce RTX 5090", 12, 0, "90a 120 120-ptx", false).warning, "");
}

TEST(CudaCode, PtxAloneIsWarnedOf) {
  const auto warns = [](int major, int minor, const char* architectures) {
    const CardCode code = card_code("card", major, minor, architectures, false);
    EXPECT_EQ(code.kernels, "general kernels, compiled by the driver from PTX");
    EXPECT_NE(code.warning.find("no machine code for card ("), std::string::npos) << code.warning;
  };
  warns(12, 0, "80 90a 90-ptx");
  warns(8, 0, "86 80-ptx");    // an earlier minor version
  warns(10, 0, "90a 80-ptx");  // 90a runs on 9.0 alone
  warns(10, 3, "100a 80-ptx");
  warns(12, 0, "80-ptx");
}

}  // namespace
}  // namespace coppice

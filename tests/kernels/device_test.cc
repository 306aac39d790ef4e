#include "kernels/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/linear.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

TEST(CpuDevice, SaysWhatItIs) {
  const auto device = make_cpu_device({});
  EXPECT_EQ(device->name(), "cpu");
  EXPECT_GE(device->threads(), 1);
  EXPECT_EQ(device->compute_dtype(), DType::f32);
  EXPECT_EQ(device->padded_rows(9), 9);
  CpuOptions options;
  options.threads = 3;
  EXPECT_EQ(make_cpu_device(options)->threads(), 3);
  options.threads = -1;
  EXPECT_THROW(make_cpu_device(options), Error);
}

TEST(CpuDevice, RefusesBf16WithoutItsInstructions) {
  CpuOptions options;
  options.compute = DType::bf16;
  if (cpu::has_native_bf16()) {
    const auto device = make_cpu_device(options);
    EXPECT_EQ(device->compute_dtype(), DType::bf16);
    EXPECT_EQ(device->padded_rows(9), 10);
    return;
  }
  try {
    make_cpu_device(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

TEST(CpuDevice, AllocatesAlignedZeros) {
  const auto device = make_cpu_device({});
  for (const std::size_t bytes : {1u, 100u, 70000u, 9u << 20}) {
    const DeviceBuffer buffer = device->allocate(bytes, "test");
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(buffer.as<char>()[i], 0) << i;
  }
  EXPECT_EQ(device->allocate(0, "nothing").data(), nullptr);
}

#ifdef __linux__
TEST(CpuDevice, ReservesAlignedZerosThatAreTakenWhenUsed) {
  const auto device = make_cpu_device({});
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // Several, so that they lie at various places: what is trimmed must not be a neighbour's.
  std::vector<DeviceBuffer> buffers;
  for (const std::size_t bytes : {9u << 20, 3u << 20, (5u << 20) + 1, 100u, 4u << 20, 40u << 20}) {
    buffers.push_back(device->reserve(bytes, "test"));
    const DeviceBuffer& buffer = buffers.back();
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    if (bytes < 8u << 20) continue;
    std::vector<unsigned char> there(bytes / page);
    ASSERT_EQ(mincore(buffer.data(), there.size() * page, there.data()), 0);
    EXPECT_EQ(std::count_if(there.begin(), there.end(), [](int byte) { return (byte & 1) != 0; }),
              0);
  }
  buffers.erase(buffers.begin() + 1);
  for (const DeviceBuffer& buffer : buffers) {
    for (std::size_t i = 0; i < buffer.bytes(); ++i) ASSERT_EQ(buffer.as<char>()[i], 0) << i;
    std::memset(buffer.data(), 1, buffer.bytes());
  }
  EXPECT_EQ(device->reserve(0, "nothing").data(), nullptr);
  EXPECT_THROW((void)device->reserve(std::size_t{1} << 50, "test"), Error);
}
#endif

TEST(CpuDevice, FailedAllocationSaysWhatWasWanted) {
  const auto device = make_cpu_device({});
  for (const std::size_t bytes : {std::size_t{1} << 50, std::numeric_limits<std::size_t>::max()}) {
    try {
      device->allocate(bytes, "KV pool");
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      EXPECT_NE(std::string(error.what()).find("KV pool"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("free"), std::string::npos);
    }
  }
}

TEST(CpuDevice, CopiesBothWays) {
  const auto device = make_cpu_device({});
  const DeviceBuffer buffer = device->allocate(12, "test");
  const float values[3] = {1, 2, 3};
  float back[3] = {};
  device->upload(buffer.data(), values, sizeof values);
  device->download(back, buffer.data(), sizeof back);
  device->synchronize();
  EXPECT_EQ(back[2], 3.0f);
}

TEST(DTypes, SizesAndNames) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_STREQ(name_of(DType::bf16), "bf16");
}

}  // namespace
}  // namespace coppice

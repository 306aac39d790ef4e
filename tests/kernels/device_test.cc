#include "kernels/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
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

#ifdef __linux__
/// Memory of `bytes` that takes room as it is written to; nullptr: the system gives no addresses.
DeviceBuffer addresses(std::size_t bytes) {
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return {};
  return {room, bytes,
          [](void* memory, void* size) {
            (void)munmap(memory, reinterpret_cast<std::uintptr_t>(size));
          },
          reinterpret_cast<void*>(bytes)};
}

// A long context's memory has more elements than 32 bits count: the last slots of the last layer
// give what the first ones of a small pool do.
TEST(CpuDevice, ReachesTheLastSlotsOfLongContexts) {
  constexpr std::int32_t heads = 8, rows = 5, page_size = 16;
  const KvLayout small{1, 4, 64, page_size, 1}, large{17, 4, 64, page_size, 1 << 16};
  const std::int64_t elements =
      std::int64_t{large.layers} * large.slots() * large.kv_heads * large.head_dim;
  ASSERT_GT(elements, std::int64_t{1} << 32);
  const auto device = make_cpu_device({.threads = 2, .kv = DType::bf16});
  std::mt19937 random(21);
  auto angles = testing::random_floats(rows * 32, random);
  const auto borrow = [&] {
    return DeviceBuffer(
        angles.data(), angles.size() * sizeof(float), [](void*, void*) {}, nullptr);
  };
  const RopeTable rope{borrow(), borrow(), rows, 32};
  const auto qkv = testing::random_floats(rows * (heads + 8) * 64, random);
  const std::vector<std::int32_t> positions = {0, 1, 2, 3, 4};
  const auto pass = device->make_pass({rows, rows, rows, {heads, 4, 64}});
  const auto attended = [&](const KvLayout& layout, std::int32_t layer, KvSlot first) {
    const std::size_t bytes = 2u * static_cast<std::size_t>(layout.layers) *
                              static_cast<std::size_t>(layout.slots()) * 4u * 64u;
    const DeviceBuffer keys = addresses(bytes), values = addresses(bytes);
    std::vector<float> out;
    if (keys.data() == nullptr || values.data() == nullptr) return out;
    std::vector<KvSlot> slots;
    for (std::int32_t r = 0; r < rows; ++r) slots.push_back(first + r);
    std::vector<KvSegment> segments;
    for (std::int32_t r = 0; r < rows; ++r) {
      segments.push_back(
          {std::span(slots).subspan(static_cast<std::size_t>(r), 1), r, rows, false, r});
    }
    pass->begin({positions, positions, slots, segments, {}});
    auto row_values = qkv;
    device->rope_write_kv(*pass, row_values.data(),
                          {heads, &rope, layout, keys.data(), values.data(), layer, {}});
    out.resize(rows * heads * 64);
    device->tree_attention(*pass, row_values.data(), (heads + 8) * 64, heads, {0.125f}, layout,
                           keys.data(), values.data(), layer, out.data());
    return out;
  };
  const auto far = attended(large, large.layers - 1, large.slots() - rows);
  if (far.empty()) GTEST_SKIP() << "no addresses for a large pool";
  EXPECT_EQ(far, attended(small, 0, page_size - rows));
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

#include "kernels/cuda/linear/weight_upload.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "cuda/guarded_array.h"
#include "cuda/rounding.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

using testing::GuardedArray;
using testing::half_value;
using testing::nearest_bf16;
using testing::widened;

constexpr std::size_t chunk = std::size_t{4} << 20;  // as in weight_upload.cc

/// A mix of 64 bits (the finaliser of SplitMix64): every position has a value of its own.
std::uint64_t mixed(std::uint64_t i) {
  i += 0x9e3779b97f4a7c15u;
  i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebu;
  return i ^ (i >> 31);
}

template <typename T>
std::vector<T> numbered(std::size_t count, std::uint64_t seed = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(mixed(i + (seed << 40)));
  return values;
}

/// Host bytes at an odd address.
class Unaligned {
 public:
  template <typename T>
  explicit Unaligned(const std::vector<T>& values) : bytes_(values.size() * sizeof(T) + 1) {
    if (values.empty()) return;
    std::memcpy(bytes_.data() + 1, values.data(), values.size() * sizeof(T));
  }
  const void* data() const { return bytes_.data() + 1; }

 private:
  std::vector<char> bytes_;
};

/// Whether `bf16` is what `value` has to become.
bool is_converted(std::uint16_t bf16, float value) {
  if (std::isnan(value)) return std::isnan(widened(bf16));
  return bf16 == nearest_bf16(value);
}

class Upload : public testing::KernelTest {
 protected:
  void SetUp() override {
    testing::KernelTest::SetUp();
    if (!IsSkipped()) upload_.emplace(testing::allocate_for_test, stream_);
  }
  void TearDown() override {
    upload_.reset();
    testing::KernelTest::TearDown();
  }

  std::optional<cuda::WeightUpload> upload_;
};

TEST_F(Upload, EverySizeAroundAChunk) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{15}, std::size_t{4099},
        chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 5, 40 * chunk + 77}) {
    for (const std::size_t misaligned_by : {0, 3}) {
      SCOPED_TRACE(::testing::Message() << bytes << " bytes");
      const auto values = numbered<std::uint8_t>(bytes);
      const Unaligned host(values);
      GuardedArray<std::uint8_t> device(bytes, misaligned_by);
      upload_->upload(device.data(), host.data(), bytes);
      EXPECT_TRUE(device.download() == values);
      EXPECT_TRUE(device.guards_intact());
    }
  }
}

TEST_F(Upload, HostMemoryMayChangeAfterTheCall) {
  constexpr std::size_t count = 2 * chunk + 100;
  std::vector<std::vector<std::uint8_t>> expected;
  std::vector<std::unique_ptr<GuardedArray<std::uint8_t>>> devices;
  std::vector<std::uint8_t> host(count);
  for (std::uint64_t turn = 0; turn < 12; ++turn) {
    devices.push_back(std::make_unique<GuardedArray<std::uint8_t>>(count));
  }
  for (std::uint64_t turn = 0; turn < devices.size(); ++turn) {
    // Large and small in turns, so that jobs of all threads and of the caller alone alternate.
    const std::size_t bytes = turn % 3 == 0 ? 1000 : count;
    expected.push_back(numbered<std::uint8_t>(bytes, turn));
    std::copy(expected.back().begin(), expected.back().end(), host.begin());
    upload_->upload(devices[turn]->data(), host.data(), bytes);
    expected.back().resize(count, 0xff);
  }
  std::fill(host.begin(), host.end(), 0);
  for (std::size_t turn = 0; turn < devices.size(); ++turn) {
    EXPECT_TRUE(devices[turn]->download() == expected[turn]) << turn;
  }
}

TEST_F(Upload, EveryHalf) {
  std::vector<std::uint16_t> half(1 << 16);
  std::iota(half.begin(), half.end(), std::uint16_t{0});
  const Unaligned host(half);
  for (const std::size_t misaligned_by : {0, 1}) {
    GuardedArray<std::uint16_t> device(half.size(), misaligned_by);
    upload_->upload_bf16(device.data(), host.data(), DType::f16,
                         static_cast<std::int64_t>(half.size()));
    const auto got = device.download();
    for (std::size_t i = 0; i < half.size(); ++i) {
      const bool special = (half[i] & 0x7c00) == 0x7c00;
      const float value = !special                ? half_value(half[i])
                          : (half[i] & 1023) != 0 ? NAN
                          : half[i] < 0x8000      ? INFINITY
                                                  : -INFINITY;
      ASSERT_TRUE(is_converted(got[i], value)) << std::hex << half[i] << " became " << got[i];
    }
    EXPECT_TRUE(device.guards_intact());
  }
}

TEST_F(Upload, EveryBf16) {
  std::vector<std::uint16_t> bf16(1 << 16);
  std::iota(bf16.begin(), bf16.end(), std::uint16_t{0});
  const Unaligned host(bf16);
  GuardedArray<std::uint16_t> device(bf16.size(), 1);
  upload_->upload_bf16(device.data(), host.data(), DType::bf16,
                       static_cast<std::int64_t>(bf16.size()));
  EXPECT_TRUE(device.download() == bf16);
  EXPECT_TRUE(device.guards_intact());
}

TEST_F(Upload, F32OfEveryKind) {
  // Random bits (all exponents), and every bf16 with the rest below, at and above a tie.
  std::vector<float> values;
  for (const std::uint32_t bits : numbered<std::uint32_t>(9 * (chunk / 4) + 3)) {
    values.push_back(std::bit_cast<float>(bits));
  }
  for (std::uint32_t upper = 0; upper < 1u << 16; ++upper) {
    for (const std::uint32_t rest : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | rest));
    }
  }
  const Unaligned host(values);
  for (const std::size_t misaligned_by : {0, 1}) {
    GuardedArray<std::uint16_t> device(values.size(), misaligned_by);
    upload_->upload_bf16(device.data(), host.data(), DType::f32,
                         static_cast<std::int64_t>(values.size()));
    const auto got = device.download();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      wrong += is_converted(got[i], values[i]) ? 0 : 1;
    EXPECT_EQ(wrong, 0u);
    EXPECT_TRUE(device.guards_intact());
  }
}

TEST_F(Upload, OddCountsOfEveryType) {
  for (const std::int64_t count : {1, 2, 3, 5, 6, 7, 1023, 1026}) {
    const auto values = testing::random_floats(count, *std::make_unique<std::mt19937>(3));
    std::vector<std::uint16_t> expected(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] = nearest_bf16(values[i]);
    for (const std::size_t misaligned_by : {0, 1}) {
      GuardedArray<std::uint16_t> device(values.size(), misaligned_by);
      upload_->upload_bf16(device.data(), values.data(), DType::f32, count);
      EXPECT_EQ(device.download(), expected);
      EXPECT_TRUE(device.guards_intact());
    }
  }
}

TEST_F(Upload, FindsNanAndInfinityAnywhere) {
  for (const std::int64_t count : {1, 3, 4, 7, 1024, 2'000'003}) {
    for (const std::size_t misaligned_by : {0, 1}) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(count), 0x7f7f);  // the largest
      GuardedArray<std::uint16_t> device(values, misaligned_by);
      EXPECT_FALSE(upload_->has_non_finite(device.data(), count)) << count;
      for (const std::uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f81}) {
        for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, count / 2,
                                      count - 3, count - 2, count - 1}) {
          if (at < 0 || at >= count) continue;
          cuda::check(cudaMemcpy(device.data() + at, &bad, sizeof(bad), cudaMemcpyHostToDevice),
                      "planting of a value");
          cuda::check(cudaDeviceSynchronize(), "planting of a value");
          EXPECT_TRUE(upload_->has_non_finite(device.data(), count)) << at << " of " << count;
          cuda::check(
              cudaMemcpy(device.data() + at, values.data(), sizeof(bad), cudaMemcpyHostToDevice),
              "planting of a value");
          cuda::check(cudaDeviceSynchronize(), "planting of a value");
        }
      }
      EXPECT_FALSE(upload_->has_non_finite(device.data(), count)) << count;
    }
  }
}

TEST_F(Upload, ConvertsEveryType) {
  const std::vector<float> f32 = {1.0f, 1.00390625f, -2.5f, 1e30f, 0.0f, -0.0f};
  const std::vector<std::uint16_t> f16 = {0x3c00, 0x0001, 0x7bff, 0xbc00, 0x0000, 0x8000};
  const auto pack = [&](const void* host, DType dtype) {
    const GuardedArray<std::uint16_t> values(6);
    upload_->upload_bf16(values.data(), host, dtype, 6);
    EXPECT_FALSE(upload_->has_non_finite(values.data(), 6));
    return values.download();
  };
  std::vector<std::uint16_t> expected;
  for (const float v : f32) expected.push_back(nearest_bf16(v));
  EXPECT_EQ(pack(f32.data(), DType::f32), expected);
  EXPECT_EQ(pack(expected.data(), DType::bf16), expected);
  expected.clear();
  for (const std::uint16_t v : f16) expected.push_back(nearest_bf16(half_value(v)));
  EXPECT_EQ(pack(f16.data(), DType::f16), expected);

  const std::array<float, 2> bad = {1.0f, NAN};
  const GuardedArray<std::uint16_t> values(2);
  upload_->upload_bf16(values.data(), bad.data(), DType::f32, 2);
  EXPECT_TRUE(upload_->has_non_finite(values.data(), 2));
}

TEST_F(Upload, LargeTensorsArriveWhole) {
  const auto values = numbered<std::uint64_t>((std::size_t{300} << 20) / 8 + 1);
  const std::size_t bytes = values.size() * sizeof(values[0]);
  GuardedArray<std::uint64_t> device(values.size());
  upload_->upload_bf16(device.data(), values.data(), DType::bf16,
                       static_cast<std::int64_t>(bytes / 2));
  EXPECT_TRUE(device.download() == values);
  EXPECT_TRUE(device.guards_intact());

  GuardedArray<std::uint16_t> converted(bytes / 4);
  upload_->upload_bf16(converted.data(), values.data(), DType::f32,
                       static_cast<std::int64_t>(bytes / 4));
  const auto got = converted.download();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto bits = static_cast<std::uint32_t>(values[i / 2] >> (i % 2 * 32));
    wrong += is_converted(got[i], std::bit_cast<float>(bits)) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(converted.guards_intact());
}

TEST_F(Upload, LivesOnAfterFailedAllocation) {
  bool refuse = true;
  cuda::WeightUpload upload(
      [&](std::size_t bytes, const char* purpose) {
        if (refuse) throw std::runtime_error("no memory");
        return testing::allocate_for_test(bytes, purpose);
      },
      stream_);
  const std::vector<float> values = {1.0f, 2.0f, 3.0f};
  GuardedArray<std::uint16_t> device(3);
  EXPECT_THROW(upload.upload_bf16(device.data(), values.data(), DType::f32, 3), std::runtime_error);
  refuse = false;
  upload.upload_bf16(device.data(), values.data(), DType::f32, 3);
  EXPECT_EQ(device.download(), (std::vector<std::uint16_t>{0x3f80, 0x4000, 0x4040}));
}

}  // namespace
}  // namespace coppice

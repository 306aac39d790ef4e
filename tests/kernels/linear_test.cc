#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/workers.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

using testing::nearest_bf16;
using testing::random_floats;
using testing::widened;

class Linear : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (GetParam() == DType::bf16 && !cpu::has_native_bf16()) {
      GTEST_SKIP() << "this processor does not multiply bf16";
    }
  }

  struct Layer {
    std::int64_t in, out;
    std::vector<float> weights;  ///< values as the product uses them
    std::vector<float> bias;
    std::unique_ptr<LinearWeights> packed;
  };

  Layer make(std::int64_t out, std::int64_t in, bool bias, std::int32_t max_rows = 512) {
    // Two parts of different types, if there is enough to part.
    return make(out, in, bias, {DType::bf16, DType::f32}, max_rows);
  }

  /// Equal parts of these types.
  Layer make(std::int64_t out, std::int64_t in, bool bias, const std::vector<DType>& types,
             std::int32_t max_rows = 512) {
    Layer layer{in, out, random_floats(out * in, random_), {}, nullptr};
    if (bias) layer.bias = random_floats(out, random_);
    std::vector<std::vector<std::uint16_t>> narrow;
    std::vector<LinearPart> parts;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const auto part = static_cast<std::int64_t>(i), count = std::ssize(types);
      const cpu::Share share = cpu::share_of(out, part, count);
      if (share.begin == share.end) continue;
      float* values = layer.weights.data() + share.begin * in;
      const auto n = static_cast<std::size_t>((share.end - share.begin) * in);
      const void* data = values;
      if (types[i] != DType::f32) {
        std::vector<std::uint16_t>& bits = narrow.emplace_back(n);
        for (std::size_t j = 0; j < n; ++j) {
          const bool half = types[i] == DType::f16;
          bits[j] = half ? testing::nearest_f16(values[j]) : nearest_bf16(values[j]);
          values[j] = half ? testing::widened_f16(bits[j]) : widened(bits[j]);
        }
        data = bits.data();
      }
      parts.push_back({data, types[i], share.end - share.begin});
    }
    layer.packed = engine_.pack(parts, in, layer.bias, max_rows);
    EXPECT_EQ(layer.packed->in_features(), in);
    EXPECT_EQ(layer.packed->out_features(), out);
    if (GetParam() == DType::bf16) {
      for (float& w : layer.weights) w = widened(nearest_bf16(w));
    }
    return layer;
  }

  /// Against sums in double. Products of bf16 are exact in f32, so with either type only sums
  /// round: in + 2 additions in any order, each by at most u = 2^-24 of the absolute sum (twice
  /// that in bf16, whose instruction rounds both of a pair of products).
  void check(const Layer& layer, std::int32_t rows, bool accumulate) {
    SCOPED_TRACE(::testing::Message() << layer.out << " x " << layer.in << " at " << rows
                                      << (accumulate ? " added" : ""));
    auto x = random_floats(rows * layer.in, random_);
    std::vector<std::uint16_t> narrow(x.size());
    if (GetParam() == DType::bf16) {
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = widened(narrow[i] = nearest_bf16(x[i]));
    }
    const auto padded =
        static_cast<std::size_t>(GetParam() == DType::bf16 ? cpu::padded_row_count(rows) : rows);
    x.resize(padded * static_cast<std::size_t>(layer.in), NAN);
    narrow.resize(x.size(), 0x7fc0);
    auto y = random_floats(static_cast<std::int64_t>(padded) * layer.out, random_);
    const auto before = y;
    const void* operand = GetParam() == DType::bf16 ? static_cast<const void*>(narrow.data())
                                                    : static_cast<const void*>(x.data());
    engine_.run(*layer.packed, operand, rows, y.data(), accumulate);
    const double u = std::ldexp(GetParam() == DType::bf16 ? 2.0 : 1.0, -24);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < layer.out; ++j) {
        const std::size_t at = static_cast<std::size_t>(r * layer.out + j);
        double sum = accumulate ? static_cast<double>(before[at]) : 0.0;
        if (!layer.bias.empty())
          sum += static_cast<double>(layer.bias[static_cast<std::size_t>(j)]);
        double absolute = std::abs(sum);
        const float* w = layer.weights.data() + j * layer.in;
        const float* v = x.data() + r * layer.in;
        for (std::int64_t i = 0; i < layer.in; ++i) {
          const double product = static_cast<double>(w[i]) * v[i];
          sum += product;
          absolute += std::abs(product);
        }
        const double bound = static_cast<double>(layer.in + 2) * u * (absolute + 1.0);
        ASSERT_NEAR(y[at], sum, bound) << "row " << r << ", output " << j;
      }
    }
  }

  std::mt19937 random_{3};
  cpu::Workers workers_{2};
  cpu::LinearEngine engine_{GetParam(), false, workers_};
};

TEST_P(Linear, EveryRowCount) {
  const Layer layer = make(128, 96, false);
  for (std::int32_t rows = 1; rows <= 70; ++rows) check(layer, rows, rows % 2 == 0);
  for (const std::int32_t rows : {96, 100, 128, 129, 161, 256, 300}) check(layer, rows, false);
}

TEST_P(Linear, OddShapes) {
  for (const auto& [out, in] : std::vector<std::pair<std::int64_t, std::int64_t>>{{33, 17},
                                                                                  {1, 1},
                                                                                  {1, 64},
                                                                                  {64, 1},
                                                                                  {65, 130},
                                                                                  {100, 3},
                                                                                  {63, 31},
                                                                                  {200, 515},
                                                                                  {130, 9000}}) {
    const Layer plain = make(out, in, false), biased = make(out, in, true);
    for (const std::int32_t rows : {1, 2, 3, 5, 8, 13, 16, 17, 40}) {
      check(plain, rows, false);
      check(plain, rows, true);
      check(biased, rows, false);
      check(biased, rows, true);
    }
  }
}

TEST_P(Linear, ShapesOfAModel) {
  for (const auto& [out, in] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {2752, 512}, {512, 1376}, {1024, 512}, {256, 688}}) {
    const Layer layer = make(out, in, false);
    for (const std::int32_t rows : {1, 6, 16, 33}) check(layer, rows, rows == 6);
  }
}

TEST_P(Linear, EveryStoredType) {
  for (const auto& types : std::vector<std::vector<DType>>{{DType::bf16},
                                                           {DType::f16},
                                                           {DType::f32},
                                                           {DType::f16, DType::bf16},
                                                           {DType::bf16, DType::f16, DType::f32}}) {
    // Over several blocks, chunks of inputs and groups of rows; odd ends of all of them.
    for (const auto& [out, in] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {130, 1}, {70, 2}, {97, 515}, {192, 1024}, {65, 2051}}) {
      SCOPED_TRACE(::testing::Message() << types.size() << " types, " << name_of(types.front()));
      const Layer layer = make(out, in, in % 2 == 1, types);
      for (const std::int32_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 33, 97, 200}) {
        if (rows > 33 && in > 600) continue;
        check(layer, rows, rows % 2 == 0);
      }
    }
  }
}

TEST_P(Linear, WeightsAreKeptAsTheyAreStored) {
  const std::int64_t out = 128, in = 64, values = out * in;
  const auto bytes = [&](const std::vector<DType>& types) {
    return static_cast<std::int64_t>(make(out, in, false, types).packed->bytes());
  };
  const bool narrow = GetParam() == DType::bf16;
  EXPECT_EQ(bytes({DType::bf16}), 2 * values);
  EXPECT_EQ(bytes({DType::f16}), (narrow || cpu::has_native_f16() ? 2 : 4) * values);
  EXPECT_EQ(bytes({DType::f32}), (narrow ? 2 : 4) * values);
  EXPECT_EQ(bytes({DType::f16, DType::bf16}), (narrow ? 2 : 4) * values);
}

// Plain decoding and a tree then see the same sums. (oneDNN's order of bf16 sums is its own.)
TEST_P(Linear, InF32ARowDependsNeitherOnOthersNorOnThreads) {
  if (GetParam() == DType::bf16) GTEST_SKIP() << "said of f32";
  cpu::Workers more(3);
  cpu::LinearEngine other(GetParam(), false, more);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const std::int64_t out = 200, in = 1031;
    auto stored = random_floats(out * in, random_);
    std::vector<std::uint16_t> narrow(stored.size());
    for (std::size_t i = 0; i < narrow.size(); ++i) narrow[i] = nearest_bf16(stored[i]) & 0xbfff;
    const void* data = type == DType::f32 ? static_cast<const void*>(stored.data()) : narrow.data();
    const LinearPart part{data, type, out};
    const auto bias = random_floats(out, random_);
    const auto packed = engine_.pack({&part, 1}, in, bias, 256);
    const auto same = other.pack({&part, 1}, in, bias, 256);
    constexpr std::int32_t most = 101;
    const auto x = random_floats(most * in, random_), before = random_floats(most * out, random_);
    auto alone = before;
    for (std::int32_t row = 0; row < most; ++row) {
      engine_.run(*packed, x.data() + row * in, 1, alone.data() + row * out, true);
    }
    for (const std::int32_t rows : {2, 3, 4, 5, 6, 7, 11, 17, 64, 97, most}) {
      for (int threads : {2, 3}) {
        auto together = before;
        if (threads == 2) engine_.run(*packed, x.data(), rows, together.data(), true);
        if (threads == 3) other.run(*same, x.data(), rows, together.data(), true);
        const auto values = static_cast<std::size_t>(rows * out);
        ASSERT_EQ(std::memcmp(together.data(), alone.data(), values * sizeof(float)), 0)
            << name_of(type) << ", " << rows << " rows, " << threads << " threads";
      }
    }
  }
}

TEST_P(Linear, FindsWhatIsNotFinite) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<float> wide(70 * 33, 0.5f);
    std::vector<std::uint16_t> narrow(wide.size(), 0x3800);
    const void* data = type == DType::f32 ? static_cast<const void*>(wide.data()) : narrow.data();
    const LinearPart part{data, type, 70};
    EXPECT_FALSE(engine_.pack({&part, 1}, 33, {}, 4)->has_non_finite());
    wide[69 * 33 + 32] = NAN;
    narrow[69 * 33 + 32] = type == DType::f16 ? 0x7c00 : 0x7f80;
    EXPECT_TRUE(engine_.pack({&part, 1}, 33, {}, 4)->has_non_finite()) << name_of(type);
  }
}

TEST_P(Linear, AFailureOfReadingIsPassedOn) {
  const LinearPart part{HostBytes::Read([](std::size_t offset, std::span<std::byte> to) {
                          if (offset > 0) throw Error(ErrorKind::failure, "the disk is gone");
                          std::fill(to.begin(), to.end(), std::byte{0});
                        }),
                        DType::bf16, 640};
  EXPECT_THROW(engine_.pack({&part, 1}, 64, {}, 4), Error);
}

TEST_P(Linear, RunsOnPreparedCode) {
  const Layer layer = make(512, 512, false);
  for (const std::int32_t rows : {1, 16, 32, 64, 256}) {
    const std::string name = engine_.implementation(*layer.packed, rows);
    EXPECT_EQ(name.find("ref"), std::string::npos) << rows << " rows run as " << name;
  }
}

TEST_P(Linear, RefusesBrokenCalls) {
  const Layer layer = make(8, 8, false, 4);
  std::vector<float> memory(256);
  EXPECT_THROW(engine_.run(*layer.packed, memory.data(), 5, memory.data(), false), Error);
  EXPECT_THROW(engine_.run(*layer.packed, memory.data(), 0, memory.data(), false), Error);
  cpu::LinearEngine other(GetParam(), false, workers_);
  EXPECT_THROW(other.run(*layer.packed, memory.data(), 1, memory.data(), false), Error);
  const std::vector<float> short_bias(7);
  const LinearPart part{memory.data(), DType::f32, 8};
  EXPECT_THROW(engine_.pack({&part, 1}, 8, short_bias, 4), Error);
  EXPECT_THROW(engine_.pack({}, 8, {}, 4), Error);
}

// Wherever its memory ends, in oneDNN too: an error, and the engine goes on.
TEST_P(Linear, ShortOfMemoryIsAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own address space is larger than any limit";
#endif
  constexpr rlim_t step = 96 << 10;
  int refused = 0, done = 0;
  for (rlim_t more = 0; more < 32 * step || done == 0;
       more += more < 160 * step ? step : 8 * step) {
    ASSERT_LT(more, rlim_t{1} << 30);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // What other tests freed would be used again.
      mallopt(M_MMAP_THRESHOLD, 64 << 10);
      malloc_trim(0);
      rlim_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      rlimit limit{};
      getrlimit(RLIMIT_AS, &limit);
      const rlimit before = limit;
      limit.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
      setrlimit(RLIMIT_AS, &limit);
      bool failed = false;
      try {
        cpu::Workers workers(1);
        cpu::LinearEngine engine(GetParam(), false, workers);
        const auto use = [&] {
          const std::vector<float> values(1024 * 2048, 0.5f);
          const LinearPart part{values.data(), DType::f32, 2048};
          const auto packed = engine.pack({&part, 1}, 1024, {}, 256);
          const std::vector<float> x(256 * 1024, 1.0f);
          std::vector<float> y(256 * 2048);
          engine.run(*packed, x.data(), 256, y.data(), false);
        };
        try {
          use();
        } catch (const std::exception&) {
          failed = true;
          setrlimit(RLIMIT_AS, &before);
          use();
        }
      } catch (const std::exception&) {
        _exit(1);  // short of memory before there was an engine
      }
      _exit(failed ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << more << " bytes more: signal " << WTERMSIG(status);
    ++(WEXITSTATUS(status) == 0 ? done : refused);
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, Linear, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(LinearFaults, ADroppedProductIsSeen) {
  // The bound of `check` for 512 inputs is 514 * 2^-23 * about 130: 0.008. One product left out
  // is a few tenths: the check would see it in almost every output.
  std::mt19937 random(4);
  const auto a = random_floats(512, random), b = random_floats(512, random);
  double absolute = 0;
  int hidden = 0;
  for (std::size_t i = 0; i < 512; ++i) absolute += std::abs(static_cast<double>(a[i]) * b[i]);
  for (std::size_t i = 0; i < 512; ++i) {
    hidden += std::abs(static_cast<double>(a[i]) * b[i]) < 514 * std::ldexp(2.0, -24) * absolute;
  }
  EXPECT_LT(hidden, 52);
}

TEST(PaddedRowCount, IsTheNextBucket) {
  std::int32_t before = 0;
  for (std::int32_t rows = 1; rows <= 1000; ++rows) {
    const std::int32_t padded = cpu::padded_row_count(rows);
    EXPECT_GE(padded, rows);
    EXPECT_GE(padded, before);
    EXPECT_EQ(cpu::padded_row_count(padded), padded);
    before = padded;
  }
  EXPECT_EQ(cpu::padded_row_count(8), 8);
  EXPECT_EQ(cpu::padded_row_count(9), 10);
  EXPECT_EQ(cpu::padded_row_count(128), 128);
  EXPECT_EQ(cpu::padded_row_count(129), 160);
}

}  // namespace
}  // namespace coppice

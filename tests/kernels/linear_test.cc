#include "kernels/linear.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
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
    Layer layer{in, out, random_floats(out * in, random_), {}, nullptr};
    if (bias) layer.bias = random_floats(out, random_);
    // Two parts of different types, if there is enough to part.
    const std::int64_t first = out / 2;
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(first * in));
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      narrow[i] = nearest_bf16(layer.weights[i]);
      layer.weights[i] = widened(narrow[i]);
    }
    std::vector<LinearPart> parts;
    if (first > 0) parts.push_back({narrow.data(), DType::bf16, first});
    parts.push_back({layer.weights.data() + first * in, DType::f32, out - first});
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
    const std::size_t padded = static_cast<std::size_t>(cpu::padded_row_count(rows));
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
  cpu::LinearEngine engine_{GetParam(), workers_};
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
  cpu::LinearEngine other(GetParam(), workers_);
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
        cpu::LinearEngine engine(GetParam(), workers);
        const auto use = [&] {
          const std::vector<float> values(64 * 192, 0.5f);
          const LinearPart part{values.data(), DType::f32, 192};
          const auto packed = engine.pack({&part, 1}, 64, {}, 256);
          const std::vector<float> x(256 * 64, 1.0f);
          std::vector<float> y(256 * 192);
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

#include "kernels/cuda/linear/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "cuda/late_writer.h"
#include "cuda/linear_rig.h"
#include "cuda/rounding.h"
#include "kernels/cuda/linear/code_loader.h"
#include "kernels/cuda/linear/plain_linear.h"
#include "kernels/cuda/linear/product_proposals.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

using testing::GuardedArray;
using testing::half_value;
using testing::nearest_bf16;
using testing::widened;

template <typename T>
std::size_t index_of(T value) {
  return static_cast<std::size_t>(value);
}

/// A layer's weights as the product uses them. x, weights, bias and former values are either
/// random, or small integers whose sums are exact in f32 in any order, so that a result must be
/// exact too: it then shows every wrong, missing or doubled term.
struct Layer {
  std::int64_t in, out;
  bool integers;
  std::vector<std::uint16_t> weights;  ///< [out, in] bf16
  std::vector<float> bias;             ///< [out] or empty
};

/// Values that bf16 holds.
std::vector<float> operands(std::int64_t n, bool integers, std::mt19937& random) {
  std::vector<float> values(index_of(n));
  for (float& v : values) {
    // Without std's distributions: hundreds of millions of values are drawn.
    const auto bits = static_cast<std::int32_t>(random() >> 8);
    v = integers ? static_cast<float>(bits % 7 - 3)
                 : widened(nearest_bf16(static_cast<float>(bits) * 0x1p-23f - 1.0f));
  }
  return values;
}

std::vector<std::uint16_t> as_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits(values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = nearest_bf16(values[i]);
  return bits;
}

Layer make_layer(std::int64_t out, std::int64_t in, bool bias, bool integers,
                 std::mt19937& random) {
  Layer layer{in, out, integers, as_bf16(operands(out * in, integers, random)), {}};
  if (bias) layer.bias = operands(out, integers, random);
  return layer;
}

/// Results that are not x W^T + bias + former; of large products, 5000 of them are computed, first
/// and last row and output among them, and the others have to be finite at least. `former` is
/// empty where nothing is added to.
///
/// Tolerance: products of bf16 are exact in f32. A tensor core aligns a group of at least 8
/// products and the running sum to the largest of them and may cut bits off: each of the in + in
/// / 8 terms loses at most 2^-23 of the sum of absolute values; so does, generously, each
/// addition of bias, former value and partial sums (fewer than 64 of them).
std::size_t mismatches(const Layer& layer, const std::vector<float>& x, std::int32_t rows,
                       const std::vector<float>& former, const std::vector<float>& got,
                       std::mt19937& random) {
  const std::int64_t results = rows * layer.out;
  const bool all = results * layer.in < 20'000'000;
  const std::int64_t looks = all ? results : 5000;
  auto wrong = static_cast<std::size_t>(
      std::count_if(got.begin(), got.begin() + results, [](float v) { return !std::isfinite(v); }));
  for (std::int64_t look = 0; look < looks; ++look) {
    std::int64_t at = look;
    if (!all) {
      at = std::uniform_int_distribution<std::int64_t>(0, results - 1)(random);
      if (look < 100) at = at % layer.out;
      if (look >= 100 && look < 200) at = results - 1 - at % layer.out;
      if (look >= 200 && look < 300) at = at / layer.out * layer.out + layer.out - 1;
      if (look >= 300 && look < 400) at = at / layer.out * layer.out;
    }
    const std::int64_t r = at / layer.out, j = at % layer.out;
    double sum = former.empty() ? 0.0 : static_cast<double>(former[index_of(at)]);
    double absolute = std::abs(sum);
    if (!layer.bias.empty()) {
      sum += static_cast<double>(layer.bias[index_of(j)]);
      absolute += std::abs(static_cast<double>(layer.bias[index_of(j)]));
    }
    const std::uint16_t* w = layer.weights.data() + j * layer.in;
    const float* v = x.data() + r * layer.in;
    for (std::int64_t i = 0; i < layer.in; ++i) {
      const double product = static_cast<double>(widened(w[i])) * static_cast<double>(v[i]);
      sum += product;
      absolute += std::abs(product);
    }
    const double terms = 1.125 * static_cast<double>(layer.in) + 66;
    const double bound = layer.integers ? 0.0 : terms * 0x1p-23 * absolute;
    if (!(std::abs(got[index_of(at)] - sum) <= bound)) ++wrong;
  }
  return wrong;
}

class CudaLinear : public testing::LinearRig {
 protected:
  std::unique_ptr<LinearWeights> pack(const Layer& layer, std::int32_t max_rows = 512) {
    const LinearPart part{layer.weights.data(), DType::bf16, layer.out};
    return engine_->pack({&part, 1}, layer.in, layer.bias, max_rows);
  }

  /// One product: x has NaN in its padded rows, out is poisoned or holds former values.
  void check(const Layer& layer, const LinearWeights& packed, std::int32_t rows, bool accumulate) {
    SCOPED_TRACE(::testing::Message()
                 << layer.out << " x " << layer.in << " at " << rows << (accumulate ? " added" : "")
                 << (layer.bias.empty() ? "" : " with bias") << (layer.integers ? " exact" : "")
                 << ": " << engine_->implementation(packed, rows, accumulate));
    const std::int64_t padded = cuda::padded_row_count(rows);
    const std::vector<float> x = operands(rows * layer.in, layer.integers, random_);
    std::vector<std::uint16_t> bits = as_bf16(x);
    bits.resize(index_of(padded * layer.in), 0xffff);
    const GuardedArray<std::uint16_t> device_x(bits);
    GuardedArray<float> out(index_of(padded * layer.out));
    std::vector<float> former;
    if (accumulate) {
      former = operands(padded * layer.out, layer.integers, random_);
      out.upload(former);
    }
    engine_->run(packed, device_x.data(), rows, out.data(), accumulate, stream_);
    EXPECT_EQ(mismatches(layer, x, rows, former, out.download(), random_), 0u);
    EXPECT_TRUE(out.guards_intact());
  }

  std::vector<float> product(cuda::LinearEngine& engine, const LinearWeights& packed,
                             const GuardedArray<std::uint16_t>& x, std::int32_t rows) {
    GuardedArray<float> out(
        index_of(std::int64_t{cuda::padded_row_count(rows)} * packed.out_features()));
    engine.run(packed, x.data(), rows, out.data(), false, stream_);
    auto got = out.download();
    got.resize(index_of(rows * packed.out_features()));
    return got;
  }

  std::mt19937 random_{5};
};

TEST(CudaPaddedRows, IsALadder) {
  for (const std::int32_t rung :
       {1,   2,   4,   8,   16,  32,  48,  64,  72,  80,  96,  112, 128, 144,  160,  176,
        192, 216, 256, 264, 280, 304, 320, 352, 384, 448, 512, 640, 768, 1280, 1536, 1792}) {
    EXPECT_EQ(cuda::padded_row_count(rung), rung);
  }
  std::int32_t before = 0;
  for (std::int32_t rows = 1; rows < 5000; ++rows) {
    const std::int32_t padded = cuda::padded_row_count(rows);
    EXPECT_GE(padded, rows);
    EXPECT_GE(padded, before);
    EXPECT_EQ(cuda::padded_row_count(padded), padded);
    before = padded;
  }
  EXPECT_EQ(cuda::padded_row_count(3), 4);
  EXPECT_EQ(cuda::padded_row_count(17), 32);
  EXPECT_EQ(cuda::padded_row_count(33), 48);
  EXPECT_EQ(cuda::padded_row_count(65), 72);
  EXPECT_EQ(cuda::padded_row_count(129), 144);
  EXPECT_EQ(cuda::padded_row_count(257), 264);
  EXPECT_EQ(cuda::padded_row_count(265), 280);
  EXPECT_EQ(cuda::padded_row_count(193), 216);
  EXPECT_EQ(cuda::padded_row_count(385), 448);
  EXPECT_EQ(cuda::padded_row_count(513), 640);
  EXPECT_EQ(cuda::padded_row_count(1281), 1536);
}

/// The oracle has to notice faults of the size of one term.
TEST(CudaLinearOracle, NoticesPlantedFaults) {
  std::mt19937 random(7);
  constexpr std::int32_t rows = 5;
  for (const bool integers : {false, true}) {
    const Layer layer = make_layer(33, 70, true, integers, random);
    const auto x = operands(rows * layer.in, integers, random);
    const auto former = operands(rows * layer.out, integers, random);
    // Terms [0, last) of every sum, with or without bias and former value, rows shifted.
    const auto computed = [&](std::int64_t last, bool bias, bool add, std::int32_t shift) {
      std::vector<float> got;
      for (std::int32_t r = 0; r < rows; ++r) {
        for (std::int64_t j = 0; j < layer.out; ++j) {
          float sum = add ? former[index_of(r * layer.out + j)] : 0.0f;
          if (bias) sum += layer.bias[index_of(j)];
          for (std::int64_t i = 0; i < last; ++i) {
            sum += widened(layer.weights[index_of(j * layer.in + i)]) *
                   x[index_of((r + shift) % rows * layer.in + i)];
          }
          got.push_back(sum);
        }
      }
      return got;
    };
    const auto wrong = [&](const std::vector<float>& got) {
      return mismatches(layer, x, rows, former, got, random);
    };
    EXPECT_EQ(wrong(computed(70, true, true, 0)), 0u);
    EXPECT_GT(wrong(computed(69, true, true, 0)), 0u);
    EXPECT_GT(wrong(computed(70, false, true, 0)), 0u);
    EXPECT_GT(wrong(computed(70, true, false, 0)), 0u);
    EXPECT_GT(wrong(computed(70, true, true, 1)), 0u);
    EXPECT_GT(wrong(std::vector<float>(index_of(rows * layer.out), NAN)), 0u);
  }
}

TEST_F(CudaLinear, EveryRowCount) {
  for (const bool integers : {false, true}) {
    const Layer layer = make_layer(128, 96, false, integers, random_);
    const auto packed = pack(layer);
    for (std::int32_t rows = 1; rows <= 300; rows += rows < 70 ? 1 : 23) {
      check(layer, *packed, rows, rows % 2 == 0);
    }
  }
}

TEST_F(CudaLinear, EveryShape) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [out, in] :
       std::vector<Shape>{{1, 1},   {1, 64},   {64, 1},    {2, 2},    {3, 8},      {33, 17},
                          {24, 24}, {40, 24},  {24, 40},   {72, 24},  {65, 40},    {63, 31},
                          {100, 3}, {20, 36},  {1000, 50}, {64, 8},   {96, 12},    {7, 256},
                          {96, 88}, {65, 130}, {200, 515}, {130, 44}, {515, 1030}, {130, 9000}}) {
    for (const bool integers : {false, true}) {
      const Layer plain = make_layer(out, in, false, integers, random_);
      const Layer biased = make_layer(out, in, true, integers, random_);
      const auto packed = pack(plain), packed_biased = pack(biased);
      for (const std::int32_t rows : {1, 2, 3, 5, 8, 13, 17, 40, 130, 300}) {
        if (rows * out * in > 50'000'000) continue;
        for (const bool accumulate : {false, true}) {
          check(plain, *packed, rows, accumulate);
          check(biased, *packed_biased, rows, accumulate);
        }
      }
    }
  }
}

TEST_F(CudaLinear, ShapesOfLargeModelsRunInTheLibrary) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [out, in] :
       std::vector<Shape>{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {2048, 2048}}) {
    for (const bool bias : {false, true}) {
      const Layer layer = make_layer(out, in, bias, true, random_);
      const auto packed = pack(layer);
      for (const std::int32_t rows : {1, 7, 64, 300}) {
        for (const bool accumulate : {false, true}) {
          check(layer, *packed, rows, accumulate);
          const std::string code = engine_->implementation(*packed, rows, accumulate);
          EXPECT_NE(code, "plain");
          EXPECT_EQ(code.find("bias added after"), std::string::npos) << code;
        }
      }
    }
  }
}

/// Shapes that are streamed: tiles that blocks share unevenly, inputs that fill no whole stage, one
/// tile for several warps, several rounds, inputs that two blocks share.
TEST_F(CudaLinear, StreamedShapes) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [out, in] : std::vector<Shape>{{16, 64},
                                                  {17, 128},
                                                  {50, 192},
                                                  {2117, 320},
                                                  {4096, 1024},
                                                  {7000, 448},
                                                  {40, 2048},
                                                  {1541, 2112},
                                                  {8449, 2048},
                                                  {22656, 512},
                                                  {34000, 256},
                                                  {70001, 128}}) {
    for (const bool integers : {false, true}) {
      const Layer layer = make_layer(out, in, out % 2 == 1, integers, random_);
      const auto packed = pack(layer);
      for (const std::int32_t rows :
           {1, 2, 3, 8, 9, 16, 17, 32, 33, 48, 50, 64, 65, 72, 80, 95, 97}) {
        EXPECT_EQ(engine_->implementation(*packed, rows, false) == "streamed",
                  rows <= cuda::most_streamed_rows && cuda::prepare_streamed_linear() > 0);
        check(layer, *packed, rows, rows % 2 == 0);
      }
    }
  }
}

TEST_F(CudaLinear, StreamedRowsDoNotDependOnOthers) {
  if (cuda::prepare_streamed_linear() == 0) GTEST_SKIP() << "no kernel that streams";
  for (const auto& [out, in] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {48, 640}, {2117, 640}, {22656, 640}, {2048, 4096}}) {
    const Layer layer = make_layer(out, in, true, false, random_);
    const auto packed = pack(layer);
    const GuardedArray<std::uint16_t> x(as_bf16(operands(16 * layer.in, false, random_)));
    const std::vector<float> all = product(*engine_, *packed, x, 16);
    for (const std::int32_t rows : {1, 2, 4, 8}) {
      const std::vector<float> some = product(*engine_, *packed, x, rows);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << out << " x " << rows;
    }
  }
}

// Weights are asked for early; x and the sums that are added to are not.
TEST_F(CudaLinear, WaitsForWhatIsWrittenLate) {
  if (cuda::prepare_streamed_linear() == 0) GTEST_SKIP() << "no kernel that streams";
  const testing::TestStream other;
  using Case = std::tuple<std::int64_t, std::int64_t, std::int32_t>;
  for (const auto& [out, in, rows] : std::vector<Case>{
           {48, 1024, 4}, {4096, 1024, 4}, {22656, 1024, 4}, {4096, 2048, 48}, {22656, 1024, 64}}) {
    const Layer layer = make_layer(out, in, false, false, random_);
    const auto packed = pack(layer);
    const std::vector<float> x = operands(rows * layer.in, false, random_);
    const std::vector<float> former = operands(rows * layer.out, false, random_);
    const GuardedArray<std::uint16_t> true_x(as_bf16(x));
    const GuardedArray<float> true_former(former);
    // What does not wait, as nothing does for another stream, is noticed.
    for (const bool waits : {true, false}) {
      const GuardedArray<std::uint16_t> late_x(true_x.size());
      const GuardedArray<float> result(true_former.size());
      testing::write_late({true_x.data(), late_x.data(), late_x.size() * 2},
                          {true_former.data(), result.data(), result.size() * 4},
                          {true_x.data(), late_x.data(), 0}, 300.0, waits ? stream_ : other.get());
      engine_->run(*packed, late_x.data(), rows, result.data(), true, stream_);
      const std::size_t wrong = mismatches(layer, x, rows, former, result.download(), random_);
      EXPECT_EQ(wrong == 0, waits) << out;
    }
  }
}

TEST_F(CudaLinear, Vocabularies) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [out, in] : std::vector<Shape>{{32003, 288}, {128256, 512}, {262144, 640}}) {
    for (const bool integers : {false, true}) {
      const Layer layer = make_layer(out, in, false, integers, random_);
      const auto packed = pack(layer);
      for (const std::int32_t rows : {1, 5, 33, 64}) check(layer, *packed, rows, false);
    }
  }
}

TEST_F(CudaLinear, StacksPartsOfEveryType) {
  constexpr std::int64_t in = 37;
  // f16 and f32 values that bf16 does not hold exactly; hosts' pointers off by one byte.
  const std::vector<float> wide = testing::random_floats(11 * in, random_);
  std::vector<std::uint16_t> half(6 * in), narrow(9 * in);
  for (std::uint16_t& bits : half) bits = static_cast<std::uint16_t>(random_() & 0xbbff);
  for (std::uint16_t& bits : narrow) bits = nearest_bf16(testing::random_floats(1, random_)[0]);
  std::vector<std::vector<char>> files;
  const auto part = [&](const void* data, std::size_t bytes, DType dtype, std::int64_t rows) {
    files.emplace_back(bytes + 1);
    std::memcpy(files.back().data() + 1, data, bytes);
    return LinearPart{files.back().data() + 1, dtype, rows};
  };
  files.reserve(3);
  const std::vector<LinearPart> parts = {part(narrow.data(), narrow.size() * 2, DType::bf16, 9),
                                         part(wide.data(), wide.size() * 4, DType::f32, 11),
                                         part(half.data(), half.size() * 2, DType::f16, 6)};
  const auto packed = engine_->pack(parts, in, {}, 8);
  EXPECT_EQ(packed->in_features(), in);
  EXPECT_EQ(packed->out_features(), 26);
  EXPECT_EQ(packed->bytes(), index_of(26 * in * 2));
  EXPECT_FALSE(packed->has_non_finite());
  const EmbeddingTable table = packed->table();
  EXPECT_EQ(table.format, WeightFormat::bf16);
  std::vector<std::uint16_t> got(26 * in);
  cuda::check(cudaMemcpy(got.data(), table.rows, got.size() * 2, cudaMemcpyDeviceToHost),
              "download");
  std::vector<std::uint16_t> expected = narrow;
  for (const float v : wide) expected.push_back(nearest_bf16(v));
  for (const std::uint16_t bits : half) expected.push_back(nearest_bf16(half_value(bits)));
  EXPECT_EQ(got, expected);
}

TEST_F(CudaLinear, FindsNonFiniteWeights) {
  for (const float bad : {NAN, INFINITY, -INFINITY, 3.4e38f}) {
    std::vector<float> weights(20 * 12, 0.5f);
    const LinearPart parts[] = {{weights.data(), DType::f32, 8},
                                {weights.data() + 8 * 12, DType::f32, 12}};
    EXPECT_FALSE(engine_->pack(parts, 12, {}, 4)->has_non_finite());
    for (const std::size_t at : {0, 95, 96, 239}) {
      weights[at] = bad;
      EXPECT_TRUE(engine_->pack(parts, 12, {}, 4)->has_non_finite()) << bad << " at " << at;
      weights[at] = 0.5f;
    }
  }
}

TEST_F(CudaLinear, RefusesWhatItWasNotPackedFor) {
  const Layer layer = make_layer(16, 16, false, true, random_);
  const auto packed = pack(layer, 20);
  const GuardedArray<std::uint16_t> x(32 * 16);
  GuardedArray<float> out(32 * 16);
  const auto run = [&](cuda::LinearEngine& engine, std::int32_t rows) {
    engine.run(*packed, x.data(), rows, out.data(), false, stream_);
  };
  EXPECT_NO_THROW(run(*engine_, 20));
  EXPECT_NO_THROW(run(*engine_, 32));  // what 20 rows are padded to
  EXPECT_THROW(run(*engine_, 33), Error);
  EXPECT_THROW(run(*engine_, 0), Error);
  cuda::LinearEngine other(*upload_, testing::allocate_for_test);
  EXPECT_THROW(run(other, 20), Error);
  const LinearPart part{layer.weights.data(), DType::bf16, 16};
  const std::vector<float> short_bias(15);
  EXPECT_THROW(engine_->pack({&part, 1}, 16, short_bias, 4), Error);
  EXPECT_THROW(engine_->pack({}, 16, {}, 4), Error);
  EXPECT_THROW(engine_->pack({&part, 1}, 0, {}, 4), Error);
}

TEST_F(CudaLinear, SameBitsInEveryRunAndForEqualPaddedRows) {
  for (const auto& [out, in] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {96, 9000}, {4096, 4096}, {33, 515}, {256, 14336}}) {
    const Layer layer = make_layer(out, in, true, false, random_);
    const auto packed = pack(layer);
    for (const std::int32_t rows : {1, 3, 16, 64, 128}) {
      SCOPED_TRACE(::testing::Message() << out << " x " << in << " at " << rows << ": "
                                        << engine_->implementation(*packed, rows, false));
      const GuardedArray<std::uint16_t> x(
          as_bf16(operands(cuda::padded_row_count(rows) * in, false, random_)));
      const auto first = product(*engine_, *packed, x, rows);
      for (int run = 0; run < 5; ++run) {
        EXPECT_TRUE(first == product(*engine_, *packed, x, rows)) << "run " << run;
      }
      // Fewer rows of the same padded count.
      for (const std::int32_t fewer : {rows - 1, rows - 7}) {
        if (fewer < 1 || cuda::padded_row_count(fewer) != cuda::padded_row_count(rows)) continue;
        const auto some = product(*engine_, *packed, x, fewer);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), first.begin())) << fewer << " rows";
      }
      cuda::LinearEngine fresh(*upload_, testing::allocate_for_test);
      const LinearPart part{layer.weights.data(), DType::bf16, out};
      const auto again = fresh.pack({&part, 1}, in, layer.bias, 512);
      EXPECT_TRUE(first == product(fresh, *again, x, rows)) << "another engine";
    }
  }
}

TEST(RowCounts, EachIsTheNextOnesSmaller) {
  for (std::int32_t rows = 1; rows < 3000; ++rows) {
    const std::int32_t smaller = cuda::smaller_row_count(rows);
    EXPECT_LT(smaller, rows);
    if (smaller == 0) continue;
    EXPECT_EQ(cuda::padded_row_count(smaller), smaller);
    EXPECT_EQ(cuda::padded_row_count(smaller + 1), cuda::padded_row_count(rows));
  }
}

// Products that are run while timing is put off have the bits that they have once it is allowed,
// and those that another thread asked for and loaded code for have them too.
TEST_F(CudaLinear, TimingLaterChangesNoBit) {
  constexpr std::int64_t in = 1024, out = 2048;
  const Layer layer = make_layer(out, in, false, true, random_);
  const LinearPart part{layer.weights.data(), DType::bf16, out};
  const ExpectedProduct expected[] = {{in, out, 320, true, false}, {in, out, 320, false, true}};
  cuda::ProductProposals proposals;
  cuda::CodeLoader loader(proposals);
  loader.load(expected, engine_->streams());
  loader.finish();
  EXPECT_TRUE(proposals.find({in, out, 320, false, true}));
  EXPECT_TRUE(proposals.find({in, out, 112, true, false}));
  EXPECT_FALSE(proposals.find({in, out, 320, false, false})) << "nobody expects it";
  cuda::ProductTiming timing{.allowed = false};
  cuda::LinearEngine later(*upload_, testing::allocate_for_test, true, &timing, &proposals);
  const auto packed = pack(layer, 320);
  const auto again = later.pack({&part, 1}, in, layer.bias, 320);
  std::int64_t put_off = 0;
  for (const std::int32_t rows : {100, 160, 320}) {
    const GuardedArray<std::uint16_t> x(
        as_bf16(operands(cuda::padded_row_count(rows) * in, false, random_)));
    const auto timed = product(*engine_, *packed, x, rows);
    timing.allowed = false;
    EXPECT_TRUE(timed == product(later, *again, x, rows)) << rows;
    EXPECT_TRUE(timed == product(later, *again, x, rows)) << rows;
    put_off += rows < 145 ? 0 : 2;  // fewer rows are never timed
    EXPECT_EQ(timing.put_off, put_off);
    timing.allowed = true;
    EXPECT_TRUE(timed == product(later, *again, x, rows)) << rows;
    timing.allowed = false;
    EXPECT_TRUE(timed == product(later, *again, x, rows)) << rows;
    EXPECT_EQ(timing.put_off, put_off) << "it is timed now";
  }
  cuda::check(cudaGetLastError(), "loading code");
}

TEST_F(CudaLinear, LayersOfEqualShapeKeepTheirBias) {
  const Layer one = make_layer(48, 32, true, true, random_);
  const Layer two = make_layer(48, 32, true, true, random_);
  const auto packed_one = pack(one), packed_two = pack(two);
  for (int turn = 0; turn < 3; ++turn) {
    check(one, *packed_one, 4, false);
    check(two, *packed_two, 4, false);
  }
}

TEST_F(CudaLinear, RunsInAGraph) {
  const Layer layer = make_layer(200, 104, true, true, random_);
  const auto packed = pack(layer);
  constexpr std::int32_t rows = 16;
  GuardedArray<std::uint16_t> x(index_of(rows * layer.in));
  GuardedArray<float> out(index_of(rows * layer.out));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t recorded = nullptr;
  // The library loads its kernels in the first run. The choice of code is then made while the
  // stream is captured, by an engine that has not met the shape: it must not touch the stream.
  product(*engine_, *packed, x, rows);
  cuda::LinearEngine fresh(*upload_, testing::allocate_for_test);
  const LinearPart part{layer.weights.data(), DType::bf16, layer.out};
  const auto again = fresh.pack({&part, 1}, layer.in, layer.bias, rows);
  cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
  fresh.run(*again, x.data(), rows, out.data(), false, stream_);
  cuda::check(cudaStreamEndCapture(stream_, &graph), "capture");
  cuda::check(cudaGraphInstantiate(&recorded, graph, 0), "instantiation of a graph");
  for (int replay = 0; replay < 3; ++replay) {
    const auto values = operands(rows * layer.in, true, random_);
    x.upload(as_bf16(values));
    out.poison();
    cuda::check(cudaGraphLaunch(recorded, stream_), "launch of a graph");
    EXPECT_EQ(mismatches(layer, values, rows, {}, out.download(), random_), 0u);
  }
  cuda::check(cudaGraphExecDestroy(recorded), "end of a graph");
  cuda::check(cudaGraphDestroy(graph), "end of a graph");
}

/// An engine that meets a shape while the stream is captured cannot time: it runs the reference,
/// whose bits the code that another engine found fastest has to have.
TEST_F(CudaLinear, TheFastestCodeGivesTheBitsOfTheReference) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [out, in] :
       std::vector<Shape>{{12288, 4096}, {4096, 4096}, {768, 3072}, {1000, 520}}) {
    const Layer layer = make_layer(out, in, false, false, random_);
    const auto packed = pack(layer);
    for (const std::int32_t rows : {48, 144, 257, 512}) {
      for (const bool accumulate : {false, true}) {
        const std::int64_t padded = cuda::padded_row_count(rows);
        const GuardedArray<std::uint16_t> x(as_bf16(operands(padded * in, false, random_)));
        const std::vector<float> former = operands(padded * out, false, random_);
        GuardedArray<float> result(former.size());
        const auto computed = [&](const auto& compute) {
          result.upload(former);
          compute();
          return result.download();
        };
        const auto run = [&](cuda::LinearEngine& engine, const LinearWeights& weights) {
          engine.run(weights, x.data(), rows, result.data(), accumulate, stream_);
        };
        const auto timed = computed([&] { run(*engine_, *packed); });
        SCOPED_TRACE(::testing::Message()
                     << out << " x " << in << " at " << rows << (accumulate ? " added: " : ": ")
                     << engine_->implementation(*packed, rows, accumulate));
        EXPECT_TRUE(computed([&] { run(*engine_, *packed); }) == timed);

        cuda::LinearEngine fresh(*upload_, testing::allocate_for_test);
        const LinearPart part{layer.weights.data(), DType::bf16, out};
        const auto again = fresh.pack({&part, 1}, in, {}, rows);
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t recorded = nullptr;
        cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
        run(fresh, *again);
        cuda::check(cudaStreamEndCapture(stream_, &graph), "capture");
        cuda::check(cudaGraphInstantiate(&recorded, graph, 0), "instantiation of a graph");
        const auto replay = [&] {
          cuda::check(cudaGraphLaunch(recorded, stream_), "launch of a graph");
        };
        EXPECT_TRUE(computed(replay) == timed);
        EXPECT_TRUE(computed([&] { run(fresh, *again); }) == timed);  // times
        EXPECT_TRUE(computed(replay) == timed);  // what was recorded stays as it was
        EXPECT_TRUE(result.guards_intact());
        cuda::check(cudaGraphExecDestroy(recorded), "end of a graph");
        cuda::check(cudaGraphDestroy(graph), "end of a graph");
      }
    }
  }
}

TEST_F(CudaLinear, PlainProductAndBias) {
  for (const auto& [out, in] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {3, 8}, {33, 17}, {24, 40}, {515, 130}, {300, 1000}}) {
    for (const bool integers : {false, true}) {
      const Layer layer = make_layer(out, in, true, integers, random_);
      const GuardedArray<std::uint16_t> weights(layer.weights);
      const GuardedArray<float> bias(layer.bias);
      for (const std::int32_t rows : {1, 2, 33}) {
        for (const bool accumulate : {false, true}) {
          SCOPED_TRACE(::testing::Message() << out << " x " << in << " at " << rows);
          const auto x = operands(rows * in, integers, random_);
          const GuardedArray<std::uint16_t> device_x(as_bf16(x));
          GuardedArray<float> y(index_of(rows * out));
          std::vector<float> former;
          if (accumulate) y.upload(former = operands(rows * out, integers, random_));
          cuda::plain_linear(device_x.data(), weights.data(), rows, in, out, y.data(), accumulate,
                             stream_);
          cuda::add_bias(bias.data(), rows, out, y.data(), stream_);
          EXPECT_EQ(mismatches(layer, x, rows, former, y.download(), random_), 0u);
          EXPECT_TRUE(y.guards_intact());
        }
      }
    }
  }
}

}  // namespace
}  // namespace coppice

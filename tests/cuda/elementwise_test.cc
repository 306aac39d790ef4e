#include "kernels/cuda/pass/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "cuda/guarded_array.h"
#include "cuda/rounding.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

using testing::GuardedArray;
using testing::half_value;
using testing::is_rounding_of;
using testing::nearest_bf16;
using testing::random_floats;
using testing::u;
using testing::widened;

class Elementwise : public testing::KernelTest {
 protected:
  std::vector<std::int32_t> random_indices(std::int32_t n, std::int32_t below) {
    std::uniform_int_distribution<std::int32_t> uniform(0, below - 1);
    std::vector<std::int32_t> out(static_cast<std::size_t>(n));
    for (std::int32_t& index : out) index = uniform(random_);
    return out;
  }

  std::mt19937 random_{11};
};

template <typename T>
std::size_t index_of(T value) {
  return static_cast<std::size_t>(value);
}

/// The checks below rest on it: it has to tell rounding from cutting off and from rounding up.
TEST(RoundingOracle, NoticesTruncation) {
  const auto of_bits = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_TRUE(is_rounding_of(0x3f81, of_bits(0x3f80c000u), 0));
  EXPECT_FALSE(is_rounding_of(0x3f80, of_bits(0x3f80c000u), 0));
  EXPECT_TRUE(is_rounding_of(0x3f80, of_bits(0x3f807f00u), 0));
  EXPECT_FALSE(is_rounding_of(0x3f81, of_bits(0x3f807f00u), 0));
  EXPECT_FALSE(is_rounding_of(0x7fc0, 1.0, 0));  // NaN
  EXPECT_FALSE(is_rounding_of(0x3f80, -1.0, 0));
}

// --- embed ------------------------------------------------------------------------------------

TEST_F(Elementwise, EmbedTakesRowsOfEveryType) {
  constexpr std::int32_t vocab = 37;
  for (const std::int64_t hidden : {1, 2, 24, 40, 63, 100, 512, 1028, 4096, 8192}) {
    for (const std::int32_t rows : {1, 2, 7, 33, 300}) {
      if (rows * hidden > 1'500'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << hidden);
      const auto tokens = random_indices(rows, vocab);
      const auto table = random_floats(vocab * hidden, random_);
      std::vector<std::uint16_t> bf16(table.size()), f16(table.size());
      for (std::size_t i = 0; i < table.size(); ++i) {
        bf16[i] = nearest_bf16(table[i]);
        f16[i] = static_cast<std::uint16_t>(random_() & 0xbbff);  // every finite kind below 2
      }
      const GuardedArray<std::int32_t> device_tokens(tokens);
      cuda::PassView pass{};
      pass.tokens = device_tokens.data();
      GuardedArray<float> out(index_of(rows * hidden));
      float scale = 1.0f;
      const auto check = [&](const void* values, DType dtype, const auto& value_of) {
        out.poison();
        cuda::embed(pass, values, dtype, hidden, scale, out.data(), rows, stream_);
        const auto got = out.download();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto width = index_of(hidden);
          const float value = value_of(index_of(tokens[i / width]) * width + i % width);
          if (got[i] != value * scale) ++wrong;
        }
        EXPECT_EQ(wrong, 0u) << name_of(dtype);
        EXPECT_TRUE(out.guards_intact()) << name_of(dtype);
      };
      // Misaligned tables: a column of a file may start anywhere.
      for (const std::size_t misaligned_by : {0, 1}) {
        const GuardedArray<float> t32(table, misaligned_by);
        const GuardedArray<std::uint16_t> tb16(bf16, misaligned_by), t16(f16, misaligned_by);
        check(t32.data(), DType::f32, [&](std::size_t i) { return table[i]; });
        check(tb16.data(), DType::bf16, [&](std::size_t i) { return widened(bf16[i]); });
        check(t16.data(), DType::f16, [&](std::size_t i) { return half_value(f16[i]); });
        scale = 33.941125f;
        check(tb16.data(), DType::bf16, [&](std::size_t i) { return widened(bf16[i]); });
        scale = 1.0f;
      }
    }
  }
}

// --- rms_norm ---------------------------------------------------------------------------------

TEST_F(Elementwise, RmsNormAgreesWithDouble) {
  for (const std::int64_t hidden : {1, 2, 3, 24, 40, 63, 130, 512, 1000, 4096, 5001, 8192}) {
    for (const std::int32_t rows : {1, 3, 64, 300}) {
      if (rows * hidden > 800'000) continue;
      for (const std::size_t misaligned_by : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << hidden << " + " << misaligned_by);
        const auto x = random_floats(rows * hidden, random_, 5.0f);
        const auto weight = random_floats(hidden, random_, 2.0f);
        const GuardedArray<float> device_x(x), device_weight(weight, misaligned_by);
        GuardedArray<std::uint16_t> out(x.size());
        cuda::rms_norm(device_x.data(), device_weight.data(), 1e-5f, rows, hidden, out.data(),
                       stream_);
        const auto got = out.download();
        // A thread adds at most hidden / 1024 + 4 squares, then come ten steps over lanes and
        // warps and one rounding of each square: all terms are positive, so the sum's relative
        // error is at most (hidden / 1024 + 15) u, of which the root takes half. Mean, epsilon,
        // root, reciprocal and two products add at most 6 u.
        const double relative = (static_cast<double>(hidden) / 2048 + 7.5 + 6) * u;
        std::size_t wrong = 0;
        for (std::int32_t r = 0; r < rows; ++r) {
          const float* row = x.data() + r * hidden;
          double sum = 0;
          for (std::int64_t i = 0; i < hidden; ++i) sum += static_cast<double>(row[i]) * row[i];
          const double root = std::sqrt(sum / static_cast<double>(hidden) + double{1e-5f});
          for (std::int64_t i = 0; i < hidden; ++i) {
            const double exact = row[i] / root * static_cast<double>(weight[index_of(i)]);
            if (!is_rounding_of(got[index_of(r * hidden + i)], exact, relative * std::abs(exact))) {
              ++wrong;
            }
          }
        }
        EXPECT_EQ(wrong, 0u);
        EXPECT_TRUE(out.guards_intact());
      }
    }
  }
}

TEST_F(Elementwise, RmsNormOfZerosIsZero) {
  const GuardedArray<float> x(std::vector<float>(2 * 48, 0.0f)), weight(std::vector<float>(48, 1));
  GuardedArray<std::uint16_t> out(2 * 48);
  cuda::rms_norm(x.data(), weight.data(), 1e-6f, 2, 48, out.data(), stream_);
  EXPECT_EQ(out.download(), std::vector<std::uint16_t>(2 * 48, 0));
}

TEST_F(Elementwise, RmsNormDoesNotDependOnOtherRowsOrRuns) {
  constexpr std::int64_t hidden = 2052;
  const auto x = random_floats(300 * hidden, random_, 3.0f);
  const GuardedArray<float> device_x(x), weight(random_floats(hidden, random_));
  GuardedArray<std::uint16_t> all(x.size()), again(x.size()), one(index_of(hidden));
  cuda::rms_norm(device_x.data(), weight.data(), 1e-5f, 300, hidden, all.data(), stream_);
  cuda::rms_norm(device_x.data(), weight.data(), 1e-5f, 300, hidden, again.data(), stream_);
  const auto got = all.download();
  EXPECT_EQ(got, again.download());
  for (const std::int64_t row : {0, 17, 299}) {
    cuda::rms_norm(device_x.data() + row * hidden, weight.data(), 1e-5f, 1, hidden, one.data(),
                   stream_);
    EXPECT_EQ(one.download(), std::vector<std::uint16_t>(got.begin() + row * hidden,
                                                         got.begin() + (row + 1) * hidden));
  }
}

// --- add_rms_norm -----------------------------------------------------------------------------

TEST_F(Elementwise, AddRmsNormAddsTheNorm) {
  for (const std::int64_t hidden : {1, 3, 63, 512, 1152, 3840, 5001, 8192}) {
    for (const std::int32_t rows : {1, 3, 64, 300}) {
      if (rows * hidden > 800'000) continue;
      for (const std::size_t misaligned_by : {0, 1}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << hidden << " + " << misaligned_by);
        const auto x = random_floats(rows * hidden, random_, 5.0f);
        const auto weight = random_floats(hidden, random_, 2.0f);
        const auto before = random_floats(rows * hidden, random_, 3.0f);
        const GuardedArray<float> device_x(x), device_weight(weight, misaligned_by);
        GuardedArray<float> into(before);
        cuda::add_rms_norm(device_x.data(), device_weight.data(), 1e-5f, rows, hidden, into.data(),
                           stream_);
        const auto got = into.download();
        // As of rms_norm; the sum rounds once.
        const double relative = (static_cast<double>(hidden) / 2048 + 7.5 + 6) * u;
        std::size_t wrong = 0, of_norm_alone = 0, of_other_weight = 0;
        for (std::int32_t r = 0; r < rows; ++r) {
          const float* row = x.data() + r * hidden;
          double sum = 0;
          for (std::int64_t i = 0; i < hidden; ++i) sum += static_cast<double>(row[i]) * row[i];
          const double root = std::sqrt(sum / static_cast<double>(hidden) + double{1e-5f});
          for (std::int64_t i = 0; i < hidden; ++i) {
            const std::size_t at = index_of(r * hidden + i);
            const auto far = [&](double added, double scale) {
              const double norm = row[i] / root * scale;
              return !(std::abs(got[at] - (added + norm)) <=
                       relative * std::abs(norm) + u * std::abs(added + norm));
            };
            if (far(before[at], weight[index_of(i)])) ++wrong;
            if (far(0.0, weight[index_of(i)])) ++of_norm_alone;
            if (far(before[at], weight[index_of((i + 1) % hidden)])) ++of_other_weight;
          }
        }
        EXPECT_EQ(wrong, 0u);
        EXPECT_GT(of_norm_alone, 0u);
        EXPECT_TRUE(of_other_weight > 0 || hidden == 1);
        EXPECT_TRUE(into.guards_intact());
      }
    }
  }
}

TEST_F(Elementwise, AddRmsNormThenNormIsTheTwo) {
  for (const std::int64_t hidden : {4, 63, 64, 1152, 3840, 4096, 5000, 8192, 8196}) {
    for (const std::int32_t rows : {1, 3, 64, 300}) {
      if (rows * hidden > 800'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << hidden);
      const auto before = random_floats(rows * hidden, random_, 3.0f);
      const GuardedArray<float> x(random_floats(rows * hidden, random_, 5.0f));
      const GuardedArray<float> weight(random_floats(hidden, random_, 2.0f));
      const GuardedArray<float> next(random_floats(hidden, random_, 2.0f));
      GuardedArray<float> into(before), fused_into(before);
      GuardedArray<std::uint16_t> out(before.size()), fused_out(before.size());
      cuda::add_rms_norm(x.data(), weight.data(), 1e-5f, rows, hidden, into.data(), stream_);
      cuda::rms_norm(into.data(), next.data(), 1e-5f, rows, hidden, out.data(), stream_);
      cuda::add_rms_norm_then_norm(x.data(), weight.data(), next.data(), 1e-5f, rows, hidden,
                                   fused_into.data(), fused_out.data(), stream_);
      EXPECT_EQ(fused_into.download(), into.download());
      EXPECT_EQ(fused_out.download(), out.download());
      EXPECT_NE(fused_into.download(), before);
      EXPECT_TRUE(fused_into.guards_intact() && fused_out.guards_intact());
    }
  }
}

// --- glu --------------------------------------------------------------------------------------

/// The logistic function's argument: activations are x times it.
double logistic_argument(Activation activation, double x) {
  if (activation == Activation::silu) return x;
  return std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

TEST_F(Elementwise, GluAgreesWithDouble) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    const bool is_silu = activation == Activation::silu;
    std::size_t like_the_other = 0, small = 0;
    for (const std::int64_t n : {1, 2, 15, 24, 64, 688, 1376, 14336}) {
      for (const std::int32_t rows : {1, 2, 9, 300}) {
        if (rows * n > 500'000) continue;
        SCOPED_TRACE(::testing::Message() << rows << " x " << n);
        const auto gate_up = random_floats(rows * 2 * n, random_, is_silu ? 30.0f : 6.0f);
        const GuardedArray<float> from(gate_up);
        GuardedArray<std::uint16_t> out(index_of(rows * n));
        cuda::glu(activation, from.data(), rows, n, out.data(), stream_);
        const auto got = out.download();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto width = index_of(n);
          const double gate = gate_up[i / width * 2 * width + i % width];
          const double up = gate_up[i / width * 2 * width + width + i % width];
          // expf is within 2 units in the last place (4 u); sum, quotient and product round once.
          // An error of gelu's t, five roundings, is one of exp(-t) relative to it.
          const double t = logistic_argument(activation, gate);
          const double bound = (7 + (is_silu ? 0 : 5) * std::abs(t)) * u;
          const double exact = gate / (1 + std::exp(-t)) * up;
          if (!is_rounding_of(got[i], exact, bound * std::abs(exact))) ++wrong;
          if (std::abs(gate) > 2) continue;
          const double other_t =
              logistic_argument(is_silu ? Activation::gelu_tanh : Activation::silu, gate);
          const double other = gate / (1 + std::exp(-other_t)) * up;
          like_the_other += is_rounding_of(got[i], other, bound * std::abs(other));
          ++small;
        }
        EXPECT_EQ(wrong, 0u);
        EXPECT_TRUE(out.guards_intact());
      }
    }
    EXPECT_LT(like_the_other, small / 10);
  }
}

TEST_F(Elementwise, GluIsFiniteForLargeGates) {
  const std::vector<float> gate_up = {1e4f, -1e4f, 0.0f, -1e30f, 2.0f, 2.0f, 2.0f, 2.0f};
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    for (const std::size_t misaligned_by : {0, 1}) {
      const GuardedArray<float> from(gate_up, misaligned_by);
      GuardedArray<std::uint16_t> out(4);
      cuda::glu(activation, from.data(), 1, 4, out.data(), stream_);
      const auto got = out.download();
      EXPECT_EQ(widened(got[0]), widened(nearest_bf16(2e4f)));
      for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(std::abs(widened(got[i])), 0.0f);
    }
  }
}

// --- soft_cap ---------------------------------------------------------------------------------

TEST_F(Elementwise, SoftCapAgreesWithDouble) {
  for (const float cap : {1.0f, 30.0f}) {
    for (const std::int64_t width : {1, 15, 64, 1000, 262144}) {
      for (const std::int32_t rows : {1, 3}) {
        for (const std::size_t misaligned_by : {0, 1}) {
          SCOPED_TRACE(::testing::Message() << rows << " x " << width << " + " << misaligned_by);
          auto before = random_floats(rows * width, random_, 3 * cap);
          if (width > 2) {
            before[0] = INFINITY;
            before[1] = -INFINITY;
          }
          GuardedArray<float> logits(before, misaligned_by);
          cuda::soft_cap(logits.data(), rows, width, cap, stream_);
          const auto got = logits.download();
          std::size_t wrong = 0, uncapped = 0;
          for (std::size_t i = 0; i < got.size(); ++i) {
            const double exact = cap * std::tanh(double{before[i]} / cap);
            // tanhf is within 2 units in the last place (4 u), its argument and the product round.
            const double bound = 7 * u * std::abs(exact);
            if (!(std::abs(got[i] - exact) <= bound)) ++wrong;
            if (std::abs(got[i] - before[i]) <= bound) ++uncapped;
          }
          EXPECT_EQ(wrong, 0u);
          EXPECT_LE(uncapped, got.size() / 10);
          EXPECT_TRUE(logits.guards_intact());
        }
      }
    }
  }
}

// --- gather_logit_rows ------------------------------------------------------------------------

TEST_F(Elementwise, GatherMovesBits) {
  for (const std::int64_t width : {1, 3, 4, 20, 33, 128, 1000, 4096}) {
    for (const std::int32_t rows : {1, 2, 5, 64, 300}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << width);
      constexpr std::int32_t source_rows = 41;
      // Any bits, those of NaN among them: elements may be pairs of bf16.
      std::vector<std::uint32_t> x(index_of(source_rows * width));
      for (std::uint32_t& bits : x) bits = static_cast<std::uint32_t>(random_());
      auto indices = random_indices(rows, source_rows);
      if (rows > 2) indices.back() = indices[1] = 0;  // padding looks like this
      const GuardedArray<std::uint32_t> from(x);
      const GuardedArray<std::int32_t> device_indices(indices);
      GuardedArray<std::uint32_t> out(index_of(rows * width));
      cuda::PassView pass{};
      pass.logit_rows = device_indices.data();
      cuda::gather_logit_rows(pass, reinterpret_cast<const float*>(from.data()), width,
                              reinterpret_cast<float*>(out.data()), rows, stream_);
      const auto got = out.download();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto columns = index_of(width);
        if (got[i] != x[index_of(indices[i / columns]) * columns + i % columns]) ++wrong;
      }
      EXPECT_EQ(wrong, 0u);
      EXPECT_TRUE(out.guards_intact());
    }
  }
}

TEST_F(Elementwise, NoRowsIsNoLaunch) {
  const cuda::PassView pass{};
  cuda::embed(pass, nullptr, DType::bf16, 64, 1.0f, nullptr, 0, stream_);
  cuda::rms_norm(nullptr, nullptr, 1e-5f, 0, 64, nullptr, stream_);
  cuda::add_rms_norm(nullptr, nullptr, 1e-5f, 0, 64, nullptr, stream_);
  cuda::add_rms_norm_then_norm(nullptr, nullptr, nullptr, 1e-5f, 0, 64, nullptr, nullptr, stream_);
  cuda::glu(Activation::silu, nullptr, 0, 64, nullptr, stream_);
  cuda::soft_cap(nullptr, 0, 64, 30.0f, stream_);
  cuda::gather_logit_rows(pass, nullptr, 64, nullptr, 0, stream_);
  const RopeTable rope;
  cuda::rope_write_kv(pass, nullptr, {2, &rope, KvLayout{1, 1, 64, 16, 1}, nullptr, nullptr, 0, {}},
                      0, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

}  // namespace
}  // namespace coppice

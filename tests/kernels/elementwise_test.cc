#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "kernels/cpu/embedding.h"
#include "kernels/cpu/gather.h"
#include "kernels/cpu/glu.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/soft_cap.h"
#include "kernels/cpu/workers.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

using testing::nearest_bf16;
using testing::random_floats;
using testing::widened;

constexpr double u = 0x1p-24;

cpu::Workers& two() {
  static cpu::Workers workers(2);
  return workers;
}

TEST(Embedding, TakesRowsOfEveryType) {
  std::mt19937 random(1);
  for (const std::int64_t hidden : {1, 5, 64, 100, 512}) {
    const std::vector<TokenId> tokens = {3, 0, 9, 3};
    const auto table = random_floats(10 * hidden, random);
    std::vector<std::uint16_t> bf16(table.size()), f16(table.size());
    for (std::size_t i = 0; i < table.size(); ++i) {
      bf16[i] = nearest_bf16(table[i]);
      f16[i] = static_cast<std::uint16_t>(random() & 0xbbff);  // every finite kind below 2
    }
    std::vector<float> out(tokens.size() * static_cast<std::size_t>(hidden));
    const auto expect = [&](const auto& value_of) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto width = static_cast<std::size_t>(hidden);
        const auto token = static_cast<std::size_t>(tokens[i / width]);
        EXPECT_EQ(out[i], value_of(token * width + i % width)) << i;
      }
    };
    cpu::embed(table.data(), WeightFormat::f32, hidden, tokens, 1.0f, out.data(), two());
    expect([&](std::size_t i) { return table[i]; });
    cpu::embed(bf16.data(), WeightFormat::bf16, hidden, tokens, 1.0f, out.data(), two());
    expect([&](std::size_t i) { return widened(bf16[i]); });
    cpu::embed(f16.data(), WeightFormat::f16, hidden, tokens, 1.0f, out.data(), two());
    expect([&](std::size_t i) { return testing::widened_f16(f16[i]); });
    constexpr float scale = 33.941125f;
    cpu::embed(table.data(), WeightFormat::f32, hidden, tokens, scale, out.data(), two());
    expect([&](std::size_t i) { return table[i] * scale; });
    cpu::embed(bf16.data(), WeightFormat::bf16, hidden, tokens, scale, out.data(), two());
    expect([&](std::size_t i) { return widened(bf16[i]) * scale; });
  }
}

TEST(GatherRows, RepeatsAndReorders) {
  std::mt19937 random(2);
  const auto x = random_floats(7 * 33, random);
  const std::vector<std::int32_t> rows = {6, 0, 6, 2};
  std::vector<float> out(rows.size() * 33);
  cpu::gather_rows(x.data(), 33, rows, out.data(), two());
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], x[static_cast<std::size_t>(rows[i / 33]) * 33 + i % 33]);
  }
}

TEST(RmsNorm, AgreesWithDouble) {
  std::mt19937 random(3);
  for (const std::int64_t hidden : {1, 17, 64, 512, 1000}) {
    for (const std::int32_t rows : {1, 3, 65}) {
      const auto x = random_floats(rows * hidden, random, 5.0f);
      const auto weight = random_floats(hidden, random);
      std::vector<float> out(x.size());
      std::vector<std::uint16_t> rounded(x.size());
      cpu::rms_norm(x.data(), weight.data(), 1e-5f, rows, hidden, DType::f32, out.data(), two());
      cpu::rms_norm(x.data(), weight.data(), 1e-5f, rows, hidden, DType::bf16, rounded.data(),
                    two());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto width = static_cast<std::size_t>(hidden);
        const float* row = x.data() + i / width * width;
        double sum = 0;
        for (std::size_t j = 0; j < width; ++j) sum += static_cast<double>(row[j]) * row[j];
        const double exact = x[i] / std::sqrt(sum / static_cast<double>(hidden) + 1e-5f) *
                             static_cast<double>(weight[i % width]);
        // The square root halves the sum's relative error of hidden u; six more roundings.
        EXPECT_NEAR(out[i], exact, (static_cast<double>(hidden) / 2 + 6) * u * std::abs(exact));
        EXPECT_EQ(rounded[i], nearest_bf16(out[i]));
      }
    }
  }
}

TEST(RmsNorm, IsAddedToWhatIsThere) {
  std::mt19937 random(13);
  for (const std::int64_t hidden : {1, 17, 64, 1000}) {
    for (const std::int32_t rows : {1, 3, 65}) {
      const auto x = random_floats(rows * hidden, random, 5.0f);
      const auto weight = random_floats(hidden, random);
      const auto before = random_floats(rows * hidden, random, 3.0f);
      std::vector<float> normed(x.size()), into = before;
      cpu::rms_norm(x.data(), weight.data(), 1e-5f, rows, hidden, DType::f32, normed.data(), two());
      cpu::add_rms_norm(x.data(), weight.data(), 1e-5f, rows, hidden, into.data(), two());
      for (std::size_t i = 0; i < x.size(); ++i) {
        // The last product may be fused with the sum, or rounded like `normed`.
        const double sum = double{before[i]} + normed[i];
        EXPECT_NEAR(into[i], sum, 1.01 * u * (std::abs(normed[i]) + std::abs(sum))) << i;
      }
    }
  }
}

double logistic(double t) { return 1.0 / (1.0 + std::exp(-t)); }
double silu(double x) { return x * logistic(x); }
double gelu_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
/// The logistic function's argument.
double logistic_argument(Activation activation, double x) {
  if (activation == Activation::silu) return x;
  return std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

TEST(Glu, AgreesWithDouble) {
  std::mt19937 random(4);
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    std::size_t like_the_other = 0, like_erf = 0, small = 0;
    for (const std::int64_t n : {1, 15, 64, 688, 1376}) {
      for (const std::int32_t rows : {1, 2, 9}) {
        const bool is_silu = activation == Activation::silu;
        const auto gate_up = random_floats(rows * 2 * n, random, is_silu ? 30.0f : 6.0f);
        std::vector<float> out(static_cast<std::size_t>(rows * n));
        std::vector<std::uint16_t> rounded(out.size());
        cpu::glu(activation, gate_up.data(), rows, n, DType::f32, out.data(), two());
        cpu::glu(activation, gate_up.data(), rows, n, DType::bf16, rounded.data(), two());
        for (std::size_t i = 0; i < out.size(); ++i) {
          const auto width = static_cast<std::size_t>(n);
          const double gate = gate_up[i / width * 2 * width + i % width];
          const double up = gate_up[i / width * 2 * width + width + i % width];
          const double exact = (is_silu ? silu(gate) : gelu_tanh(gate)) * up;
          // The exponential's argument |t| log2(e) carries two roundings, t of gelu three more.
          const double t = std::abs(logistic_argument(activation, gate));
          const double bound = (8 + (is_silu ? 2 : 5) * t) * u;
          EXPECT_NEAR(out[i], exact, bound * std::abs(exact) + 1e-37);
          EXPECT_EQ(rounded[i], nearest_bf16(out[i]));
          if (std::abs(gate) > 3) continue;
          const double other = (is_silu ? gelu_tanh(gate) : silu(gate)) * up;
          like_the_other += std::abs(out[i] - other) <= bound * std::abs(other) + 1e-37;
          const double by_erf = gate / 2 * std::erfc(-gate * std::numbers::sqrt2 / 2) * up;
          like_erf += std::abs(out[i] - by_erf) <= bound * std::abs(by_erf) + 1e-37;
          ++small;
        }
      }
    }
    // The bound tells the activations apart, also the tanh form of GELU from that by erf.
    EXPECT_LT(like_the_other, small / 10);
    EXPECT_LT(like_erf, small / 10);
  }
}

TEST(Glu, IsFiniteForLargeGates) {
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    const std::vector<float> gates = {1e4f, -1e4f, 0.0f, 1e30f, -1e30f};
    for (const std::int64_t n : {5, 40}) {  // one by one, and in vectors
      std::vector<float> gate_up(static_cast<std::size_t>(2 * n), 2.0f);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) gate_up[i] = gates[i % 5];
      std::vector<float> out(static_cast<std::size_t>(n));
      cpu::glu(activation, gate_up.data(), 1, n, DType::f32, out.data(), two());
      for (std::size_t i = 0; i < out.size(); ++i) {
        EXPECT_EQ(out[i], std::max(2 * gates[i % 5], 0.0f)) << i;
      }
    }
  }
}

TEST(SoftCap, AgreesWithDouble) {
  std::mt19937 random(14);
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    std::size_t uncapped = 0, all = 0;
    for (const std::int64_t width : {1, 15, 64, 1000, 40000}) {
      for (const std::int32_t rows : {1, 3}) {
        const auto before = random_floats(rows * width, random, 3 * cap);
        auto logits = before;
        cpu::soft_cap(logits.data(), rows, width, cap, two());
        for (std::size_t i = 0; i < logits.size(); ++i) {
          const double exact = cap * std::tanh(double{before[i]} / cap);
          // With e = exp(-2 |x| / cap) at most 1: its argument, at most 6, carries three roundings,
          // itself 4 u; 1 - e, 1 + e, their quotient and two products round once.
          const double bound = (3 * 6 + 4 + 5) * u * cap;
          EXPECT_NEAR(logits[i], exact, bound);
          EXPECT_LE(std::abs(logits[i]), cap);
          uncapped += std::abs(before[i] - exact) <= bound;
          ++all;
        }
      }
    }
    EXPECT_LT(uncapped, all / 10);
  }
}

TEST(SoftCap, HoldsAtTheEnds) {
  for (const std::size_t width : {std::size_t{5}, std::size_t{40}}) {  // one by one, and in vectors
    const std::vector<float> ends = {0.0f, -0.0f, INFINITY, -INFINITY, NAN};
    std::vector<float> logits(width);
    for (std::size_t i = 0; i < width; ++i) logits[i] = ends[i % 5];
    cpu::soft_cap(logits.data(), 1, static_cast<std::int64_t>(width), 30.0f, two());
    for (std::size_t i = 0; i < width; i += 5) {
      EXPECT_EQ(logits[i], 0.0f);
      EXPECT_EQ(logits[i + 1], 0.0f);
      EXPECT_EQ(logits[i + 2], 30.0f);
      EXPECT_EQ(logits[i + 3], -30.0f);
      EXPECT_TRUE(std::isnan(logits[i + 4]));
    }
  }
}

TEST(Bf16, RoundsTiesToEvenAndKeepsInfinityAndNan) {
  // Through the only door: rms_norm of rows of one element with weight x gives x.
  for (const std::int64_t width : {1, 32}) {
    const auto rounded = [&](float value) {
      const std::vector<float> ones(static_cast<std::size_t>(width), 1.0f);
      const std::vector<float> weight(static_cast<std::size_t>(width), value);
      std::vector<std::uint16_t> out(static_cast<std::size_t>(width));
      cpu::rms_norm(ones.data(), weight.data(), 0.0f, 1, width, DType::bf16, out.data(), two());
      return out.front();
    };
    EXPECT_EQ(rounded(std::bit_cast<float>(0x3f808000u)), 0x3f80);
    EXPECT_EQ(rounded(std::bit_cast<float>(0x3f818000u)), 0x3f82);
    EXPECT_EQ(rounded(std::bit_cast<float>(0x3f808001u)), 0x3f81);
    EXPECT_EQ(rounded(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
    EXPECT_EQ(rounded(-INFINITY), 0xff80);
    EXPECT_TRUE(std::isnan(widened(rounded(std::bit_cast<float>(0x7f800001u)))));
  }
}

}  // namespace
}  // namespace coppice

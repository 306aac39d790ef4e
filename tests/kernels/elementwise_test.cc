#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cpu/embedding.h"
#include "kernels/cpu/gather.h"
#include "kernels/cpu/rms_norm.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/swiglu.h"
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
    cpu::embed(table.data(), DType::f32, hidden, tokens, out.data(), two());
    expect([&](std::size_t i) { return table[i]; });
    cpu::embed(bf16.data(), DType::bf16, hidden, tokens, out.data(), two());
    expect([&](std::size_t i) { return widened(bf16[i]); });
    cpu::embed(f16.data(), DType::f16, hidden, tokens, out.data(), two());
    expect([&](std::size_t i) { return testing::widened_f16(f16[i]); });
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

TEST(Swiglu, AgreesWithDouble) {
  std::mt19937 random(4);
  for (const std::int64_t n : {1, 15, 64, 688, 1376}) {
    for (const std::int32_t rows : {1, 2, 9}) {
      const auto gate_up = random_floats(rows * 2 * n, random, 30.0f);
      std::vector<float> out(static_cast<std::size_t>(rows * n));
      std::vector<std::uint16_t> rounded(out.size());
      cpu::swiglu(gate_up.data(), rows, n, DType::f32, out.data(), two());
      cpu::swiglu(gate_up.data(), rows, n, DType::bf16, rounded.data(), two());
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto width = static_cast<std::size_t>(n);
        const double gate = gate_up[i / width * 2 * width + i % width];
        const double up = gate_up[i / width * 2 * width + width + i % width];
        const double exact = gate / (1 + std::exp(-gate)) * up;
        // The exponential's argument |gate| log2(e) carries two roundings.
        EXPECT_NEAR(out[i], exact, (8 + 2 * std::abs(gate)) * u * std::abs(exact) + 1e-37);
        EXPECT_EQ(rounded[i], nearest_bf16(out[i]));
      }
    }
  }
}

TEST(Swiglu, IsFiniteForLargeGates) {
  const std::vector<float> gate_up = {1e4f, -1e4f, 0.0f, 2.0f, 2.0f, 2.0f};
  std::vector<float> out(3);
  cpu::swiglu(gate_up.data(), 1, 3, DType::f32, out.data(), two());
  EXPECT_EQ(out, (std::vector<float>{2e4f, 0.0f, 0.0f}));
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

TEST(Rope, RotatesAndWritesThePool) {
  std::mt19937 random(5);
  for (const std::int32_t head_dim : {16, 64, 80, 128}) {
    const std::int32_t heads = 4, rows = 5;
    const KvLayout layout{3, 2, head_dim, 4, 6};
    const std::int32_t half = head_dim / 2, layer = 2;
    const std::int64_t stride = (heads + 2 * layout.kv_heads) * head_dim;
    const std::vector<std::int32_t> positions = {7, 8, 8, 0, 30};
    const std::vector<KvSlot> slots = {23, 0, 5, 6, 14};
    auto cosine = random_floats(31 * half, random), sine = random_floats(31 * half, random);
    RopeTable rope;
    const auto borrow = [](std::vector<float>& v) {
      return DeviceBuffer(
          v.data(), v.size() * sizeof(float), [](void*, void*) {}, nullptr);
    };
    rope.cosine = borrow(cosine);
    rope.sine = borrow(sine);
    rope.positions = 31;
    rope.half_dim = half;
    auto qkv = random_floats(rows * stride, random);
    const auto before = qkv;
    const auto pool =
        static_cast<std::size_t>(layout.layers * layout.slots() * layout.kv_heads * head_dim);
    std::vector<float> keys(pool, -9.0f), values(pool, -9.0f);
    cpu::rope_write_kv(qkv.data(), heads, rope, positions, slots, layout, DType::f32, keys.data(),
                       values.data(), layer, two());
    std::size_t written = 0;
    for (std::int32_t r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      const auto rotated = [&](std::int32_t head, std::int32_t i) {
        const float* x = before.data() + r * stride + head * head_dim;
        const std::int32_t j = i % half;
        const double c = cosine[static_cast<std::size_t>(positions[row] * half + j)];
        const double s = sine[static_cast<std::size_t>(positions[row] * half + j)];
        return i < half ? x[j] * c - x[j + half] * s : x[j + half] * c + x[j] * s;
      };
      for (std::int32_t h = 0; h < heads + 2 * layout.kv_heads; ++h) {
        for (std::int32_t i = 0; i < head_dim; ++i) {
          const auto at = static_cast<std::size_t>(r * stride + h * head_dim + i);
          // Two products and a sum of values below 1.
          if (h < heads) {
            EXPECT_NEAR(qkv[at], rotated(h, i), 4 * u);
            continue;
          }
          EXPECT_EQ(qkv[at], before[at]);
          const std::int32_t kv_head = (h - heads) % layout.kv_heads;
          const std::int32_t page = layer * layout.pages + slots[row] / layout.page_size;
          const auto to =
              static_cast<std::size_t>(((page * layout.kv_heads + kv_head) * layout.page_size +
                                        slots[row] % layout.page_size) *
                                           head_dim +
                                       i);
          if (h < heads + layout.kv_heads) {
            EXPECT_NEAR(keys[to], rotated(h, i), 4 * u);
          } else {
            EXPECT_EQ(values[to], before[at]);
          }
          ++written;
        }
      }
    }
    const auto touched = [](const std::vector<float>& v) {
      return static_cast<std::size_t>(
          std::count_if(v.begin(), v.end(), [](float x) { return x != -9.0f; }));
    };
    EXPECT_EQ(touched(keys) + touched(values), written);
  }
}

// Values pass as they are but for rounding, and so do keys at angle 0.
TEST(Rope, RoundsWhatItWritesTo16Bits) {
  std::mt19937 random(6);
  std::vector<float> special = {0.0f,         -0.0f,           1.0f,         -1.5f,      65504.0f,
                                65519.0f,     65520.0f,        -1e9f,        INFINITY,   -INFINITY,
                                NAN,          0x1p-14f,        0x1.ffcp-15f, 0x1p-24f,   0x1p-25f,
                                0x1.8p-25f,   0x1.000002p-25f, 0x1.8p-24f,   -0x1p-126f, 0x1p-149f,
                                0x1.ffffp127f};
  for (int i = 0; i < 200; ++i) {  // ties of either type, and their neighbours
    const auto bits = static_cast<std::uint32_t>(random());
    for (const std::uint32_t half : {0x8000u, 0x1000u}) {
      const std::uint32_t tie = (bits & ~(2 * half - 1)) | half;
      for (const std::uint32_t one : {tie, tie - 1, tie + 1}) {
        special.push_back(std::bit_cast<float>(one));
      }
      // Within f16's range.
      special.push_back(std::bit_cast<float>((tie & 0x87ffffffu) | 0x38000000u));
    }
  }
  for (const std::int32_t head_dim : {6, 16, 50, 128}) {
    const std::int64_t rows = std::ssize(special) / head_dim + 1;
    const KvLayout layout{1, 1, head_dim, 4, static_cast<std::int32_t>(rows + 3) / 4};
    const auto half = static_cast<std::size_t>(head_dim / 2);
    std::vector<float> cosine(half, 1.0f), sine(half, 0.0f);
    const auto borrow = [](std::vector<float>& v) {
      return DeviceBuffer(
          v.data(), v.size() * sizeof(float), [](void*, void*) {}, nullptr);
    };
    const RopeTable rope{borrow(cosine), borrow(sine), 1, head_dim / 2};
    const std::vector<std::int32_t> positions(static_cast<std::size_t>(rows), 0);
    std::vector<KvSlot> slots(static_cast<std::size_t>(rows));
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<float> qkv(static_cast<std::size_t>(rows * 3 * head_dim), 0.0f);
    const auto given = [&](std::size_t i) { return special[i % special.size()]; };
    const auto dim = static_cast<std::size_t>(head_dim);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * dim; ++i) {
      const std::size_t at = i / dim * 3 * dim + dim + i % dim;
      // A rotation adds products with 0, and NaN would spread.
      qkv[at] = std::isfinite(given(i)) ? given(i) : 2.0f;
      qkv[at + dim] = given(i);
    }
    for (const DType type : {DType::bf16, DType::f16}) {
      SCOPED_TRACE(::testing::Message() << name_of(type) << ", heads of " << head_dim);
      std::vector<std::uint16_t> keys(static_cast<std::size_t>(layout.slots()) * dim, 0);
      auto values = keys;
      auto in = qkv;
      cpu::rope_write_kv(in.data(), 1, rope, positions, slots, layout, type, keys.data(),
                         values.data(), 0, two());
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * dim; ++i) {
        const float value = given(i), key = std::isfinite(value) ? value : 2.0f;
        const float stored = testing::stored_value(type, values[i]);
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(stored)) << i;
        } else {
          EXPECT_EQ(values[i], testing::stored_as(type, {value})[0]) << value;
          EXPECT_TRUE(type == DType::bf16 || !std::isfinite(value) || std::isfinite(stored));
        }
        // As numbers: the sum may turn -0 into 0.
        EXPECT_EQ(testing::stored_value(type, keys[i]),
                  testing::stored_value(type, testing::stored_as(type, {key})[0]))
            << key;
      }
    }
  }
}

}  // namespace
}  // namespace coppice

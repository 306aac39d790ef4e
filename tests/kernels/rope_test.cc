#include "kernels/cpu/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernels/cpu/workers.h"
#include "kernels/random_values.h"
#include "reference/rope_reference.h"

namespace coppice::rope_test {
namespace {

using testing::random_floats;
using testing::RopeFault;
using testing::RopeReference;

cpu::Workers& two() {
  static cpu::Workers workers(2);
  return workers;
}

DeviceBuffer borrow(std::vector<float>& v) {
  return DeviceBuffer(
      v.data(), v.size() * sizeof(float), [](void*, void*) {}, nullptr);
}

struct Heads {
  std::int32_t head_dim, half_dim;
  bool query_norm = false, key_norm = false;
};

class RopeOfHeads : public ::testing::TestWithParam<Heads> {};

TEST_P(RopeOfHeads, RotatesAndWritesThePool) {
  std::mt19937 random(5);
  const auto [head_dim, half_dim, query_norm, key_norm] = GetParam();
  constexpr std::int32_t heads = 4, rows = 5, layer = 2, table_rows = 32;
  const KvLayout layout{3, 2, head_dim, 4, 6};
  const std::int32_t all_heads = heads + 2 * layout.kv_heads;
  const std::int64_t stride = std::int64_t{all_heads} * head_dim;
  const std::vector<std::int32_t> positions = {7, 8, 8, 0, 30};
  const std::vector<KvSlot> slots = {23, 0, 5, 6, 14};
  RopeReference reference{heads,
                          layout.kv_heads,
                          head_dim,
                          half_dim,
                          random_floats(table_rows * half_dim, random),
                          random_floats(table_rows * half_dim, random),
                          {},
                          {},
                          1e-3f};
  if (query_norm) reference.query_norm = random_floats(head_dim, random, 2.0f);
  if (key_norm) reference.key_norm = random_floats(head_dim, random, 2.0f);
  const RopeTable rope{borrow(reference.cosine), borrow(reference.sine), table_rows, half_dim};
  const HeadNorms norms{query_norm ? reference.query_norm.data() : nullptr,
                        key_norm ? reference.key_norm.data() : nullptr, reference.epsilon};
  const auto before = random_floats(rows * stride, random);
  auto qkv = before;
  const auto pool =
      static_cast<std::size_t>(layout.layers * layout.slots() * layout.kv_heads * head_dim);
  std::vector<float> keys(pool, -9.0f), values(pool, -9.0f);
  cpu::rope_write_kv(qkv.data(), positions, slots,
                     {heads, &rope, layout, keys.data(), values.data(), layer, norms}, DType::f32,
                     two());

  const auto place = [&](std::int32_t row, std::int32_t kv_head, std::int32_t i) {
    const KvSlot slot = slots[static_cast<std::size_t>(row)];
    const std::int32_t page = layer * layout.pages + slot / layout.page_size;
    return static_cast<std::size_t>(
        ((page * layout.kv_heads + kv_head) * layout.page_size + slot % layout.page_size) *
            head_dim +
        i);
  };
  const auto wrong = [&](RopeFault fault) {
    std::size_t count = 0;
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t h = 0; h < all_heads; ++h) {
        for (std::int32_t i = 0; i < head_dim; ++i) {
          const auto [exact, error] = reference.value(
              before.data() + r * stride, positions[static_cast<std::size_t>(r)], h, i, fault);
          const std::int32_t kv_head = (h - heads) % layout.kv_heads;
          const float got = h < heads ? qkv[static_cast<std::size_t>(r * stride + h * head_dim + i)]
                            : h < heads + layout.kv_heads ? keys[place(r, kv_head, i)]
                                                          : values[place(r, kv_head, i)];
          if (!(std::abs(got - exact) <= error)) ++count;
        }
      }
    }
    return count;
  };
  EXPECT_EQ(wrong(RopeFault::none), 0u);
  for (const auto& [fault, name] : testing::rope_faults_of(reference)) {
    EXPECT_GT(wrong(fault), 0u) << name << " would not be noticed";
  }
  // Nothing else is written: of qkv neither values nor, without a norm, keys.
  const auto touched = [](const std::vector<float>& v) {
    return std::count_if(v.begin(), v.end(), [](float x) { return x != -9.0f; });
  };
  EXPECT_EQ(touched(keys), rows * layout.kv_heads * head_dim);
  EXPECT_EQ(touched(values), rows * layout.kv_heads * head_dim);
  for (std::int32_t r = 0; r < rows; ++r) {
    const std::int64_t kept = (key_norm ? heads + layout.kv_heads : heads) * head_dim;
    EXPECT_TRUE(std::equal(before.begin() + r * stride + kept, before.begin() + (r + 1) * stride,
                           qkv.begin() + r * stride + kept));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RopeOfHeads,
    ::testing::Values(Heads{16, 8}, Heads{64, 32}, Heads{80, 40}, Heads{128, 64}, Heads{256, 128},
                      // Part of a head: Phi-4-mini's 96 of 128, and what no vector divides.
                      Heads{128, 48}, Heads{80, 16}, Heads{22, 3},
                      // Norms: of both, Qwen 3's and Gemma 3's heads, and of one alone.
                      Heads{128, 64, true, true}, Heads{256, 128, true, true},
                      Heads{20, 10, true, true}, Heads{64, 32, true, false},
                      Heads{64, 32, false, true}, Heads{96, 36, true, true}));

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
      cpu::rope_write_kv(in.data(), positions, slots,
                         {1, &rope, layout, keys.data(), values.data(), 0, {}}, type, two());
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
}  // namespace coppice::rope_test

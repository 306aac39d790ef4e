#include "kernels/cuda/pass/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

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
      const auto check = [&](const void* values, DType dtype, const auto& value_of) {
        out.poison();
        cuda::embed(pass, values, dtype, hidden, 1.0f, out.data(), rows, stream_);
        const auto got = out.download();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto width = index_of(hidden);
          if (got[i] != value_of(index_of(tokens[i / width]) * width + i % width)) ++wrong;
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

// --- swiglu -----------------------------------------------------------------------------------

TEST_F(Elementwise, SwigluAgreesWithDouble) {
  for (const std::int64_t n : {1, 2, 15, 24, 64, 688, 1376, 14336}) {
    for (const std::int32_t rows : {1, 2, 9, 300}) {
      if (rows * n > 500'000) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << n);
      const auto gate_up = random_floats(rows * 2 * n, random_, 30.0f);
      const GuardedArray<float> from(gate_up);
      GuardedArray<std::uint16_t> out(index_of(rows * n));
      cuda::glu(Activation::silu, from.data(), rows, n, out.data(), stream_);
      const auto got = out.download();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto width = index_of(n);
        const double gate = gate_up[i / width * 2 * width + i % width];
        const double up = gate_up[i / width * 2 * width + width + i % width];
        const double exact = gate / (1 + std::exp(-gate)) * up;
        // expf is within 2 units in the last place (4 u); sum, quotient and product round once.
        if (!is_rounding_of(got[i], exact, 7 * u * std::abs(exact))) ++wrong;
      }
      EXPECT_EQ(wrong, 0u);
      EXPECT_TRUE(out.guards_intact());
    }
  }
}

TEST_F(Elementwise, SwigluIsFiniteForLargeGates) {
  const std::vector<float> gate_up = {1e4f, -1e4f, 0.0f, -100.0f, 2.0f, 2.0f, 2.0f, 2.0f};
  for (const std::size_t misaligned_by : {0, 1}) {
    const GuardedArray<float> from(gate_up, misaligned_by);
    GuardedArray<std::uint16_t> out(4);
    cuda::glu(Activation::silu, from.data(), 1, 4, out.data(), stream_);
    const auto got = out.download();
    EXPECT_EQ(widened(got[0]), widened(nearest_bf16(2e4f)));
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(std::abs(widened(got[i])), 0.0f);
  }
}

// --- rope_write_kv ----------------------------------------------------------------------------

struct RopeCase {
  std::int32_t heads, kv_heads, head_dim, page_size, rows, padded;
};

class Rope : public Elementwise, public ::testing::WithParamInterface<RopeCase> {};

TEST_P(Rope, RotatesAndWritesThePool) {
  const auto [heads, kv_heads, head_dim, page_size, rows, padded] = GetParam();
  constexpr std::int32_t layers = 3, layer = 1, table_rows = 211;
  const std::int32_t half = head_dim / 2;
  const std::int64_t stride = (heads + 2 * kv_heads) * head_dim;
  const std::int32_t pages = rows / page_size + 3;
  const KvLayout layout{layers, kv_heads, head_dim, page_size, pages};

  const auto cosine = random_floats(table_rows * half, random_);
  const auto sine = random_floats(table_rows * half, random_);
  const auto qkv = random_floats(padded * stride, random_, 4.0f);
  std::vector<std::int32_t> positions = random_indices(padded, table_rows);
  std::vector<KvSlot> slots(index_of(layout.slots()));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random_);
  slots.resize(index_of(padded), no_slot);
  for (std::int32_t r = 0; r < padded; ++r) {
    if (r >= rows) positions[index_of(r)] = 0;
    // A row may also be real and write nothing.
    if (r >= rows || r % 5 == 3) slots[index_of(r)] = no_slot;
  }

  const auto upload = [](const std::vector<float>& values) {
    DeviceBuffer buffer = testing::allocate_for_test(values.size() * sizeof(float), "rope table");
    cuda::check(cudaMemcpy(buffer.data(), values.data(), buffer.bytes(), cudaMemcpyHostToDevice),
                "upload of a rope table");
    return buffer;
  };
  RopeTable rope;
  rope.cosine = upload(cosine);
  rope.sine = upload(sine);
  rope.positions = table_rows;
  rope.half_dim = half;
  GuardedArray<float> device_qkv(qkv);
  const GuardedArray<std::int32_t> device_positions(positions), device_slots(slots);
  const std::size_t pool = index_of(layers * layout.slots()) * index_of(kv_heads * head_dim);
  GuardedArray<std::uint16_t> keys(pool), values(pool);
  cuda::PassView pass{};
  pass.positions = device_positions.data();
  pass.write_slots = device_slots.data();
  cuda::rope_write_kv(pass, device_qkv.data(),
                      {heads, &rope, layout, keys.data(), values.data(), layer, {}}, padded,
                      stream_);

  const auto got = device_qkv.download();
  auto got_keys = keys.download(), got_values = values.download();
  std::size_t wrong_q = 0, wrong_k = 0, wrong_v = 0, changed = 0;
  for (std::int32_t r = 0; r < padded; ++r) {
    for (std::int32_t h = 0; h < heads + 2 * kv_heads; ++h) {
      const float* x = qkv.data() + r * stride + h * head_dim;
      for (std::int32_t i = 0; i < head_dim; ++i) {
        const std::int32_t j = i % half;
        const double c = cosine[index_of(positions[index_of(r)] * half + j)];
        const double s = sine[index_of(positions[index_of(r)] * half + j)];
        const double first = i < half ? x[j] * c : x[j + half] * c;
        const double second = i < half ? -x[j + half] * s : x[j] * s;
        // Two products and a sum.
        const double error = 3 * u * (std::abs(first) + std::abs(second));
        const std::size_t at = index_of(r * stride + h * head_dim + i);
        if (h < heads) {
          if (!(std::abs(got[at] - (first + second)) <= error)) ++wrong_q;
          continue;
        }
        if (std::bit_cast<std::uint32_t>(got[at]) != std::bit_cast<std::uint32_t>(qkv[at])) {
          ++changed;
        }
        const KvSlot slot = slots[index_of(r)];
        if (slot < 0) continue;
        const std::int32_t kv_head = (h - heads) % kv_heads;
        const std::int64_t page = std::int64_t{layer} * pages + slot / page_size;
        const std::size_t to =
            index_of(((page * kv_heads + kv_head) * page_size + slot % page_size) * head_dim + i);
        if (h < heads + kv_heads) {
          if (!is_rounding_of(got_keys[to], first + second, error)) ++wrong_k;
          got_keys[to] = 0xffff;
        } else {
          if (got_values[to] != nearest_bf16(x[i])) ++wrong_v;
          got_values[to] = 0xffff;
        }
      }
    }
  }
  EXPECT_EQ(wrong_q, 0u);
  EXPECT_EQ(wrong_k, 0u);
  EXPECT_EQ(wrong_v, 0u);
  EXPECT_EQ(changed, 0u) << "elements of the k and v parts of qkv";
  // What was written has been poisoned again: nothing else may have been written.
  EXPECT_EQ(got_keys, std::vector<std::uint16_t>(pool, 0xffff));
  EXPECT_EQ(got_values, std::vector<std::uint16_t>(pool, 0xffff));
  EXPECT_TRUE(device_qkv.guards_intact() && keys.guards_intact() && values.guards_intact());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Rope,
    ::testing::Values(RopeCase{1, 1, 2, 1, 1, 1}, RopeCase{4, 2, 6, 3, 5, 8},
                      RopeCase{3, 1, 8, 4, 7, 8}, RopeCase{4, 4, 16, 16, 20, 32},
                      RopeCase{5, 5, 20, 16, 33, 48}, RopeCase{4, 2, 24, 16, 9, 16},
                      RopeCase{9, 3, 64, 16, 130, 160}, RopeCase{7, 1, 80, 32, 17, 32},
                      RopeCase{8, 2, 96, 16, 3, 4}, RopeCase{32, 8, 128, 16, 1, 1},
                      RopeCase{32, 8, 128, 128, 257, 320}, RopeCase{8, 4, 256, 16, 40, 48}));

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
  cuda::glu(Activation::silu, nullptr, 0, 64, nullptr, stream_);
  cuda::gather_logit_rows(pass, nullptr, 64, nullptr, 0, stream_);
  const RopeTable rope;
  cuda::rope_write_kv(pass, nullptr, {2, &rope, KvLayout{1, 1, 64, 16, 1}, nullptr, nullptr, 0, {}},
                      0, stream_);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

}  // namespace
}  // namespace coppice

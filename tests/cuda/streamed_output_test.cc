// Streamed products that end in what a model does next: the same bits as the product followed by
// the kernel of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "cuda/linear_rig.h"
#include "cuda/rounding.h"
#include "cuda/stored_queries.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/cuda/pass/rope_tensors.h"
#include "kernels/random_values.h"

namespace coppice {
namespace {

using testing::GuardedArray;

class StreamedOutput : public testing::LinearRig {
 protected:
  void SetUp() override {
    LinearRig::SetUp();
    if (IsSkipped()) return;
    if (cuda::prepare_streamed_linear() == 0) GTEST_SKIP() << "no kernel that streams";
  }

  std::vector<std::uint16_t> random_bf16(std::int64_t count) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
    for (std::uint16_t& b : bits) {
      // Multiples of 1/8 up to 1: products and sums are exact, in whatever order they are added.
      b = testing::nearest_bf16(static_cast<float>(static_cast<int>(random_() >> 8) % 9) * 0.125f);
    }
    return bits;
  }

  struct Layer {
    std::unique_ptr<LinearWeights> weights;
    std::vector<std::uint16_t> x;
  };
  Layer make_layer(std::int64_t out, std::int64_t in, std::int32_t rows, bool bias) {
    const std::vector<std::uint16_t> weights = random_bf16(out * in);
    std::vector<float> added;
    for (std::int64_t j = 0; bias && j < out; ++j) {
      added.push_back(static_cast<float>(static_cast<int>(random_() >> 8) % 9) * 0.125f);
    }
    const LinearPart part{weights.data(), DType::bf16, out};
    return {engine_->pack({&part, 1}, in, added, 112),
            random_bf16(std::int64_t{cuda::padded_row_count(rows)} * in)};
  }

  std::mt19937 random_{11};
};

TEST_F(StreamedOutput, GatedIsTheProductThenGlu) {
  using Shape = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [n, in] : std::vector<Shape>{
           {8, 64}, {5, 128}, {36, 192}, {1007, 320}, {1500, 128}, {7744, 768}, {11328, 512}}) {
    for (const std::int32_t rows : {1, 3, 8, 9, 16, 31, 48, 60, 80, 96}) {
      SCOPED_TRACE(::testing::Message() << n << " x " << in << " at " << rows);
      Layer layer = make_layer(2 * n, in, rows, rows % 2 == 1);
      const std::int64_t padded = cuda::padded_row_count(rows);
      // With one input gates are at most 2, where activations differ.
      const bool small = in == 64;
      for (std::size_t i = 0; small && i < layer.x.size(); ++i) {
        if (i % 64 != 0) layer.x[i] = 0;
      }
      const GuardedArray<std::uint16_t> x(layer.x);
      GuardedArray<float> product(static_cast<std::size_t>(padded * 2 * n));
      GuardedArray<std::uint16_t> expected(static_cast<std::size_t>(padded * n)),
          got(static_cast<std::size_t>(padded * n));
      engine_->run(*layer.weights, x.data(), rows, product.data(), false, stream_);
      std::vector<std::uint16_t> by_activation[2];
      for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
        cuda::glu(activation, product.data(), static_cast<std::int32_t>(padded), n, expected.data(),
                  stream_);
        ASSERT_TRUE(
            engine_->run_gated(*layer.weights, activation, x.data(), rows, got.data(), stream_));
        EXPECT_EQ(got.download(), expected.download());
        EXPECT_TRUE(got.guards_intact());
        by_activation[activation == Activation::gelu_tanh] = got.download();
      }
      EXPECT_EQ(by_activation[0] != by_activation[1], small);
    }
  }
}

TEST_F(StreamedOutput, RotatedIsTheProductThenRope) {
  struct Heads {
    std::int32_t heads, kv_heads, head_dim;
    std::int64_t in;
  };
  for (const auto& [heads, kv_heads, head_dim, in] : std::vector<Heads>{{4, 2, 16, 64},
                                                                        {3, 1, 48, 192},
                                                                        {12, 12, 64, 768},
                                                                        {32, 8, 128, 512},
                                                                        {32, 8, 128, 448},
                                                                        {32, 8, 128, 2048},
                                                                        {52, 4, 128, 192},
                                                                        {40, 40, 128, 320}}) {
    for (const std::int32_t rows : {1, 3, 8, 9, 16, 31, 48, 60, 80, 96}) {
      SCOPED_TRACE(::testing::Message() << heads << " heads of " << head_dim << " at " << rows);
      constexpr std::int32_t table_rows = 50, layer_index = 1;
      const KvLayout layout{2, kv_heads, head_dim, 16, 7};
      const std::int64_t width = std::int64_t{heads + 2 * kv_heads} * head_dim;
      const std::int32_t padded = cuda::padded_row_count(rows);
      const Layer layer = make_layer(width, in, rows, rows % 2 == 1);
      const GuardedArray<std::uint16_t> x(layer.x);
      const GuardedArray<float> cosine(
          testing::random_floats(static_cast<std::size_t>(table_rows * head_dim / 2), random_));
      const GuardedArray<float> sine(
          testing::random_floats(static_cast<std::size_t>(table_rows * head_dim / 2), random_));
      std::vector<std::int32_t> positions(static_cast<std::size_t>(padded));
      for (auto& position : positions) position = static_cast<std::int32_t>(random_() % table_rows);
      std::vector<KvSlot> slots(static_cast<std::size_t>(layout.slots()));
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(slots.begin(), slots.end(), random_);
      slots.resize(static_cast<std::size_t>(padded));
      slots[static_cast<std::size_t>(rows) - 1] = rows > 1 ? no_slot : slots[0];
      const GuardedArray<std::int32_t> device_positions(positions), device_slots(slots);
      const std::size_t pool = static_cast<std::size_t>(layout.layers) *
                               static_cast<std::size_t>(layout.slots()) *
                               static_cast<std::size_t>(kv_heads * head_dim);

      const auto run = [&](bool fused, std::vector<std::uint16_t>* pools) {
        GuardedArray<float> qkv(static_cast<std::size_t>(padded * width));
        GuardedArray<std::uint16_t> keys(std::vector<std::uint16_t>(pool, 7));
        GuardedArray<std::uint16_t> values(std::vector<std::uint16_t>(pool, 7));
        const std::size_t first = pool / 2 * layer_index;
        const cuda::RopeTensors tensors{device_positions.data(),
                                        device_slots.data(),
                                        qkv.data(),
                                        cosine.data(),
                                        sine.data(),
                                        reinterpret_cast<__nv_bfloat16*>(keys.data()) + first,
                                        reinterpret_cast<__nv_bfloat16*>(values.data()) + first,
                                        heads,
                                        kv_heads,
                                        head_dim,
                                        head_dim / 2,
                                        layout.page_size,
                                        {}};
        if (fused) {
          EXPECT_TRUE(engine_->run_qkv(*layer.weights, x.data(), rows, tensors, stream_));
        } else {
          engine_->run(*layer.weights, x.data(), rows, qkv.data(), false, stream_);
          cuda::rope_write_kv(tensors, padded, stream_);
        }
        pools[0] = keys.download();
        pools[1] = values.download();
        EXPECT_TRUE(keys.guards_intact() && values.guards_intact() && qkv.guards_intact());
        // Holds q alone: what the rest holds is unspecified.
        std::vector<std::uint16_t> queries;
        const auto all = qkv.download();
        for (std::int64_t row = 0; row < padded; ++row) {
          for (std::int64_t i = 0; i < heads * head_dim; ++i) {
            const std::int64_t head = row * width + i / head_dim * head_dim;
            queries.push_back(testing::stored_query(all, static_cast<std::size_t>(head),
                                                    static_cast<std::size_t>(i % head_dim)));
          }
        }
        return queries;
      };
      std::vector<std::uint16_t> expected[2], got[2];
      EXPECT_EQ(run(true, got), run(false, expected));
      EXPECT_EQ(got[0], expected[0]);
      EXPECT_EQ(got[1], expected[1]);
      EXPECT_GT(std::count_if(got[0].begin(), got[0].end(), [](auto v) { return v != 7; }), 0);
    }
  }
}

TEST_F(StreamedOutput, IsRefusedWhereWeightsAreNotStreamed) {
  const Layer wide = make_layer(64, 128, 97, false), odd = make_layer(64, 72, 1, false);
  const GuardedArray<std::uint16_t> x(wide.x);
  GuardedArray<std::uint16_t> out(112 * 64);
  EXPECT_FALSE(
      engine_->run_gated(*wide.weights, Activation::silu, x.data(), 97, out.data(), stream_));
  EXPECT_FALSE(
      engine_->run_gated(*odd.weights, Activation::silu, x.data(), 1, out.data(), stream_));
  cuda::RopeTensors heads{};
  heads.head_dim = 24;
  heads.half_dim = 12;  // two sides of a tile would cross heads
  heads.heads = 1;
  EXPECT_FALSE(engine_->run_qkv(*wide.weights, x.data(), 1, heads, stream_));
}

TEST_F(StreamedOutput, IsRefusedForHeadsWithNormsOrPartlyRotated) {
  const Layer layer = make_layer(3 * 32, 128, 1, false);
  const GuardedArray<std::uint16_t> x(layer.x);
  const GuardedArray<float> norm(std::vector<float>(32, 1.0f));
  cuda::RopeTensors heads{};
  heads.heads = heads.kv_heads = 1;
  heads.head_dim = 32;
  heads.half_dim = 16;
  ASSERT_TRUE(cuda::can_rotate(heads));
  for (const HeadNorms norms :
       {HeadNorms{norm.data(), nullptr, 1e-6f}, {nullptr, norm.data(), 0}}) {
    heads.norms = norms;
    EXPECT_FALSE(engine_->run_qkv(*layer.weights, x.data(), 1, heads, stream_));
  }
  heads.norms = {};
  heads.half_dim = 8;
  EXPECT_FALSE(engine_->run_qkv(*layer.weights, x.data(), 1, heads, stream_));
}

}  // namespace
}  // namespace coppice

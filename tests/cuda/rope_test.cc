// rope_write_kv() on the GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cuda/guarded_array.h"
#include "cuda/rounding.h"
#include "cuda/stored_queries.h"
#include "kernels/cuda/pass/elementwise.h"
#include "kernels/random_values.h"
#include "reference/rope_reference.h"

namespace coppice::cuda_rope_test {
namespace {

using testing::GuardedArray;
using testing::is_rounding_of;
using testing::random_floats;
using testing::RopeFault;
using testing::RopeReference;

template <typename T>
std::size_t index_of(T value) {
  return static_cast<std::size_t>(value);
}

struct RopeCase {
  std::int32_t heads, kv_heads, head_dim, page_size, rows, padded;
  std::int32_t half_dim = 0;  ///< 0: all of the head
  bool query_norm = false, key_norm = false;
};

class Rope : public testing::KernelTest, public ::testing::WithParamInterface<RopeCase> {
 protected:
  DeviceBuffer upload(const std::vector<float>& values) {
    DeviceBuffer buffer = testing::allocate_for_test(values.size() * sizeof(float), "rope table");
    cuda::check(cudaMemcpy(buffer.data(), values.data(), buffer.bytes(), cudaMemcpyHostToDevice),
                "upload of a rope table");
    return buffer;
  }
  std::mt19937 random_{11};
};

TEST_P(Rope, RotatesAndWritesThePool) {
  const RopeCase& param = GetParam();
  const auto [heads, kv_heads, head_dim, page_size, rows, padded, part, query_norm, key_norm] =
      param;
  constexpr std::int32_t layers = 3, layer = 1, table_rows = 211;
  const std::int32_t half = part == 0 ? head_dim / 2 : part;
  const std::int64_t stride = std::int64_t{heads + 2 * kv_heads} * head_dim;
  const std::int32_t pages = rows / page_size + 3;
  const KvLayout layout{layers, kv_heads, head_dim, page_size, pages};

  RopeReference reference{heads,
                          kv_heads,
                          head_dim,
                          half,
                          random_floats((table_rows + 1) * half, random_),
                          random_floats((table_rows + 1) * half, random_),
                          {},
                          {},
                          1e-2f};
  if (query_norm) reference.query_norm = random_floats(head_dim, random_, 2.0f);
  if (key_norm) reference.key_norm = random_floats(head_dim, random_, 2.0f);
  const auto qkv = random_floats(padded * stride, random_, 4.0f);
  std::uniform_int_distribution<std::int32_t> any_position(0, table_rows - 1);
  std::vector<std::int32_t> positions(index_of(padded));
  for (std::int32_t& position : positions) position = any_position(random_);
  std::vector<KvSlot> slots(index_of(layout.slots()));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random_);
  slots.resize(index_of(padded), no_slot);
  for (std::int32_t r = 0; r < padded; ++r) {
    if (r >= rows) positions[index_of(r)] = 0;
    // A row may also be real and write nothing.
    if (r >= rows || r % 5 == 3) slots[index_of(r)] = no_slot;
  }

  RopeTable rope;
  rope.cosine = upload(reference.cosine);
  rope.sine = upload(reference.sine);
  rope.positions = table_rows;
  rope.half_dim = half;
  const DeviceBuffer query_weights = upload(reference.query_norm);
  const DeviceBuffer key_weights = upload(reference.key_norm);
  const HeadNorms norms{query_norm ? query_weights.as<float>() : nullptr,
                        key_norm ? key_weights.as<float>() : nullptr, reference.epsilon};
  GuardedArray<float> device_qkv(qkv);
  const GuardedArray<std::int32_t> device_positions(positions), device_slots(slots);
  const std::size_t pool = index_of(layers * layout.slots()) * index_of(kv_heads * head_dim);
  GuardedArray<std::uint16_t> keys(pool), values(pool);
  cuda::PassView pass{};
  pass.positions = device_positions.data();
  pass.write_slots = device_slots.data();
  cuda::rope_write_kv(pass, device_qkv.data(),
                      {heads, &rope, layout, keys.data(), values.data(), layer, norms}, padded,
                      stream_);

  const auto got = device_qkv.download();
  auto got_keys = keys.download(), got_values = values.download();
  const auto place = [&](KvSlot slot, std::int32_t kv_head, std::int32_t i) {
    const std::int64_t page = std::int64_t{layer} * pages + slot / page_size;
    return index_of(((page * kv_heads + kv_head) * page_size + slot % page_size) * head_dim + i);
  };
  const auto wrong = [&](RopeFault fault) {
    std::size_t count = 0;
    for (std::int32_t r = 0; r < padded; ++r) {
      for (std::int32_t h = 0; h < heads + 2 * kv_heads; ++h) {
        const KvSlot slot = slots[index_of(r)];
        if (h >= heads && slot < 0) continue;
        const std::int32_t kv_head = (h - heads) % kv_heads;
        for (std::int32_t i = 0; i < head_dim; ++i) {
          const auto [exact, error] =
              reference.value(qkv.data() + r * stride, positions[index_of(r)], h, i, fault);
          const std::uint16_t written =
              h < heads
                  ? testing::stored_query(got, index_of(r * stride + h * head_dim), index_of(i))
              : h < heads + kv_heads ? got_keys[place(slot, kv_head, i)]
                                     : got_values[place(slot, kv_head, i)];
          if (!is_rounding_of(written, exact, error)) ++count;
        }
      }
    }
    return count;
  };
  EXPECT_EQ(wrong(RopeFault::none), 0u);
  if (rows > 1) {
    for (const auto& [fault, name] : testing::rope_faults_of(reference)) {
      EXPECT_GT(wrong(fault), 0u) << name << " would not be noticed";
    }
  }
  std::size_t changed = 0;
  for (std::int32_t r = 0; r < padded; ++r) {
    for (std::int64_t at = r * stride + heads * head_dim; at < (r + 1) * stride; ++at) {
      if (std::bit_cast<std::uint32_t>(got[index_of(at)]) !=
          std::bit_cast<std::uint32_t>(qkv[index_of(at)])) {
        ++changed;
      }
    }
    for (std::int32_t kv_head = 0; kv_head < kv_heads && slots[index_of(r)] >= 0; ++kv_head) {
      for (std::int32_t i = 0; i < head_dim; ++i) {
        const std::size_t at = place(slots[index_of(r)], kv_head, i);
        got_keys[at] = got_values[at] = 0xffff;
      }
    }
  }
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
                      RopeCase{32, 8, 128, 128, 257, 320}, RopeCase{8, 4, 256, 16, 40, 48},
                      // Part of a head: Phi-4-mini's, and what no vector divides.
                      RopeCase{24, 8, 128, 16, 33, 48, 48}, RopeCase{4, 2, 80, 16, 9, 16, 16},
                      RopeCase{3, 1, 22, 16, 9, 16, 3},
                      // Norms: heads of Qwen 3 and Gemma 3, one kind alone, odd sizes, partly
                      // rotated.
                      RopeCase{32, 8, 128, 16, 65, 80, 0, true, true},
                      RopeCase{16, 8, 256, 16, 33, 48, 0, true, true},
                      RopeCase{4, 1, 256, 16, 1, 1, 0, true, true},
                      RopeCase{9, 3, 64, 16, 20, 32, 0, true, false},
                      RopeCase{9, 3, 64, 16, 20, 32, 0, false, true},
                      RopeCase{5, 5, 20, 16, 33, 48, 0, true, true},
                      RopeCase{7, 1, 80, 32, 17, 32, 0, true, true},
                      RopeCase{8, 2, 96, 16, 30, 32, 36, true, true},
                      RopeCase{2, 1, 320, 16, 9, 16, 0, true, true},
                      // Several steps of a warp, by vectors of each width; and the longest heads.
                      RopeCase{2, 1, 66, 16, 9, 16, 0, true, true},
                      RopeCase{2, 1, 132, 16, 9, 16, 0, true, true},
                      RopeCase{2, 1, 510, 16, 9, 16, 0, true, true},
                      RopeCase{2, 1, 512, 16, 9, 16, 0, false, true},
                      RopeCase{2, 1, 510, 16, 9, 16}, RopeCase{2, 1, 512, 16, 9, 16}));

}  // namespace
}  // namespace coppice::cuda_rope_test

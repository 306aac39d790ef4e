// What a pass's kernels read of its inputs, where it has so many texts that their KV is sent in
// parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/guarded_array.h"
#include "kernels/cuda/pass/cuda_pass.h"
#include "reference/growing_texts.h"

namespace coppice::cuda {
namespace {

DeviceBuffer allocate(std::size_t bytes, const char* purpose) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), purpose);
  check(cudaMemset(memory, 0xff, bytes), purpose);
  check(cudaDeviceSynchronize(), purpose);
  return {memory, bytes, [](void* p, void*) { (void)cudaFree(p); }, nullptr};
}

class CudaPassInputs : public testing::KernelTest {
 protected:
  // Texts of up to `longest` tokens, so that some passes are sent in parts and some are not.
  void run(std::int32_t texts, std::int32_t longest, bool records) {
    const PassLimits limits{4 * texts, 4 * texts, texts * (longest + 10), {4, 4, 64}};
    const ResidentBlocks blocks = prepare_attention(limits.attention.head_dim);
    Transfers transfers(stream_);
    CudaPass pass(limits, blocks, allocate, transfers, stream_, records);
    testing::GrowingTexts growing(texts, longest, 7);
    std::vector<std::int32_t> zeros;
    int in_parts = 0, whole = 0;
    for (int step = 0; step < 150; ++step) {
      growing.step();
      zeros.assign(static_cast<std::size_t>(growing.rows()), 0);
      PassInputs inputs;
      inputs.tokens = zeros;
      inputs.positions = zeros;
      inputs.write_slots = zeros;
      inputs.segments = growing.segments();
      pass.begin(inputs);
      if (step % 10 == 9) continue;  // it failed before it was run
      const std::function<void()> nothing = [] {};
      pass.run({}, nothing);
      check(cudaStreamSynchronize(stream_), "the pass");
      const std::vector<VisibleKv> expected = growing.tokens();
      std::vector<VisibleKv> tail(expected.size());
      check(cudaMemcpy(tail.data(), pass.view().tail, tail.size() * sizeof(VisibleKv),
                       cudaMemcpyDeviceToHost),
            "reading the tail");
      ++(expected.size() >= 4096 ? in_parts : whole);
      ASSERT_TRUE(std::equal(tail.begin(), tail.end(), expected.begin(),
                             [](const VisibleKv& a, const VisibleKv& b) {
                               return a.slot == b.slot && a.q_begin == b.q_begin &&
                                      a.q_end == b.q_end;
                             }))
          << "step " << step;
    }
    EXPECT_GT(in_parts, 20);
    EXPECT_GT(whole, 20);
  }
};

TEST_F(CudaPassInputs, OfManyTextsArriveInParts) { run(40, 250, false); }
TEST_F(CudaPassInputs, ArriveInRecordedPassesToo) { run(40, 250, true); }
TEST_F(CudaPassInputs, OfLongTextsArriveInParts) { run(3, 2800, true); }

}  // namespace
}  // namespace coppice::cuda

// What a pass's kernels read of its inputs, where it has so many texts that their KV is sent in
// parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "base/error.h"
#include "cuda/guarded_array.h"
#include "kernels/cuda/attention/box_order.h"
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
  // Texts of up to `longest` tokens, so that some passes are sent in parts and some are not, behind
  // `shared` tokens. `ranges`: on a device that has them, they run many of these passes.
  void run(std::int32_t texts, std::int32_t longest, bool records, bool ranges,
           std::int32_t shared = 0) {
    const PassLimits limits{4 * texts, 4 * texts, texts * (longest + 10) + shared, {4, 4, 64}};
    std::vector<KvSlot> slots(static_cast<std::size_t>(shared));
    std::iota(slots.begin(), slots.end(), 1 << 20);
    const ResidentBlocks blocks = prepare_attention(limits.attention.head_dim);
    Transfers transfers(stream_);
    CudaPass pass(limits, blocks, allocate, transfers, stream_, records, preparations_, timing_);
    testing::GrowingTexts growing(texts, longest, 7);
    std::vector<std::int32_t> zeros;
    int in_parts = 0, whole = 0, by_boxes = 0;
    for (int step = 0; step < 150; ++step) {
      growing.step();
      zeros.assign(static_cast<std::size_t>(growing.rows()), 0);
      PassInputs inputs;
      inputs.tokens = zeros;
      inputs.positions = zeros;
      inputs.write_slots = zeros;
      std::vector<KvSegment> segments = {{slots, 0, growing.rows(), true, 0}};
      if (slots.empty()) segments.clear();
      segments.insert(segments.end(), growing.segments().begin(), growing.segments().end());
      inputs.segments = segments;
      pass.begin(inputs);
      if (step % 10 == 9) continue;  // it failed before it was run
      const std::function<void()> nothing = [] {};
      pass.run({}, nothing);
      check(cudaStreamSynchronize(stream_), "the pass");
      std::vector<VisibleKv> expected = growing.tokens();
      std::vector<VisibleKv> tail(expected.size());
      std::vector<KvSegment> ordered;
      if (attention_kernel_for(limits.attention, pass.padded_rows(),
                               static_cast<std::int32_t>(expected.size()),
                               blocks) == AttentionKernel::ranges &&
          order_by_boxes(growing.segments(), ordered)) {
        ++by_boxes;
        expected.clear();
        for (const KvSegment& segment : ordered) {
          std::int32_t position = segment.first_position;
          for (const KvSlot slot : segment.slots) {
            expected.push_back({slot, segment.q_begin, segment.q_end, position++});
          }
        }
      }
      check(cudaMemcpy(tail.data(), pass.view().tail, tail.size() * sizeof(VisibleKv),
                       cudaMemcpyDeviceToHost),
            "reading the tail");
      ++(expected.size() >= 4096 ? in_parts : whole);
      ASSERT_TRUE(std::equal(tail.begin(), tail.end(), expected.begin(),
                             [](const VisibleKv& a, const VisibleKv& b) {
                               return a.slot == b.slot && a.q_begin == b.q_begin &&
                                      a.q_end == b.q_end && a.position == b.position;
                             }))
          << "step " << step;
    }
    EXPECT_GT(in_parts, 20);
    EXPECT_GT(whole, 20);
    EXPECT_EQ(by_boxes > 20, ranges && blocks.ranges != 0);
  }
  Preparations preparations_;
  ProductTiming timing_;
};

TEST_F(CudaPassInputs, HaveAPlanForEveryWindow) {
  PassLimits limits{16, 16, 600, {4, 4, 64}};
  limits.windows = {0, 40};
  const ResidentBlocks blocks = prepare_attention(limits.attention.head_dim);
  Transfers transfers(stream_);
  CudaPass pass(limits, blocks, allocate, transfers, stream_, false, preparations_, timing_);
  std::vector<KvSlot> slots(504);
  std::iota(slots.begin(), slots.end(), 0);
  const std::span<const KvSlot> all = slots;
  const std::vector<std::int32_t> zeros(4, 0), positions = {500, 501, 502, 503};
  std::vector<KvSegment> segments = {{all.first(500), 0, 4, true, 0}};
  for (std::int32_t row = 0; row < 4; ++row) {
    segments.push_back(
        {all.subspan(static_cast<std::size_t>(500 + row), 1), row, 4, false, 500 + row});
  }
  pass.begin({zeros, positions, zeros, segments, {}});
  pass.send();
  check(cudaStreamSynchronize(stream_), "the pass");
  const auto scalars = [&](std::int32_t window) {
    PassScalars of_window;
    check(cudaMemcpy(&of_window, pass.window(window).view.scalars, sizeof(of_window),
                     cudaMemcpyDeviceToHost),
          "reading a plan");
    return of_window;
  };
  EXPECT_EQ(scalars(0).prefix, 500);
  EXPECT_EQ(scalars(0).prefix_begin, 0);
  // The first row sees position 461 and later ones. So few rows are the items' on any GPU.
  EXPECT_EQ(scalars(40).prefix, 39);
  EXPECT_EQ(scalars(40).prefix_begin, 461);
  EXPECT_EQ(scalars(40).prefix_position, 461);
  EXPECT_EQ(scalars(40).tail, 4);
  EXPECT_LT(scalars(40).chunks * scalars(40).chunk_tokens, 500);
  EXPECT_THROW(pass.window(7), Error);
}

TEST_F(CudaPassInputs, OfManyTextsArriveInParts) { run(40, 250, false, true); }
TEST_F(CudaPassInputs, ArriveInRecordedPassesToo) { run(40, 250, true, true); }
TEST_F(CudaPassInputs, OfLongTextsArriveInParts) { run(3, 2800, true, false); }
TEST_F(CudaPassInputs, BehindAPrefixArriveInParts) { run(40, 250, true, true, 300); }

TEST_F(CudaPassInputs, OtherDivisionsAreRefused) {
  const PassLimits limits{4, 4, 64, {4, 4, 64}};
  Transfers transfers(stream_);
  CudaPass pass(limits, prepare_attention(limits.attention.head_dim), allocate, transfers, stream_,
                true, preparations_, timing_);
  const std::vector<std::int32_t> zero(1);
  const std::vector<KvSlot> slot = {0};
  const std::vector<KvSegment> segments = {{slot, 0, 1, false, 0}};
  PassInputs inputs;
  inputs.tokens = inputs.positions = zero;
  inputs.write_slots = slot;
  inputs.segments = segments;
  for (const auto division :
       {AttentionDivision::node, AttentionDivision::node_chunk, AttentionDivision::subtree}) {
    inputs.division = division;
    EXPECT_THROW(pass.begin(inputs), Error);
  }
  inputs.division = AttentionDivision::flatten;
  pass.begin(inputs);
}

// A pass that is used often has its products timed, once, and is recorded again.
TEST_F(CudaPassInputs, ProductsAreTimedOnceTheyPay) {
  const PassLimits limits{4, 4, 64, {4, 4, 64}};
  Transfers transfers(stream_);
  timing_.allowed = false;
  CudaPass pass(limits, prepare_attention(limits.attention.head_dim), allocate, transfers, stream_,
                true, preparations_, timing_);
  const std::vector<std::int32_t> zero(1);
  const std::vector<KvSlot> slot = {0};
  const std::vector<KvSegment> segments = {{slot, 0, 1, false, 0}};
  PassInputs inputs;
  inputs.tokens = inputs.positions = zero;
  inputs.write_slots = slot;
  inputs.segments = segments;
  int queued = 0, timed = 0;
  const std::function<void()> body = [&] {
    ++queued;
    if (timed == 0 && !timing_.allowed) ++timing_.put_off;
    if (timing_.allowed) ++timed;
  };
  for (int use = 1; use <= 600; ++use) {
    pass.begin(inputs);
    pass.run({}, body);
    EXPECT_EQ(timed, use < 256 ? 0 : 1) << use;
    EXPECT_EQ(queued, use < 2 ? 1 : use < 3 ? 3 : use < 256 ? 4 : 6) << use;
    EXPECT_FALSE(timing_.allowed);
  }
  EXPECT_EQ(preparations_.passes, 4);
  check(cudaStreamSynchronize(stream_), "the passes");
}

// More kinds of passes than are kept, each run unrecorded, recorded and played back, without waits
// in between; then the oldest ones again, whose recordings have gone.
TEST_F(CudaPassInputs, TheLastRecordingsAreKept) {
  const PassLimits limits{4, 4, 64, {4, 4, 64}};
  Transfers transfers(stream_);
  CudaPass pass(limits, prepare_attention(limits.attention.head_dim), allocate, transfers, stream_,
                true, preparations_, timing_);
  constexpr std::size_t kinds = CudaPass::most_recordings + 30, times = 5;
  const DeviceBuffer written = allocate(kinds * times, "what passes write");
  const std::vector<std::int32_t> zero(1);
  const std::vector<KvSlot> slot = {0};
  const std::vector<KvSegment> segments = {{slot, 0, 1, false, 0}};
  PassInputs inputs;
  inputs.tokens = inputs.positions = zero;
  inputs.write_slots = slot;
  inputs.segments = segments;
  std::size_t queued = 0;
  const auto run = [&](std::size_t kind) {
    PassVariant variant;
    variant.epilogue = 1 + kind;
    const std::function<void()> body = [&] {
      ++queued;
      check(cudaMemsetAsync(written.as<char>() + kind * times, static_cast<int>(kind % 251), times,
                            stream_),
            "writing");
    };
    pass.begin(inputs);
    pass.run(variant, body);
  };
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    for (std::size_t i = 0; i < times; ++i) run(kind);
    ASSERT_LE(pass.recordings(), CudaPass::most_recordings);
  }
  EXPECT_EQ(queued, 4 * kinds) << "three times as they are, once to be captured";
  EXPECT_EQ(preparations_.passes, static_cast<std::int64_t>(3 * kinds));
  run(kinds - 1);
  EXPECT_EQ(preparations_.passes, static_cast<std::int64_t>(3 * kinds));
  EXPECT_EQ(queued, 4 * kinds) << "still kept";
  check(cudaMemsetAsync(written.data(), 255, kinds * times, stream_), "clearing");
  for (std::size_t kind = 0; kind < kinds; ++kind) run(kind);
  EXPECT_GT(queued, 4 * kinds);
  EXPECT_EQ(pass.recordings(), CudaPass::most_recordings);
  std::vector<unsigned char> read(kinds * times);
  check(cudaStreamSynchronize(stream_), "the passes");
  check(cudaMemcpy(read.data(), written.data(), read.size(), cudaMemcpyDeviceToHost), "reading");
  for (std::size_t i = 0; i < read.size(); ++i) {
    ASSERT_EQ(read[i], static_cast<unsigned char>(i / times % 251)) << i;
  }
}

}  // namespace
}  // namespace coppice::cuda

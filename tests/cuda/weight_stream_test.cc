// Streamed layers' copies and memory on a GPU: order, faults. (tests/models/weight_stream_test.cc
// has whole passes.)
#include "kernels/cuda/linear/weight_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "cuda/guarded_array.h"

namespace coppice::cuda_weight_stream_test {

using cuda::CudaWeightStream;
using cuda::PinnedChunks;
using cuda::PinnedMemory;
using cuda::WeightStreamCalls;

constexpr std::size_t chunk = PinnedChunks::chunk_bytes;

/// One block of device memory, every word its number plus `seed`.
class NumberedWeights final : public LinearWeights {
 public:
  NumberedWeights(std::size_t words, std::uint32_t seed) : values_(words) {
    std::iota(values_.begin(), values_.end(), seed);
    buffer = testing::allocate_for_test(words * sizeof(std::uint32_t), "a test's weights");
    cuda::check(cudaMemcpy(buffer.data(), values_.data(), buffer.bytes(), cudaMemcpyHostToDevice),
                "upload of a test's weights");
    cuda::check(cudaDeviceSynchronize(), "upload of a test's weights");
  }
  std::int64_t in_features() const override { return 1; }
  std::int64_t out_features() const override { return std::ssize(values_); }
  std::size_t bytes() const override { return buffer.bytes(); }
  std::vector<DeviceBuffer*> memory() override { return {&buffer}; }

  /// As work queued on the stream finds them.
  bool are_there(cudaStream_t stream) const {
    std::vector<std::uint32_t> found(values_.size());
    cuda::check(cudaMemcpyAsync(found.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost,
                                stream),
                "download");
    cuda::check(cudaStreamSynchronize(stream), "download");
    return found == values_;
  }

  DeviceBuffer buffer;

 private:
  std::vector<std::uint32_t> values_;
};

class CudaStreamed : public testing::KernelTest {
 protected:
  // Blocks that end within chunks, and one that is longer than a chunk.
  void make(WeightStreamCalls calls = {}, std::int32_t places = 2) {
    stream_of_weights_ = std::make_unique<CudaWeightStream>(places, testing::allocate_for_test,
                                                            stream_, true, std::move(calls));
    for (const std::size_t words : {chunk / 8 + 3, chunk / 4, chunk / 3, std::size_t{5}}) {
      weights_.push_back(std::make_unique<NumberedWeights>(
          words, static_cast<std::uint32_t>(weights_.size() << 28)));
      LinearWeights* const one = weights_.back().get();
      stream_of_weights_->add({&one, 1});
    }
    stream_of_weights_->begin();
  }
  bool pass() {
    bool right = true;
    for (std::size_t visit = 0; visit < weights_.size(); ++visit) {
      stream_of_weights_->enter(static_cast<std::int32_t>(visit));
      right = weights_[visit]->are_there(stream_) && right;
      stream_of_weights_->leave(static_cast<std::int32_t>(visit));
    }
    return right;
  }
  void TearDown() override {
    stream_of_weights_.reset();
    testing::KernelTest::TearDown();
  }

  std::vector<std::unique_ptr<NumberedWeights>> weights_;
  std::unique_ptr<CudaWeightStream> stream_of_weights_;
};

TEST_F(CudaStreamed, WeightsAreThereInEveryPass) {
  for (const std::int32_t places : {1, 2, 3}) {
    weights_.clear();
    make({}, places);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(pass()) << places << " places, pass " << i;
    stream_of_weights_.reset();
  }
}

TEST_F(CudaStreamed, AFailingCopyIsOneErrorAndTheNextPassIsRight) {
  auto left = std::make_shared<std::atomic<int>>(1000);
  WeightStreamCalls calls;
  calls.copy = [left, copy = calls.copy](void* to, const void* from, std::size_t bytes,
                                         cudaStream_t stream) {
    return (*left)-- == 0 ? cudaErrorInvalidValue : copy(to, from, bytes, stream);
  };
  make(std::move(calls));
  EXPECT_TRUE(pass());
  for (const int after : {0, 1, 2, 3, 4}) {
    *left = after;
    try {
      pass();
      ADD_FAILURE() << "no error after " << after << " copies";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("copying a streamed layer to the GPU"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
    EXPECT_TRUE(pass()) << "after a failure at copy " << after;
  }
}

/// Locks so many chunks and no more.
PinnedMemory chunks_until(int most, std::shared_ptr<std::atomic<int>> held) {
  PinnedMemory memory = cuda::pinned_memory();
  return {[=, lock = memory.lock](std::size_t bytes) {
            if (*held == most) throw_failure("planted");
            ++*held;
            return lock(bytes);
          },
          [=, unlock = memory.unlock](std::byte* freed, std::size_t bytes) {
            --*held;
            unlock(freed, bytes);
          }};
}

TEST_F(CudaStreamed, MemoryThatIsRefusedHalfWayIsNamed) {
  const auto held = std::make_shared<std::atomic<int>>(0);
  WeightStreamCalls calls;
  calls.memory = chunks_until(2, held);
  try {
    make(std::move(calls));
    FAIL() << "three chunks were had";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("128 MiB that could be had (planted)"), std::string::npos) << text;
    EXPECT_NE(text.find("--gpu-layers"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  stream_of_weights_.reset();
  EXPECT_EQ(*held, 0);
}

TEST_F(CudaStreamed, WhatWasLockedInVainIsFreed) {
  const auto held = std::make_shared<std::atomic<int>>(0);
  {
    PinnedChunks chunks(chunks_until(1000, held));
    const auto pieces = chunks.take(chunk + 100);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].size(), chunk);
    EXPECT_EQ(chunks.take(50).front().data(), pieces[1].data() + 100);
    chunks.finish();
    EXPECT_EQ(*held, 2);
  }
  EXPECT_EQ(*held, 0);
}

}  // namespace coppice::cuda_weight_stream_test

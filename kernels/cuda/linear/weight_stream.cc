#include "kernels/cuda/linear/weight_stream.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

constexpr const char* purpose = "streamed weights";

}  // namespace

CudaWeightStream::CudaWeightStream(std::int32_t places, Allocate allocate, cudaStream_t stream,
                                   bool copies, WeightStreamCalls calls)
    : RingStream(places),
      allocate_(std::move(allocate)),
      stream_(stream),
      copies_(copies),
      calls_(std::move(calls)),
      chunks_(calls_.memory) {
  if (!copies_) return;
  check(cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking), "making a stream");
}

CudaWeightStream::~CudaWeightStream() {
  if (copy_stream_ == nullptr) return;
  // Whoever uses the streams next hears of their errors.
  (void)cudaStreamSynchronize(copy_stream_);
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(copy_stream_);
}

void CudaWeightStream::take_block(std::size_t bytes) {
  if (copies_) blocks_.push_back(chunks_.take(bytes));
}

void CudaWeightStream::store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) {
  if (!copies_) return;
  const char* next = from.as<char>();
  std::size_t left = from.bytes();
  for (const std::span<std::byte> piece : blocks_[static_cast<std::size_t>(visit)]) {
    const std::size_t skipped = std::min(offset, piece.size());
    offset -= skipped;
    const std::size_t some = std::min(left, piece.size() - skipped);
    if (some == 0) continue;
    check(cudaMemcpyAsync(piece.data() + skipped, next, some, cudaMemcpyDeviceToHost, stream_),
          "copying weights to the host");
    next += some;
    left -= some;
  }
  check(cudaStreamSynchronize(stream_), "copying weights to the host");
}

DeviceBuffer CudaWeightStream::take_places(std::int32_t places, std::size_t bytes_each) {
  DeviceBuffer ring = allocate_(static_cast<std::size_t>(places) * bytes_each, purpose);
  if (!copies_) return ring;
  chunks_.finish();
  places_ = std::vector<Place>(static_cast<std::size_t>(places));
  for (const Place& place : places_) place.free.record(stream_);  // once the memory is cleared
  return ring;
}

void CudaWeightStream::copy(std::int32_t visit, std::int32_t place, void* to) {
  if (!copies_) return;
  const Place& events = places_[static_cast<std::size_t>(place)];
  events.free.hold(copy_stream_);
  auto* next = static_cast<std::byte*>(to);
  for (const std::span<std::byte> piece : blocks_[static_cast<std::size_t>(visit)]) {
    check(calls_.copy(next, piece.data(), piece.size(), copy_stream_),
          "copying a streamed layer to the GPU");
    next += piece.size();
  }
  events.copied.record(copy_stream_);
}

void CudaWeightStream::wait_for(std::int32_t place) {
  if (!copies_) return;
  places_[static_cast<std::size_t>(place)].copied.hold(stream_);
  queue_gate(stream_);
}

void CudaWeightStream::free_place(std::int32_t place, void*) {
  if (copies_) places_[static_cast<std::size_t>(place)].free.record(stream_);
}

}  // namespace coppice::cuda

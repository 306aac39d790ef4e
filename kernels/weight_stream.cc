#include "kernels/weight_stream.h"

#include <algorithm>

#include "base/error.h"

namespace coppice {

RingStream::RingStream(std::int32_t places) : places_(places) {
  if (places < 1) throw_failure(cat("weight stream: a ring of ", places, " places"));
}

std::size_t RingStream::block_bytes(std::span<LinearWeights* const> weights) {
  std::size_t bytes = 0;
  for (LinearWeights* const one : weights) {
    for (const DeviceBuffer* const memory : one->memory()) {
      bytes += (memory->bytes() + alignment - 1) / alignment * alignment;
    }
  }
  return bytes;
}

void RingStream::add(std::span<LinearWeights* const> weights) {
  if (ring_.data() != nullptr) throw_failure("weight stream: it has begun, and takes no more");
  Visit visit;
  visit.bytes = block_bytes(weights);
  take_block(visit.bytes);
  const std::int32_t index = visits();
  std::size_t offset = 0;
  for (LinearWeights* const one : weights) {
    for (DeviceBuffer* const memory : one->memory()) {
      visit.weights.push_back({memory, offset, memory->bytes()});
      store(index, offset, *memory);
      offset += (memory->bytes() + alignment - 1) / alignment * alignment;
    }
  }
  visits_.push_back(std::move(visit));
  point(index, nullptr);
}

void RingStream::begin() {
  if (visits_.empty()) return;
  for (const Visit& visit : visits_) place_bytes_ = std::max(place_bytes_, visit.bytes);
  places_ = std::min(places_, visits());
  ring_ = take_places(places_, place_bytes_);
  begin_copies();
}

void RingStream::enter(std::int32_t visit) {
  if (visit < 0 || visit >= visits() || ring_.data() == nullptr) {
    throw_failure(cat("weight stream: visit ", visit, " of ", visits(),
                      ring_.data() == nullptr ? ", before it has begun" : ""));
  }
  // A pass that failed left before its last visit: what it did not come to is passed over.
  if (entered_) finish_use();
  while (visit_of(use_) != visit) {
    begin_copies();
    finish_use();
  }
  begin_copies();
  const std::int32_t place = place_of(use_);
  wait_for(place);
  point(visit, memory_of(place));
  entered_ = true;
}

void RingStream::leave(std::int32_t visit) {
  if (!entered_ || visit_of(use_) != visit) {
    throw_failure(cat("weight stream: visit ", visit, " leaves, but is not there"));
  }
  finish_use();
  begin_copies();
}

void RingStream::finish_use() {
  const std::int32_t place = place_of(use_);
  entered_ = false;
  ++use_;
  free_place(place, memory_of(place));
}

void RingStream::begin_copies() {
  for (; copied_ < use_ + places_; ++copied_) {
    const std::int32_t place = place_of(copied_);
    copy(visit_of(copied_), place, memory_of(place));
  }
}

// Null: they are nowhere on the device.
void RingStream::point(std::int32_t visit, const void* block) {
  const auto nothing = [](void*, void*) {};  // the ring owns it
  for (const Weights& one : visits_[static_cast<std::size_t>(visit)].weights) {
    void* const at =
        block == nullptr
            ? nullptr
            : const_cast<std::byte*>(static_cast<const std::byte*>(block)) + one.offset;
    *one.memory = DeviceBuffer(at, one.bytes, nothing, nullptr);
  }
}

}  // namespace coppice

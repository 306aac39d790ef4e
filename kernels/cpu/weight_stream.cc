#include "kernels/cpu/weight_stream.h"

#include <cstring>

#include "kernels/cpu/memory.h"

namespace coppice::cpu {
namespace {

/// Of f32, bf16 and f16, and of the scales of blocks: NaN.
constexpr int poison = 0xff;

}  // namespace

void CpuWeightStream::take_block(std::size_t bytes) {
  blocks_.push_back(allocate(bytes, "streamed weights"));
}

void CpuWeightStream::store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) {
  std::memcpy(blocks_[static_cast<std::size_t>(visit)].as<std::byte>() + offset, from.data(),
              from.bytes());
}

DeviceBuffer CpuWeightStream::take_places(std::int32_t places, std::size_t bytes_each) {
  place_bytes_ = bytes_each;
  places_.resize(static_cast<std::size_t>(places));
  DeviceBuffer ring = allocate(static_cast<std::size_t>(places) * bytes_each, "streamed weights");
  return ring;
}

// The copy itself comes as late as it may, in wait_for().
void CpuWeightStream::copy(std::int32_t visit, std::int32_t place, void* to) {
  std::memset(to, poison, place_bytes_);
  places_[static_cast<std::size_t>(place)] = {to, visit};
}

void CpuWeightStream::wait_for(std::int32_t place) {
  const Place& copied = places_[static_cast<std::size_t>(place)];
  const DeviceBuffer& block = blocks_[static_cast<std::size_t>(copied.visit)];
  std::memcpy(copied.memory, block.data(), block.bytes());
}

void CpuWeightStream::free_place(std::int32_t, void* memory) {
  std::memset(memory, poison, place_bytes_);
}

}  // namespace coppice::cpu

// The CPU's layers that are copied before use. Nothing is gained by it where all memory is the
// host's: it is there so that the order of copies can be tested without a GPU. A place holds NaN
// as long as no visit may use it: before one enters, after it has left, and if a copy to it begins
// too early.
#pragma once

#include "kernels/weight_stream.h"

namespace coppice::cpu {

class CpuWeightStream : public RingStream {
 public:
  using RingStream::RingStream;

 protected:
  void take_block(std::size_t bytes) override;
  void store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) override;
  DeviceBuffer take_places(std::int32_t places, std::size_t bytes_each) override;
  void copy(std::int32_t visit, std::int32_t place, void* to) override;
  void wait_for(std::int32_t place) override;
  void free_place(std::int32_t place, void* memory) override;

 private:
  struct Place {
    void* memory = nullptr;
    std::int32_t visit = -1;  ///< whose copy has begun
  };
  std::vector<DeviceBuffer> blocks_;  ///< by visit
  std::vector<Place> places_;
  std::size_t place_bytes_ = 0;
};

}  // namespace coppice::cpu

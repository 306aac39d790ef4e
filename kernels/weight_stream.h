// Layers that lie in host memory and visit the device, one after another, in every pass.
//
// The layers of a model that do not fit the device are its visits: they are numbered in the order
// in which every pass uses them. On the device is a ring of places. A visit is copied whole into
// the next place as soon as the visit that was there has left, so copies run ahead of the pass by
// as many visits as there are places, also from one pass to the next and while other passes run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace coppice {

/// The order of copies, the same on every device. Devices copy, wait and give back.
///
/// (1) Use u of the stream is visit u % visits() in place u % places.
/// (2) Copies are begun in the order of uses, none before use u - places has left.
/// (3) From enter() on the visit's weights point into its place, which is theirs until leave().
/// A copy that could not be begun is tried again by the next call that needs it.
class RingStream : public WeightStream {
 public:
  /// Bytes that a visit of these weights takes in a place, and on the host.
  static std::size_t block_bytes(std::span<LinearWeights* const> weights);

  explicit RingStream(std::int32_t places);

  void add(std::span<LinearWeights* const> weights) final;
  void begin() final;
  void enter(std::int32_t visit) final;
  void leave(std::int32_t visit) final;

  std::int32_t visits() const { return static_cast<std::int32_t>(visits_.size()); }

 protected:
  /// Weights begin at multiples of this within a block.
  static constexpr std::size_t alignment = 256;

  /// Takes host memory for a further visit, the block of so many bytes.
  virtual void take_block(std::size_t bytes) = 0;
  /// Copies from the device to the visit's block; has finished when it returns.
  virtual void store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) = 0;
  /// Takes the places' memory, empty and free.
  virtual DeviceBuffer take_places(std::int32_t places, std::size_t bytes_each) = 0;
  /// Begins to copy a visit's block, once the place is free.
  virtual void copy(std::int32_t visit, std::int32_t place, void* to) = 0;
  /// Has the device wait, before what is queued next, until the copy to the place has ended.
  virtual void wait_for(std::int32_t place) = 0;
  /// Frees the place once what was queued so far has run.
  virtual void free_place(std::int32_t place, void* memory) = 0;
  std::size_t bytes_of(std::int32_t visit) const {
    return visits_[static_cast<std::size_t>(visit)].bytes;
  }

 private:
  struct Weights {
    DeviceBuffer* memory;
    std::size_t offset;  ///< in the block
    std::size_t bytes;
  };
  struct Visit {
    std::vector<Weights> weights;
    std::size_t bytes = 0;
  };
  void* memory_of(std::int32_t place) const {
    return ring_.as<std::byte>() + static_cast<std::size_t>(place) * place_bytes_;
  }
  std::int32_t visit_of(std::int64_t use) const {
    return static_cast<std::int32_t>(use % visits());
  }
  std::int32_t place_of(std::int64_t use) const { return static_cast<std::int32_t>(use % places_); }
  void point(std::int32_t visit, const void* block);
  void finish_use();
  void begin_copies();

  std::int32_t places_;
  std::size_t place_bytes_ = 0;
  std::vector<Visit> visits_;
  DeviceBuffer ring_;
  std::int64_t use_ = 0;     ///< the one that is entered, or is to be entered next
  std::int64_t copied_ = 0;  ///< uses whose copies have been begun
  bool entered_ = false;
};

}  // namespace coppice

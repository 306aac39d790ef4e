// The CPU's layers that memory does not hold: they lie packed in a file and are read before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/files.h"
#include "kernels/weight_stream.h"

namespace coppice::cpu {

/// Every visit is read whole into its place. As soon as the place is free, a visit or two ahead,
/// the system is told that it will be read, so that the disk works while others are computed.
/// Nothing is mapped: a disk that fails is an error of the pass, and not of the process.
class FileWeightStream : public RingStream {
 public:
  /// Makes the folder if it is missing. The file has no name there: nothing is left of it, however
  /// the process ends. Throws Error(failure) where it cannot be written.
  FileWeightStream(std::int32_t places, const std::filesystem::path& folder);

 protected:
  void take_block(std::size_t bytes) override;
  void store(std::int32_t visit, std::size_t offset, const DeviceBuffer& from) override;
  DeviceBuffer take_places(std::int32_t places, std::size_t bytes_each) override;
  void copy(std::int32_t visit, std::int32_t place, void* to) override;
  void wait_for(std::int32_t place) override;
  void free_place(std::int32_t place, void* memory) override;

  /// Tells the system that these bytes will be read soon.
  virtual void expect(std::uint64_t offset, std::uint64_t bytes);
  /// Reads them. Throws LostModel where the file does not hold them any more.
  virtual void read(std::uint64_t offset, std::span<std::byte> to);

 private:
  struct Place {
    void* memory = nullptr;
    std::int32_t visit = -1;  ///< that is to be read into it
  };
  std::filesystem::path folder_;
  FileHandle file_;
  std::vector<std::uint64_t> begin_;  ///< by visit
  std::uint64_t end_ = 0;
  std::vector<Place> places_;
};

}  // namespace coppice::cpu

// The inputs of a pass as bytes, for ranks in other processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace coppice {

/// Reused: keeps its memory.
class PassMessage {
 public:
  /// Returns the bytes of a pass and of its epilogue's id (0: none), which hold until the next
  /// call.
  std::span<const std::byte> write(const PassInputs& inputs, std::uint64_t epilogue);
  /// Takes them in, so that inputs() and epilogue() are the sender's. Throws Error(failure) for
  /// bytes that write() would not have returned.
  void read(std::span<const std::byte> bytes);

  PassInputs inputs() const;
  std::uint64_t epilogue() const { return epilogue_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<KvSlot> write_slots_, slots_;
  std::vector<KvSegment> segments_;
  AttentionDivision division_ = AttentionDivision::flatten;
  std::uint64_t epilogue_ = 0;
};

}  // namespace coppice

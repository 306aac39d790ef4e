// Blocks of a recording as they are read: a position's columns, and what must hold of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "study/files/bytes.h"
#include "study/replay/recording.h"

namespace coppice::study {

inline constexpr std::int32_t most_recorded_top_k = 1024, most_recorded_nodes = 1025;

/// FNV-1a of 32 bits.
std::uint32_t recording_checksum(std::string_view bytes);

/// The payload of one block. What is wrong with it is Error(failure) and said with its place.
class BlockReader {
 public:
  /// `where` names the file and must outlive this; `place`: the block's byte in it.
  BlockReader(const std::string& where, std::size_t place, std::string_view payload)
      : where_(where), place_(place), bytes_(payload) {}

  [[noreturn]] void refuse(const char* what) const;
  void require(bool good, const char* what) const {
    if (!good) refuse(what);
  }
  void require_checksum(std::uint32_t sum) const {
    require(recording_checksum(bytes_) == sum, "the block's checksum does not fit it");
  }

  template <typename T>
  T take() {
    require(left() >= sizeof(T), "the block is shorter than it says");
    ByteReader in(bytes_);
    bytes_.remove_prefix(sizeof(T));
    return in.take<T>();
  }
  template <typename T>
  void take_all(std::size_t count, std::vector<T>& values) {
    require(left() / sizeof(T) >= count, "the block is shorter than it says");
    values.resize(count);
    if constexpr (std::endian::native == std::endian::little) {
      if (count > 0) std::memcpy(values.data(), bytes_.data(), count * sizeof(T));
    } else {
      ByteReader in(bytes_);
      for (T& value : values) value = in.take<T>();
    }
    bytes_.remove_prefix(count * sizeof(T));
  }
  std::size_t left() const { return bytes_.size(); }

 private:
  const std::string& where_;
  std::size_t place_;
  std::string_view bytes_;
};

/// Reads and checks a position, and makes what is not in the file. `next`: the text's token there.
RecordedPosition read_position(BlockReader in, std::int64_t vocab_size, TokenId next);

}  // namespace coppice::study

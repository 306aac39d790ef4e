// Numbers as bytes, whatever the machine's own order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace coppice::study {

/// Appends an integer, an enum or an f32.
template <typename T>
void put(std::string& out, T value) {
  if constexpr (std::is_same_v<T, float>) {
    put(out, std::bit_cast<std::uint32_t>(value));
  } else if constexpr (std::is_enum_v<T>) {
    put(out, static_cast<std::underlying_type_t<T>>(value));
  } else {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof bits; ++i) {
      out.push_back(static_cast<char>(static_cast<std::uint64_t>(bits) >> (8 * i) & 0xff));
    }
  }
}

/// Reads numbers off the front of a text. What is not there any more is read as 0.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    if constexpr (std::is_same_v<T, float>) {
      return std::bit_cast<float>(take<std::uint32_t>());
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<T>(take<std::underlying_type_t<T>>());
    } else {
      if (bytes_.size() < sizeof(T)) {
        bytes_ = {};
        return T{0};
      }
      std::uint64_t bits = 0;
      for (std::size_t i = 0; i < sizeof(T); ++i) {
        bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
      }
      bytes_.remove_prefix(sizeof(T));
      return static_cast<T>(bits);
    }
  }

  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

}  // namespace coppice::study

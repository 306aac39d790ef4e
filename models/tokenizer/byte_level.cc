#include "models/tokenizer/byte_level.h"

#include "models/tokenizer/code_points.h"

namespace coppice::tokenization {

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  std::int32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const std::int32_t code = printable ? byte : next++;
    append_utf8(code, characters_[static_cast<std::size_t>(byte)]);
    byte_of_[static_cast<std::size_t>(code)] = byte;
  }
}

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string ByteAlphabet::spelt(std::string_view bytes) const {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) text += of(static_cast<unsigned char>(byte));
  return text;
}

std::string ByteAlphabet::bytes_of(std::string_view piece) const {
  std::string bytes;
  for (std::string_view rest = piece; !rest.empty();) {
    const std::int32_t code = take_code_point(rest);
    const int byte = code < 0x200 ? byte_of_[static_cast<std::size_t>(code)] : -1;
    if (byte < 0) return std::string(piece);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace coppice::tokenization

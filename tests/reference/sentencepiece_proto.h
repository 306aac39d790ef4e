// Small tokenizer.model files.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "models/tokenizer/sentencepiece_file.h"

namespace coppice::testing {

/// A sentencepiece model made by hand.
struct SentencepieceProto {
  static std::string varint(std::uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    return out + static_cast<char>(value);
  }
  static std::string bytes_field(int number, const std::string& bytes) {
    return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
  }
  static std::string number_field(int number, std::uint64_t value) {
    return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
  }
  static std::string score_field(float score) {
    std::string out = varint(2 << 3 | 5) + "1234";
    std::memcpy(out.data() + 1, &score, 4);
    return out;
  }
  SentencepieceProto& piece(const std::string& text, PieceKind kind, float score = -1.0f) {
    pieces += bytes_field(1, bytes_field(1, text) + score_field(score) +
                                 number_field(3, static_cast<std::uint64_t>(kind)));
    return *this;
  }
  std::string file() const {
    return pieces +
           bytes_field(2, number_field(3, static_cast<std::uint64_t>(type)) +
                              (byte_fallback ? number_field(35, 1) : "")) +
           bytes_field(3, normalizer);
  }
  std::string pieces;
  std::string normalizer = bytes_field(1, "identity") + number_field(4, 0);
  int type = 2;  ///< 1: Unigram, 2: BPE, 3: words, 4: characters
  bool byte_fallback = false;
};

}  // namespace coppice::testing

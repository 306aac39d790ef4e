#include "models/tokenizer/sentencepiece_file.h"

#include <bit>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "models/tokenizer/character_map.h"
#include "models/tokenizer/vocabulary.h"

namespace coppice {
namespace {

/// One field of a protobuf message.
struct Field {
  std::uint64_t number = 0;
  int wire = 0;             ///< 0: varint, 1: 64 bits, 2: bytes, 5: 32 bits
  std::uint64_t value = 0;  ///< of varint and fixed fields
  std::string_view bytes;
};

class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  bool next(Field& field) {
    if (bytes_.empty()) return false;
    const std::uint64_t key = varint();
    field = {};
    field.number = key >> 3;
    field.wire = static_cast<int>(key & 7);
    if (field.number == 0) broken();
    switch (field.wire) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2: {
        const std::uint64_t length = varint();
        if (length > bytes_.size()) broken();
        field.bytes = bytes_.substr(0, length);
        bytes_.remove_prefix(length);
        break;
      }
      case 5:
        field.value = fixed(4);
        break;
      default:
        broken();
    }
    return true;
  }

 private:
  [[noreturn]] void broken() const {
    throw_failure(cat(file_, ": not a sentencepiece model, or truncated; fetch the file again"));
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (bytes_.empty()) broken();
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    broken();
  }
  std::uint64_t fixed(std::size_t width) {
    if (bytes_.size() < width) broken();
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(bytes_[i]);
    }
    bytes_.remove_prefix(width);
    return value;
  }

  std::string_view bytes_;
  const std::string& file_;
};

class ModelReader {
 public:
  ModelReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  SentencepieceFile read() {
    bool trainer = false, normalizer = false;
    WireReader reader(bytes_, file_);
    for (Field field; reader.next(field);) {
      if (field.number >= 1 && field.number <= 5 && field.wire != 2) {
        refuse("a field has the wrong type");
      }
      if (field.number == 1) read_piece(field.bytes);
      if (field.number == 2) {
        trainer = true;
        read_trainer(field.bytes);
      }
      if (field.number == 3) {
        normalizer = true;
        read_normalizer(field.bytes);
      }
    }
    if (model_.pieces.empty()) refuse("it has no pieces");
    if (unknowns_ != 1) refuse(cat("it has ", unknowns_, " unknown pieces, not one"));
    if (!trainer || !normalizer) refuse("its settings are missing");
    return std::move(model_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw_failure(cat(file_, ": corrupt: ", what, "; fetch the file again"));
  }

  void read_piece(std::string_view bytes) {
    SentencepieceFile::Piece piece;
    WireReader reader(bytes, file_);
    for (Field field; reader.next(field);) {
      if (field.number == 1 && field.wire == 2) piece.text = field.bytes;
      if (field.number == 2 && field.wire == 5) {
        piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
        if (!std::isfinite(piece.score)) {
          refuse(cat("piece ", model_.pieces.size(), " has a score that is not finite"));
        }
      }
      if (field.number == 3 && field.wire == 0) {
        if (field.value < 1 || field.value > 6) {
          refuse(cat("piece ", model_.pieces.size(), " is of the unknown kind ", field.value));
        }
        piece.kind = static_cast<PieceKind>(field.value);
      }
    }
    if (piece.text.empty() || piece.text.find('\0') != piece.text.npos) {
      refuse(cat("piece ", model_.pieces.size(), " is empty or holds a NUL byte"));
    }
    if (piece.text.size() > tokenization::longest_sought) {
      refuse(cat("piece ", model_.pieces.size(), " has ", piece.text.size(), " bytes, more than ",
                 tokenization::longest_sought));
    }
    if (!texts_.insert(piece.text).second) {
      refuse(cat("piece ", quote(piece.text), " appears twice"));
    }
    if (piece.kind == PieceKind::unknown) ++unknowns_;
    model_.pieces.push_back(std::move(piece));
  }

  void read_trainer(std::string_view bytes) {
    WireReader reader(bytes, file_);
    for (Field field; reader.next(field);) {
      constexpr std::uint64_t pairs = 2;  // as sentencepiece numbers its kinds of models
      if (field.number == 3 && field.wire == 0) model_.merges_pairs = field.value == pairs;
      if (field.number == 35 && field.wire == 0) model_.byte_fallback = field.value != 0;
      if (field.number == 44 && field.wire == 2) {
        if (field.bytes.size() > tokenization::longest_sought) {
          refuse(cat("the unknown piece is shown as ", field.bytes.size(), " bytes"));
        }
        model_.unknown_surface = field.bytes;
      }
    }
  }

  void read_normalizer(std::string_view bytes) {
    WireReader reader(bytes, file_);
    for (Field field; reader.next(field);) {
      if (field.number == 2 && field.wire == 2 &&
          !tokenization::CharacterMap::is_sound(field.bytes)) {
        refuse("its character map is damaged");
      }
      if (field.number == 2 && field.wire == 2) model_.rewrites = !field.bytes.empty();
      if (field.number == 3 && field.wire == 0) model_.add_dummy_prefix = field.value != 0;
      if (field.number == 4 && field.wire == 0) {
        model_.remove_extra_whitespaces = field.value != 0;
      }
    }
  }

  std::string_view bytes_;
  const std::string& file_;
  SentencepieceFile model_;
  std::unordered_set<std::string> texts_;
  int unknowns_ = 0;
};

}  // namespace

const char* name_of(PieceKind kind) {
  switch (kind) {
    case PieceKind::normal:
      return "normal";
    case PieceKind::unknown:
      return "unknown";
    case PieceKind::control:
      return "control";
    case PieceKind::user_defined:
      return "user-defined";
    case PieceKind::unused:
      return "unused";
    case PieceKind::byte:
      return "byte";
  }
  return "?";
}

SentencepieceFile read_sentencepiece(std::string_view bytes, const std::string& file) {
  return ModelReader(bytes, file).read();
}

}  // namespace coppice

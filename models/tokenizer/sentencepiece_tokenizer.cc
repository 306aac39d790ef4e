#include "models/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "base/utf8.h"
#include "models/tokenizer/byte_pieces.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/sentencepiece_file.h"

namespace coppice {
namespace {

/// The word-boundary mark, U+2581.
constexpr std::string_view boundary = "\xE2\x96\x81";

std::string with_spaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    if (piece.substr(0, boundary.size()) == boundary) {
      out += ' ';
      piece.remove_prefix(boundary.size());
    } else {
      out += piece.front();
      piece.remove_prefix(1);
    }
  }
  return out;
}

/// What tokenizer_config.json asks for around a text. As transformers 5 does, it is read for a
/// tokenizer.model alone: a tokenizer.json says so itself.
struct Frame {
  bool bos = true;
  bool eos = false;
};

Frame read_frame(const std::filesystem::path& file) {
  Frame frame;
  if (!is_there(file)) return frame;
  const JsonObject config = read_json_object(file, largest_tokenizer_file);
  const auto read = [&](const char* key, bool& value) {
    const auto found = config->find(key);
    if (found == config->end()) return;
    if (!found->is_boolean() && !found->is_null()) {
      throw_failure(cat(file.string(), ": ", key, " ", shown(*found),
                        " is neither true nor false; correct it"));
    }
    value = found->is_boolean() && found->get<bool>();
  };
  read("add_bos_token", frame.bos);
  read("add_eos_token", frame.eos);
  return frame;
}

class SentencepieceTokenizer final : public Tokenizer {
 public:
  explicit SentencepieceTokenizer(const std::filesystem::path& path) {
    const std::string text = read_file(path, "", largest_tokenizer_file);
    SentencepieceFile model = read_sentencepiece(text, path.string());
    std::string reason;
    try {
      const auto loaded = processor_.LoadFromSerializedProto(text);
      if (!loaded.ok()) reason = loaded.ToString();
    } catch (const std::exception& error) {
      reason = error.what();
    }
    if (!reason.empty() || processor_.GetPieceSize() != static_cast<int>(model.pieces.size())) {
      throw_failure(cat(path.string(), ": sentencepiece cannot load it: ", quote(reason),
                        "; fetch the file again"));
    }
    for (const auto& piece : model.pieces) {
      switch (piece.kind) {
        case PieceKind::control:
          control_.push_back(static_cast<TokenId>(bytes_.size()));
          bytes_.emplace_back();
          break;
        case PieceKind::unknown:
          bytes_.push_back(model.unknown_surface);
          break;
        case PieceKind::byte:
          if (byte_value(piece.text) < 0) {
            throw_failure(cat(path.string(), ": corrupt: ", quote(piece.text),
                              " is no byte piece; fetch the file again"));
          }
          bytes_.emplace_back(1, static_cast<char>(byte_value(piece.text)));
          break;
        default:
          bytes_.push_back(with_spaces(piece.text));
      }
    }
    for (const auto& piece : model.pieces) {
      // As text may spell it: with the mark itself, which is longer than a space.
      const bool spelt = piece.kind == PieceKind::normal || piece.kind == PieceKind::control ||
                         piece.kind == PieceKind::user_defined;
      if (spelt) longest_ = std::max<std::uint64_t>(longest_, piece.text.size());
    }
    keeps_all_text_ = model.byte_fallback && !model.rewrites && !model.remove_extra_whitespaces;
    drops_first_space_ = model.add_dummy_prefix || model.remove_extra_whitespaces;
    pieces_ = std::move(model.pieces);
    choose_seam();
    frame_ = read_frame(path.parent_path() / "tokenizer_config.json");
  }

  std::string_view file_kind() const override { return "tokenizer.model"; }
  std::int32_t pieces() const override { return static_cast<std::int32_t>(pieces_.size()); }

  std::string_view piece(TokenId token) const override {
    return is_known(token) ? std::string_view(at(token).text) : std::string_view();
  }

  std::vector<TokenId> encode(std::span<const TextPart> parts, TokenId before) const override {
    std::vector<TokenId> tokens;
    std::string text;  // since the last control piece
    bool continues = before != at_start && added_text(before).empty();
    for (const TextPart& part : parts) {
      std::string_view rest = part.text;
      while (!part.typed && !rest.empty()) {
        const auto [begin, control] = first_control(rest);
        if (control < 0) break;
        text += rest.substr(0, begin);
        append(text, continues, tokens);
        continues = false;
        text.clear();
        tokens.push_back(control);
        rest.remove_prefix(begin + at(control).text.size());
      }
      text += rest;
    }
    append(text, continues, tokens);
    return tokens;
  }

  std::vector<TokenId> framed(std::vector<TokenId> tokens, TokenId bos) const override {
    if (frame_.bos && bos >= 0) tokens.insert(tokens.begin(), bos);
    if (frame_.eos && processor_.eos_id() >= 0) tokens.push_back(processor_.eos_id());
    return tokens;
  }

  std::uint64_t most_bytes(std::uint64_t tokens) const override {
    return bytes_at_most(tokens, longest_, keeps_all_text_);
  }

  std::string bytes_of(TokenId token) const override {
    return is_known(token) ? bytes_[static_cast<std::size_t>(token)] : std::string();
  }

  std::string_view added_text(TokenId token) const override {
    return is_known(token) && at(token).kind == PieceKind::control
               ? std::string_view(at(token).text)
               : std::string_view();
  }

  std::string decode(std::span<const TokenId> tokens, bool with_special) const override {
    std::string text;
    bool first = drops_first_space_;
    for (const TokenId token : tokens) {
      if (!is_known(token)) continue;
      if (at(token).kind == PieceKind::control) {
        if (with_special) text += at(token).text;
        continue;
      }
      std::string_view bytes = bytes_[static_cast<std::size_t>(token)];
      const PieceKind kind = at(token).kind;
      const bool marked = kind != PieceKind::unknown && kind != PieceKind::byte &&
                          std::string_view(at(token).text).substr(0, boundary.size()) == boundary;
      if (first && marked) bytes.remove_prefix(1);
      text += bytes;
      first = false;
    }
    return text;
  }

 protected:
  std::string_view kind_of(TokenId token) const override { return name_of(at(token).kind); }

 private:
  bool is_known(TokenId token) const { return token >= 0 && token < pieces(); }
  const SentencepieceFile::Piece& at(TokenId token) const {
    return pieces_[static_cast<std::size_t>(token)];
  }

  struct Found {
    std::size_t begin = 0;
    TokenId control = -1;
  };
  /// The control piece that begins first in the text, the longest of those.
  Found first_control(std::string_view text) const {
    Found found;
    for (const TokenId control : control_) {
      const std::size_t begin = text.find(at(control).text);
      if (begin == text.npos) continue;
      const bool earlier = found.control < 0 || begin < found.begin;
      if (earlier ||
          (begin == found.begin && at(control).text.size() > at(found.control).text.size())) {
        found = {begin, control};
      }
    }
    return found;
  }

  /// Finds a character of the private use areas that no piece holds and the model does not rewrite.
  /// It stands for text before another one: nothing joins it.
  void choose_seam() {
    for (std::int32_t code = 0xEC00; code < 0xF900; ++code) {  // models know the first of the area
      std::string seam;
      tokenization::append_utf8(code, seam);
      const bool used = std::any_of(pieces_.begin(), pieces_.end(), [&](const auto& piece) {
        return piece.text.find(seam) != std::string::npos;
      });
      if (used) continue;
      const std::vector<TokenId> alone = after_seam("", seam), doubled = after_seam(seam, seam);
      if (!alone.empty() || doubled.empty()) continue;
      seam_ = std::move(seam);
      return;
    }
  }

  static void check(const sentencepiece::util::Status& status) {
    if (status.ok()) return;
    throw_failure(cat("sentencepiece cannot encode the text: ", quote(status.ToString())));
  }

  /// Ids of the tokens of `seam` and `text` that hold any of `text`.
  std::vector<TokenId> after_seam(std::string_view text, std::string_view seam) const {
    sentencepiece::ImmutableSentencePieceText encoded;
    check(processor_.Encode(cat(seam, text), encoded.mutable_proto()));
    std::vector<TokenId> ids;
    for (const auto& piece : encoded.pieces()) {
      if (piece.begin() >= seam.size() || piece.end() > seam.size()) {
        ids.push_back(static_cast<TokenId>(piece.id()));
      }
    }
    return ids;
  }

  /// Appends the tokens of a text. `continues`: it goes on with text, so that the library, which
  /// would begin a text with a word mark or drop its leading spaces, is shown something before it.
  void append(std::string_view text, bool continues, std::vector<TokenId>& tokens) const {
    if (text.empty()) return;
    if (!is_valid_utf8(text)) throw_usage("the text is not valid UTF-8; convert it to UTF-8");
    std::vector<int> ids;
    if (continues) {
      ids = after_seam(text, seam_);
    } else {
      check(processor_.Encode(text, &ids));
    }
    if (text.find('\0') != text.npos) {
      // It is one of the tokens, or it was lost.
      const bool kept = std::any_of(ids.begin(), ids.end(), [&](int id) {
        return bytes_[static_cast<std::size_t>(id)].find('\0') != std::string::npos;
      });
      if (!kept) throw_usage("the text holds a NUL byte, which this tokenizer cannot represent");
    }
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<SentencepieceFile::Piece> pieces_;
  std::vector<std::string> bytes_;  ///< by piece: what it adds to a text
  std::vector<TokenId> control_;
  std::string seam_;
  Frame frame_;
  bool drops_first_space_ = false;
  std::uint64_t longest_ = 1;    ///< bytes of a piece
  bool keeps_all_text_ = false;  ///< every byte of a text is in one of its tokens
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& file) {
  return std::make_unique<SentencepieceTokenizer>(file);
}

}  // namespace coppice

#include "models/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "models/sentencepiece_file.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

/// The word-boundary mark, U+2581.
constexpr std::string_view boundary = "\xE2\x96\x81";

/// What a byte piece stands for: "<0x0A>" is one byte. -1: not spelt like one.
int byte_value(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

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

[[noreturn]] void no_tokenizer(const fs::path& dir) {
  std::error_code status;
  if (fs::exists(dir / "tokenizer.json", status)) {
    throw_failure(cat(dir.string(),
                      ": has only tokenizer.json; coppice reads tokenizer.model "
                      "(sentencepiece), so give prompts as token ids with --prompt-ids"));
  }
  throw_failure(cat((dir / "tokenizer.model").string(),
                    ": no such file; add it, or give prompts "
                    "as token ids with --prompt-ids"));
}

}  // namespace

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<SentencepieceFile::Piece> pieces;
  std::vector<std::string> bytes;  ///< by piece: what it adds to a text
  TokenId unknown = -1;
  bool drops_first_space = false;
  std::uint64_t longest = 1;    ///< bytes of a piece
  bool keeps_all_text = false;  ///< every byte of a text is in one of its tokens
};

Tokenizer::Tokenizer() : impl_(std::make_unique<Impl>()) {}
Tokenizer::~Tokenizer() = default;

std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& dir) {
  const fs::path path = dir / "tokenizer.model";
  // A vocabulary of a quarter of a million pieces takes 4 MB.
  constexpr std::uintmax_t largest_file = std::uintmax_t{256} << 20;
  if (!is_there(path)) no_tokenizer(dir);
  const std::string text = read_file(path, "", largest_file);
  SentencepieceFile model = read_sentencepiece(text, path.string());

  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  Impl& impl = *tokenizer->impl_;
  std::string reason;
  try {
    const auto loaded = impl.processor.LoadFromSerializedProto(text);
    if (!loaded.ok()) reason = loaded.ToString();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!reason.empty() || impl.processor.GetPieceSize() != static_cast<int>(model.pieces.size())) {
    throw_failure(cat(path.string(), ": sentencepiece cannot load it: ", quote(reason),
                      "; fetch the file again"));
  }
  for (const auto& piece : model.pieces) {
    switch (piece.kind) {
      case PieceKind::control:
        impl.bytes.emplace_back();
        break;
      case PieceKind::unknown:
        impl.unknown = static_cast<TokenId>(impl.bytes.size());
        impl.bytes.push_back(model.unknown_surface);
        break;
      case PieceKind::byte:
        if (byte_value(piece.text) < 0) {
          throw_failure(cat(path.string(), ": corrupt: ", quote(piece.text),
                            " is no byte piece; fetch the file again"));
        }
        impl.bytes.emplace_back(1, static_cast<char>(byte_value(piece.text)));
        break;
      default:
        impl.bytes.push_back(with_spaces(piece.text));
    }
  }
  for (const auto& piece : model.pieces) {
    // As text may spell it: with the mark itself, which is longer than a space.
    if (piece.kind == PieceKind::normal || piece.kind == PieceKind::user_defined) {
      impl.longest = std::max<std::uint64_t>(impl.longest, piece.text.size());
    }
  }
  impl.keeps_all_text = model.byte_fallback && !model.rewrites && !model.remove_extra_whitespaces;
  impl.drops_first_space = model.add_dummy_prefix || model.remove_extra_whitespaces;
  impl.pieces = std::move(model.pieces);
  return tokenizer;
}

std::int32_t Tokenizer::pieces() const { return static_cast<std::int32_t>(impl_->pieces.size()); }

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  if (!is_valid_utf8(text)) {
    throw_usage("the text is not valid UTF-8; convert it to UTF-8");
  }
  std::vector<int> ids;
  if (const auto encoded = impl_->processor.Encode(text, &ids); !encoded.ok()) {
    throw_failure(cat("sentencepiece cannot encode the text: ", quote(encoded.ToString())));
  }
  if (text.find('\0') != text.npos) {
    // It is one of the tokens, or it was lost.
    const bool kept = std::any_of(ids.begin(), ids.end(), [&](int id) {
      return impl_->bytes[static_cast<std::size_t>(id)].find('\0') != std::string::npos;
    });
    if (!kept) throw_usage("the text holds a NUL byte, which this tokenizer cannot represent");
  }
  return {ids.begin(), ids.end()};
}

std::uint64_t Tokenizer::most_bytes(std::uint64_t tokens) const {
  if (impl_->keeps_all_text) return tokens * impl_->longest;
  return std::max<std::uint64_t>(std::uint64_t{1} << 20, tokens * 64);
}

std::string Tokenizer::bytes_of(TokenId token) const {
  const bool known = token >= 0 && token < pieces();
  return known ? impl_->bytes[static_cast<std::size_t>(token)] : std::string();
}

std::string Tokenizer::decode(const std::vector<TokenId>& tokens, bool at_text_start) const {
  std::string text;
  bool first = at_text_start && impl_->drops_first_space;
  for (const TokenId token : tokens) {
    if (token < 0 || token >= pieces()) continue;
    const auto& piece = impl_->pieces[static_cast<std::size_t>(token)];
    std::string_view bytes = impl_->bytes[static_cast<std::size_t>(token)];
    if (piece.kind == PieceKind::control) continue;
    const bool marked = piece.kind != PieceKind::unknown && piece.kind != PieceKind::byte &&
                        std::string_view(piece.text).substr(0, boundary.size()) == boundary;
    if (first && marked) bytes.remove_prefix(1);
    text += bytes;
    first = false;
  }
  return text;
}

void Tokenizer::require_same_pieces(const Tokenizer& other, const std::string& this_name,
                                    const std::string& other_name) const {
  const auto& mine = impl_->pieces;
  const auto& theirs = other.impl_->pieces;
  const std::string remedy = "; draft and target must share a tokenizer";
  for (std::size_t id = 0; id < std::min(mine.size(), theirs.size()); ++id) {
    if (mine[id].text == theirs[id].text && mine[id].kind == theirs[id].kind) continue;
    throw_failure(cat("tokenizers differ: token ", id, " is ", quote(mine[id].text), " (",
                      name_of(mine[id].kind), ") in ", this_name, " and ", quote(theirs[id].text),
                      " (", name_of(theirs[id].kind), ") in ", other_name, remedy));
  }
  if (mine.size() != theirs.size()) {
    throw_failure(cat("tokenizers differ: ", this_name, " has ", mine.size(), " pieces, ",
                      other_name, " has ", theirs.size(), remedy));
  }
}

}  // namespace coppice

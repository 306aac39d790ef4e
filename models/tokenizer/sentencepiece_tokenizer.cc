#include "models/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>
#include <new>
#include <unordered_set>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "models/tokenizer/added_tokens.h"
#include "models/tokenizer/byte_pieces.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/joined_text.h"
#include "models/tokenizer/respelling.h"
#include "models/tokenizer/sentencepiece_file.h"

namespace coppice {
namespace {

using namespace tokenization;

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

/// Fields of a normalizer_spec that are appended to a model: the last one of a field counts. The
/// word mark before a text is put by coppice then. `all`: nor is anything else rewritten.
std::string without_mark(bool all) {
  std::string fields("\x18\x00", 2);                              // add_dummy_prefix
  if (all) fields += std::string("\x12\x00\x20\x00\x28\x01", 6);  // map, spaces, escapes
  return cat("\x1A", static_cast<char>(fields.size()), fields);
}

class SentencepieceTokenizer final : public Tokenizer {
 public:
  SentencepieceTokenizer(std::string bytes, const std::string& name,
                         const TokenizerSettings& settings, std::string_view kind)
      : file_kind_(kind) {
    SentencepieceFile model = read_sentencepiece(bytes, name);
    adapt(settings, model, bytes);
    load(name, bytes, model.pieces.size());
    for (const auto& piece : model.pieces) {
      switch (piece.kind) {
        case PieceKind::control:
          bytes_.emplace_back();
          break;
        case PieceKind::unknown:
          unknown_ = static_cast<TokenId>(bytes_.size());
          bytes_.push_back(model.unknown_surface);
          break;
        case PieceKind::byte:
          if (byte_value(piece.text) < 0) {
            throw_failure(cat(name, ": corrupt: ", quote(piece.text),
                              " is no byte piece; fetch the file again"));
          }
          bytes_.emplace_back(1, static_cast<char>(byte_value(piece.text)));
          break;
        default:
          bytes_.push_back(with_spaces(piece.text));
      }
    }
    pieces_ = std::move(model.pieces);
    add_tokens(name, settings);
    measure(model);
    choose_seam();
    guard();
    if (settings.adds_bos) bos_ = named(settings, "bos_token", processor_.bos_id());
    if (settings.adds_eos) eos_ = named(settings, "eos_token", processor_.eos_id());
  }

  std::string_view file_kind() const override { return file_kind_; }
  std::int32_t pieces() const override { return std::max(vocabulary_pieces(), added_.ids_end()); }
  std::int32_t vocabulary_pieces() const override {
    return static_cast<std::int32_t>(pieces_.size());
  }

  std::string_view piece(TokenId token) const override {
    if (is_piece(token)) return at(token).text;
    const AddedToken* const added = added_.find(token);
    return added != nullptr ? std::string_view(added->content) : std::string_view();
  }

  std::vector<TokenId> encode(std::span<const TextPart> parts, TokenId before) const override {
    const JoinedText joined(parts);
    if (!is_valid_utf8(joined.text)) {
      throw_usage("the text is not valid UTF-8; convert it to UTF-8");
    }
    const auto pass =
        joined.typed.empty() ? AddedTokens::Pass::given : AddedTokens::Pass::given_in_part;
    const auto allowed = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
      return !token.steers || !joined.is_typed(begin, end);
    };
    const AddedToken* const left = is_ordinary(before) ? nullptr : added_.find(before);
    const Start start = before == at_start ? Start::text : left ? Start::added : Start::word;
    const std::size_t taken =
        left != nullptr && left->rstrip ? leading_space(joined.text) : std::size_t{0};
    std::string beside = left != nullptr ? left->content : bytes_of(before);
    if (!is_valid_utf8(beside)) beside.clear();
    std::vector<TokenId> tokens;
    for (const TextStretch& stretch : added_.split(joined.text, pass, allowed, beside)) {
      if (stretch.token >= 0) {
        tokens.push_back(stretch.token);
        continue;
      }
      const std::size_t begin = std::max(stretch.begin, taken);
      if (begin >= stretch.end) continue;
      append_stretch(joined, begin, stretch.end, stretch.begin == 0 ? start : Start::added, tokens);
    }
    return tokens;
  }

  std::vector<TokenId> framed(std::vector<TokenId> tokens) const override {
    if (bos_ >= 0) tokens.insert(tokens.begin(), bos_);
    if (eos_ >= 0) tokens.push_back(eos_);
    return tokens;
  }

  std::uint64_t most_bytes(std::uint64_t tokens) const override {
    return bytes_at_most(tokens, longest_, keeps_all_text_);
  }

  std::string bytes_of(TokenId token) const override {
    const AddedToken* const added = is_ordinary(token) ? nullptr : added_.find(token);
    if (added != nullptr && added->special) return {};
    if (is_piece(token)) return bytes_[static_cast<std::size_t>(token)];
    return added != nullptr ? added->content : std::string();
  }

  std::string_view added_text(TokenId token) const override {
    const AddedToken* const added = is_ordinary(token) ? nullptr : added_.find(token);
    return added != nullptr ? std::string_view(added->content) : std::string_view();
  }

  std::string decode(std::span<const TokenId> tokens, bool with_special) const override {
    std::string text;
    bool first = drops_first_space_;
    for (const TokenId token : tokens) {
      const AddedToken* const added = is_ordinary(token) ? nullptr : added_.find(token);
      if (added != nullptr && added->special) {
        if (with_special) text += added->content;
        continue;
      }
      const std::string bytes = bytes_of(token);
      if (bytes.empty()) continue;
      const bool drops = first && is_piece(token) && is_marked(token);
      text += drops ? std::string_view(bytes).substr(1) : std::string_view(bytes);
      first = false;
    }
    return text;
  }

 protected:
  std::string_view kind_of(TokenId token) const override {
    if (is_piece(token)) return name_of(at(token).kind);
    const AddedToken* const added = added_.find(token);
    return added == nullptr ? "missing" : added->special ? "special" : "added";
  }

 private:
  /// What stands before a stretch of text: nothing, a word that it goes on with, or a token that a
  /// text was cut at.
  enum class Start { text, word, added };

  bool is_piece(TokenId token) const { return token >= 0 && token < vocabulary_pieces(); }
  /// The unknown piece may be spelt, but as a rule stands for text that no piece spells.
  bool is_ordinary(TokenId token) const { return token < 0 || token == unknown_; }
  const SentencepieceFile::Piece& at(TokenId token) const {
    return pieces_[static_cast<std::size_t>(token)];
  }
  bool is_marked(TokenId token) const {
    const PieceKind kind = at(token).kind;
    return kind != PieceKind::unknown && kind != PieceKind::byte &&
           at(token).text.starts_with(boundary);
  }

  /// Has coppice put word marks where the settings say something else than the file.
  void adapt(const TokenizerSettings& settings, SentencepieceFile& model, std::string& bytes) {
    const bool rebuilt = settings.kind == TokenizerClass::llama_tokenizer ||
                         settings.kind == TokenizerClass::gemma_tokenizer;
    if (settings.mark == WordMark::as_file || (!rebuilt && !model.add_dummy_prefix)) return;
    mark_ = settings.mark;
    bytes += without_mark(rebuilt);
    model.add_dummy_prefix = mark_ != WordMark::never;
    if (rebuilt) model.rewrites = model.remove_extra_whitespaces = false;
  }

  void load(const std::string& name, const std::string& bytes, std::size_t pieces) {
    std::string reason;
    try {
      const auto loaded = processor_.LoadFromSerializedProto(bytes);
      if (!loaded.ok()) reason = loaded.ToString();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      reason = error.what();
    }
    if (reason.empty() && processor_.GetPieceSize() == static_cast<int>(pieces)) return;
    throw_failure(
        cat(name, ": sentencepiece cannot load it: ", quote(reason), "; fetch the file again"));
  }

  /// Control pieces and the unknown one are added tokens, and those that other files add. A plain
  /// class gives pieces that are kept free the texts that added_tokens_decoder has for their ids.
  void add_tokens(const std::string& name, const TokenizerSettings& settings) {
    const bool plain = settings.kind == TokenizerClass::backend;
    if (plain) rename(settings);
    std::vector<std::string> texts;
    std::vector<AddedTokenSetting> added;
    for (const SentencepieceFile::Piece& piece : pieces_) {
      const bool special = piece.kind == PieceKind::control || piece.kind == PieceKind::unknown;
      if (special || (piece.kind == PieceKind::user_defined && !plain)) {
        AddedTokenSetting token;
        token.content = piece.text;
        token.id = static_cast<TokenId>(texts.size());
        token.special = special;
        token.where = name;
        added.push_back(std::move(token));
      }
      texts.push_back(piece.text);
    }
    added.insert(added.end(), settings.added.begin(), settings.added.end());
    added_ = AddedTokens(added, Vocabulary(texts), Normalizers(), name);
  }

  void rename(const TokenizerSettings& settings) {
    if (std::none_of(settings.added.begin(), settings.added.end(),
                     [](const AddedTokenSetting& token) { return token.id.has_value(); })) {
      return;
    }
    std::unordered_set<std::string> texts;
    for (const SentencepieceFile::Piece& piece : pieces_) texts.insert(piece.text);
    for (const AddedTokenSetting& token : settings.added) {
      if (!token.id || !is_piece(*token.id) || token.content.empty()) continue;
      SentencepieceFile::Piece& piece = pieces_[static_cast<std::size_t>(*token.id)];
      const bool is_free = piece.kind == PieceKind::control || piece.kind == PieceKind::unused ||
                           piece.kind == PieceKind::user_defined;
      if (!is_free || texts.contains(token.content)) continue;
      texts.erase(piece.text);
      texts.insert(token.content);
      piece.text = token.content;
      piece.kind = PieceKind::control;
      bytes_[static_cast<std::size_t>(*token.id)] = token.content;
    }
  }

  TokenId named(const TokenizerSettings& settings, const char* name, TokenId otherwise) const {
    const auto& nulled = settings.nulled;
    if (std::find(nulled.begin(), nulled.end(), name) != nulled.end()) return -1;
    const std::string* const text = settings.find(name);
    return text == nullptr ? otherwise : added_.id(*text);
  }

  void measure(const SentencepieceFile& model) {
    keeps_all_text_ = model.byte_fallback && !model.rewrites && !model.remove_extra_whitespaces;
    for (const auto& piece : pieces_) {
      // As text may spell it: with the mark itself, which is longer than a space.
      const bool spelt = piece.kind == PieceKind::normal || piece.kind == PieceKind::control ||
                         piece.kind == PieceKind::user_defined;
      if (spelt) longest_ = std::max<std::uint64_t>(longest_, piece.text.size());
    }
    for (const AddedToken& token : added_.tokens()) {
      longest_ = std::max<std::uint64_t>(longest_, token.content.size());
      if (token.lstrip || token.rstrip) keeps_all_text_ = false;
    }
    trims_ = model.remove_extra_whitespaces;
    drops_first_space_ = model.add_dummy_prefix || model.remove_extra_whitespaces;
  }

  /// Finds a character of the private use areas that no piece holds and the model does not rewrite.
  /// It stands for text before another one: nothing joins it.
  void choose_seam() {
    constexpr std::int32_t first_seam = 0xEC00, seams_end = 0xF900;  // models know the first ones
    std::unordered_set<std::int32_t> used;
    for (const auto& piece : pieces_) {
      if (!is_valid_utf8(piece.text)) continue;  // found in no text
      for (std::string_view rest = piece.text; !rest.empty();) {
        const std::int32_t code = take_code_point(rest);
        if (code >= first_seam && code < seams_end) used.insert(code);
      }
    }
    for (std::int32_t code = first_seam; code < seams_end; ++code) {
      if (used.contains(code)) continue;
      std::string seam;
      tokenization::append_utf8(code, seam);
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

  /// A token of the library's and the bytes that it was made of: none, as a rule, for a word mark
  /// that the library puts, and for all byte pieces of a character but the last.
  struct Found {
    TokenId id = -1;
    std::size_t begin = 0, end = 0;
  };

  /// Tokens that hold any of `text` behind its first `seam` bytes.
  std::vector<Found> found_behind(std::size_t seam, const std::string& text) const {
    sentencepiece::ImmutableSentencePieceText encoded;
    check(processor_.Encode(text, encoded.mutable_proto()));
    std::vector<Found> found;
    for (const auto& piece : encoded.pieces()) {
      if (piece.begin() >= seam || piece.end() > seam) {
        found.push_back({static_cast<TokenId>(piece.id()), piece.begin(), piece.end()});
      }
    }
    return found;
  }

  std::vector<TokenId> after_seam(std::string_view text, std::string_view seam) const {
    std::vector<TokenId> ids;
    for (const Found& found : found_behind(seam.size(), cat(seam, text))) ids.push_back(found.id);
    return ids;
  }

  /// Typed text is spelt in other pieces than those that may steer: control pieces, tokens that
  /// other files add, and user-defined ones, which in some files are marks of roles.
  void guard() {
    std::vector<std::string> texts;
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < vocabulary_pieces(); ++id) {
      const PieceKind kind = at(id).kind;
      const AddedToken* const added = added_.find(id);
      if (kind == PieceKind::byte) continue;  // stands for text, whatever it is named for
      const bool special = kind == PieceKind::control || (added != nullptr && added->special);
      const bool wanted = special || kind == PieceKind::user_defined || added != nullptr;
      // What the library knows it as: another file may have renamed it.
      const std::string& text = processor_.IdToPiece(id);
      if (!wanted || id == unknown_ || !may_steer(text, special)) continue;
      texts.push_back(text);
      ids.push_back(id);
    }
    std::vector<Respelling::Piece> pieces;
    for (std::size_t i = 0; i < ids.size(); ++i) pieces.emplace_back(texts[i], ids[i]);
    const auto encode = [&](std::string_view text, std::vector<TokenId>& out) {
      try {
        const std::vector<TokenId> spelt = after_seam(text, seam_);
        out.insert(out.end(), spelt.begin(), spelt.end());
      } catch (const Error&) {  // some models cannot encode every text
        out.push_back(unknown_);
      }
    };
    respelling_ = Respelling(std::move(pieces), unknown_, encode, [](auto, auto&) {});
  }

  /// Appends the tokens of text between added tokens that are looked for as they are written.
  void append_stretch(const JoinedText& joined, std::size_t begin, std::size_t end, Start start,
                      std::vector<TokenId>& tokens) const {
    const std::string_view text = std::string_view(joined.text).substr(begin, end - begin);
    const bool typed = joined.is_typed(begin, end);
    const auto allowed = [&](const AddedToken& token, std::size_t, std::size_t) {
      return !token.steers || !typed;
    };
    for (const TextStretch& stretch : added_.split(text, AddedTokens::Pass::normalized, allowed)) {
      if (stretch.token >= 0) {
        tokens.push_back(stretch.token);
      } else {
        append(joined, begin + stretch.begin, begin + stretch.end,
               stretch.begin == 0 ? start : Start::added, tokens);
      }
    }
  }

  /// Appends the tokens of a text without added tokens. One that goes on with a word is shown to
  /// the library with something before it, where it would begin a text with a word mark or drop its
  /// leading spaces.
  void append(const JoinedText& joined, std::size_t begin, std::size_t end, Start start,
              std::vector<TokenId>& tokens) const {
    const std::string_view text = std::string_view(joined.text).substr(begin, end - begin);
    const bool goes_on = start == Start::word && (mark_ == WordMark::as_file || trims_);
    const std::size_t seam = goes_on ? seam_.size() : 0;
    const std::string shown = goes_on                      ? cat(seam_, text)
                              : mark_ == WordMark::as_file ? std::string(text)
                                                           : marked(text, start);
    std::vector<int> ids;
    if (goes_on) {
      for (const Found& found : found_behind(seam, shown)) ids.push_back(found.id);
    } else {
      check(processor_.Encode(shown, &ids));
    }
    if (text.find('\0') != text.npos) {
      // It is one of the tokens, or it was lost.
      const bool kept = std::any_of(ids.begin(), ids.end(), [&](int id) {
        return bytes_[static_cast<std::size_t>(id)].find('\0') != std::string::npos;
      });
      if (!kept) throw_usage("the text holds a NUL byte, which this tokenizer cannot represent");
    }
    if (!joined.is_typed(begin, end) || !respelling_.has_any(ids, 0)) {
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      return;
    }
    for (const Found& found : found_behind(seam, shown)) {
      // Both texts end with the same bytes.
      const auto in_joined = [&](std::size_t at) {
        return end - std::min(shown.size() - at, text.size());
      };
      const std::size_t from = in_joined(found.begin);
      if (joined.is_typed(from, std::max(in_joined(found.end), from + 1))) {
        respelling_.append(found.id, tokens);
      } else {
        tokens.push_back(found.id);
      }
    }
  }

  /// The text with the word mark that mark_ puts before it, which is not put twice.
  std::string marked(std::string_view text, Start start) const {
    if (trims_) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    const bool wanted = mark_ == WordMark::always  ? start != Start::word
                        : mark_ == WordMark::first ? start == Start::text
                                                   : false;
    const bool has = text.empty() || text.front() == ' ' || text.starts_with(boundary);
    return cat(wanted && !has ? boundary : "", text);
  }

  const std::string_view file_kind_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<SentencepieceFile::Piece> pieces_;
  std::vector<std::string> bytes_;  ///< by piece: what it adds to a text
  AddedTokens added_;
  TokenId unknown_ = -1, bos_ = -1, eos_ = -1;  ///< bos_ and eos_: put around a text; -1: not
  WordMark mark_ = WordMark::as_file;           ///< else the library puts none
  bool trims_ = false;                          ///< the library drops leading spaces
  std::string seam_;
  Respelling respelling_;  ///< in typed text
  bool drops_first_space_ = false;
  std::uint64_t longest_ = 1;    ///< bytes of a piece
  bool keeps_all_text_ = false;  ///< every byte of a text is in one of its tokens
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& file,
                                                        const TokenizerSettings& settings) {
  return load_sentencepiece_tokenizer(read_file(file, "", largest_tokenizer_file), file.string(),
                                      settings, "tokenizer.model");
}

std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(std::string bytes, const std::string& name,
                                                        const TokenizerSettings& settings,
                                                        std::string_view kind) {
  return std::make_unique<SentencepieceTokenizer>(std::move(bytes), name, settings, kind);
}

}  // namespace coppice

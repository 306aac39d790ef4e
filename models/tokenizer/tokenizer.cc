#include "models/tokenizer/tokenizer.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/files.h"
#include "models/gguf/gguf_tokenizer.h"
#include "models/tokenizer/json_tokenizer.h"
#include "models/tokenizer/sentencepiece_tokenizer.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr const char* json_name = "tokenizer.json";
constexpr const char* model_name = "tokenizer.model";

}  // namespace

bool Tokenizer::is_in(const fs::path& dir) {
  if (is_gguf(dir)) return has_known_tokenizer(*open_gguf(dir));
  return is_there(dir / json_name) || is_there(dir / model_name);
}

std::unique_ptr<Tokenizer> Tokenizer::load(const fs::path& dir) {
  std::unique_ptr<Tokenizer> tokenizer = open(dir);
  tokenizer->model_ = dir.string();
  return tokenizer;
}

std::unique_ptr<Tokenizer> Tokenizer::open(const fs::path& dir) {
  if (is_gguf(dir)) {
    const auto file = open_gguf(dir);  // open while its settings are asked for
    return load_gguf_tokenizer(*file, read_tokenizer_settings(dir));
  }
  if (is_there(dir / json_name)) {
    return load_json_tokenizer(dir / json_name, read_tokenizer_settings(dir));
  }
  if (is_there(dir / model_name)) {
    return load_sentencepiece_tokenizer(dir / model_name, read_tokenizer_settings(dir));
  }
  throw_failure(cat(dir.string(), ": has neither ", json_name, " nor ", model_name,
                    "; add one, or give prompts as token ids with --prompt-ids"));
}

bool Tokenizer::same_file(const fs::path& one, const fs::path& other) {
  if (is_gguf(one) || is_gguf(other)) {
    return is_gguf(one) && is_gguf(other) && same_tokens(*open_gguf(one), *open_gguf(other));
  }
  const char* name = is_there(one / json_name) ? json_name : model_name;
  const bool shared = name == json_name
                          ? is_there(other / json_name)
                          : !is_there(other / json_name) && is_there(one / model_name) &&
                                is_there(other / model_name);
  const auto added = [](const fs::path& dir) {
    std::vector<std::tuple<std::string, TokenId, bool>> tokens;
    for (const AddedTokenSetting& token : read_tokenizer_settings(dir).added) {
      if (!token.only_if_known) {
        tokens.emplace_back(token.content, token.id.value_or(-1), token.special);
      }
    }
    return tokens;
  };
  return shared &&
         read_file(one / name, "", largest_tokenizer_file) ==
             read_file(other / name, "", largest_tokenizer_file) &&
         added(one) == added(other);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, TokenId before) const {
  const TextPart part{text, false};
  return encode(std::span(&part, 1), before);
}

std::vector<TokenId> Tokenizer::encode_typed(std::string_view text, TokenId before) const {
  const TextPart part{text, true};
  return encode(std::span(&part, 1), before);
}

std::uint64_t Tokenizer::bytes_at_most(std::uint64_t tokens, std::uint64_t longest,
                                       bool keeps_all) {
  if (keeps_all) return tokens * longest;
  return std::max(std::uint64_t{1} << 20, tokens * std::max<std::uint64_t>(64, longest));
}

void Tokenizer::require_same_pieces(const Tokenizer& other, const std::string& this_name,
                                    const std::string& other_name) const {
  const auto refuse = [&](const std::string& difference) {
    throw_failure(cat("tokenizers differ: ", difference, "; ", this_name, " ", quote(model_),
                      " has ", pieces(), " pieces, ", other_name, " ", quote(other.model_), " has ",
                      other.pieces(), "; use a draft that shares the target's tokenizer, or none ",
                      "(--draft none)"));
  };
  const bool same_kind = file_kind() == other.file_kind();
  const TokenId shared = std::min(pieces(), other.pieces());
  for (TokenId id = 0; id < shared; ++id) {
    const bool same_text = piece(id) == other.piece(id);
    if (same_text && (!same_kind || kind_of(id) == other.kind_of(id))) continue;
    refuse(cat("token ", id, " is ", quote(piece(id)), " (", kind_of(id), ") in ", this_name,
               " and ", quote(other.piece(id)), " (", other.kind_of(id), ") in ", other_name));
  }
  if (pieces() == other.pieces()) return;
  const Tokenizer& longer = pieces() > other.pieces() ? *this : other;
  refuse(cat("the first piece that only one has is ", quote(longer.piece(shared))));
}

}  // namespace coppice

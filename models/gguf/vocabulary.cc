#include "models/gguf/vocabulary.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "models/gguf/pre_tokenizers.h"
#include "models/tokenizer/byte_level.h"

namespace coppice {
namespace {

constexpr const char* tokens_key = "tokenizer.ggml.tokens";
constexpr const char* kinds_key = "tokenizer.ggml.token_type";
/// Beyond a million tokens a vocabulary is taken for damage.
constexpr std::size_t most_ggml_tokens = 1u << 20;
constexpr std::size_t most_ends = 64;
constexpr std::string_view ends_of_turns[] = {"<|eot_id|>",     "<|eom_id|>",    "<|im_end|>",
                                              "<|end|>",        "<end_of_turn>", "<|endoftext|>",
                                              "<|end_of_text|>"};

}  // namespace

GgufVocabulary::GgufVocabulary(const GgufFile& file)
    : file_(file), model_(file.fields().text("tokenizer.ggml.model", "")) {
  if (model_.empty()) return;
  tokens_ = &file.list(tokens_key, GgufFile::ListOf::texts);
  const Fields fields = file.fields();
  if (tokens_->size() > most_ggml_tokens) {
    fields.refuse(tokens_key, cat("a list of at most ", most_ggml_tokens, " texts"));
  }
  if (!fields.has(kinds_key)) return;
  kinds_ = &file.list(kinds_key, GgufFile::ListOf::integers);
  const bool known = std::all_of(kinds_->begin(), kinds_->end(),
                                 [](const nlohmann::json& kind) { return kind >= 1 && kind <= 6; });
  if (!known || kinds_->size() != tokens_->size()) {
    fields.refuse(kinds_key, cat("a list of ", tokens_->size(), " numbers from 1 to 6"));
  }
}

TokenId GgufVocabulary::size() const {
  return tokens_ == nullptr ? 0 : static_cast<TokenId>(tokens_->size());
}

const std::string& GgufVocabulary::text(TokenId token) const {
  return (*tokens_)[static_cast<std::size_t>(token)].get_ref<const std::string&>();
}

PieceKind GgufVocabulary::kind(TokenId token) const {
  if (kinds_ == nullptr) return PieceKind::normal;
  return static_cast<PieceKind>((*kinds_)[static_cast<std::size_t>(token)].get<int>());
}

bool GgufVocabulary::is_byte(TokenId token) const {
  if (kind(token) == PieceKind::byte) return true;
  return model_ == "gpt2" && kind(token) == PieceKind::normal &&
         tokenization::ByteAlphabet::get().bytes_of(text(token)).size() == 1;
}

std::optional<TokenId> GgufVocabulary::named(const std::string& name) const {
  const std::string key = cat("tokenizer.ggml.", name, "_token_id");
  const Fields fields = file_.fields();
  std::int64_t id = fields.integer(key.c_str(), INT32_MIN, UINT32_MAX, -1);
  if (!fields.has(key.c_str()) && model_ == "llama") {
    id = name == "unknown" ? 0 : name == "bos" ? 1 : name == "eos" ? 2 : -1;
  }
  if (id < 0 || id >= size()) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::vector<TokenId> GgufVocabulary::ends() const {
  std::vector<TokenId> tokens;
  const auto add = [&](TokenId token) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  };
  for (const char* name : {"eos", "eot", "eom"}) {
    if (const auto token = named(name)) add(*token);
  }
  for (TokenId token = 0; token < size() && tokens.size() < most_ends; ++token) {
    const bool is_end = std::find(std::begin(ends_of_turns), std::end(ends_of_turns),
                                  text(token)) != std::end(ends_of_turns);
    if (is_end && kind(token) != PieceKind::unused) add(token);
  }
  return tokens;
}

std::string GgufVocabulary::pre() const {
  return file_.fields().text("tokenizer.ggml.pre", "default");
}

bool GgufVocabulary::adds(const std::string& side) const {
  const PreTokenizing* const known = model_ == "gpt2" ? pre_tokenizing(pre()) : nullptr;
  const bool usual = side == "bos" && (model_ == "llama" || (known != nullptr && known->adds_bos));
  const std::string key = cat("tokenizer.ggml.add_", side, "_token");
  const auto token = named(side);
  return token && !is_byte(*token) && file_.fields().boolean(key.c_str(), usual);
}

}  // namespace coppice

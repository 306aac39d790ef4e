#include "models/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/gguf/pre_tokenizers.h"
#include "models/gguf/vocabulary.h"
#include "models/tokenizer/json_tokenizer.h"
#include "models/tokenizer/sentencepiece_tokenizer.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

constexpr std::string_view file_kind = "GGUF tokenizer";
constexpr const char* scores_key = "tokenizer.ggml.scores";

/// What stands around a text.
Json frame_of(const GgufVocabulary& vocabulary, const TokenizerSettings& settings) {
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](const char* name) {
    const auto token = vocabulary.named(name);
    if (!token) return;
    tokens[name] = {{"ids", {*token}}};
    single.push_back({{"SpecialToken", {{"id", name}}}});
  };
  if (settings.adds_bos) add("bos");
  single.push_back({{"Sequence", {{"id", "A"}}}});
  if (settings.adds_eos) add("eos");
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
}

/// Unused tokens fill up a table of more rows than there are tokens: they are left out.
JsonObject tokenizer_json(const GgufFile& file, const GgufVocabulary& vocabulary,
                          const PreTokenizing& rules, const TokenizerSettings& settings) {
  // Found before a text is cut into words, whatever kind they have.
  std::vector<TokenId> marks = vocabulary.ends();
  if (const auto bos = vocabulary.named("bos")) marks.push_back(*bos);
  Json pieces = Json::object(), added = Json::array();
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    const std::string& text = vocabulary.text(token);
    const PieceKind kind = vocabulary.kind(token);
    if (kind == PieceKind::unused || text.empty()) continue;
    const auto [entry, is_new] = pieces.get_ref<Json::object_t&>().try_emplace(text, token);
    if (!is_new) {
      throw_failure(cat(file.name(), ": tokenizer.ggml.tokens: ", quote(text), " is token ",
                        entry->second.get<TokenId>(), " and ", token, "; fetch the file again"));
    }
    const bool is_mark =
        std::find(marks.begin(), marks.end(), token) != marks.end() && !vocabulary.is_byte(token);
    if (kind == PieceKind::normal && !is_mark) continue;
    added.push_back({{"id", token},
                     {"content", text},
                     {"special", kind != PieceKind::user_defined},
                     {"normalized", false}});
  }
  JsonObject json(Json::object());
  json.edit() = {{"added_tokens", std::move(added)},
                 {"normalizer", normalizer_of(rules)},
                 {"pre_tokenizer", pre_tokenizer_of(rules)},
                 {"post_processor", frame_of(vocabulary, settings)},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model",
                  {{"type", "BPE"},
                   {"ignore_merges", rules.ignores_merges},
                   {"vocab", std::move(pieces)},
                   {"merges", file.list("tokenizer.ggml.merges", GgufFile::ListOf::texts)}}}};
  return json;
}

// Strings are added up without a stream, which a million pieces would feel.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string bytes_field(std::uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string number_field(std::uint64_t number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}
std::string float_field(std::uint64_t number, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::string out = varint(number << 3 | 5);
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(bits >> shift & 0xff);
  return out;
}

/// A piece as sentencepiece spells it: user-defined ones were written with spaces.
std::string piece_text(const GgufVocabulary& vocabulary, TokenId token) {
  const std::string& text = vocabulary.text(token);
  if (vocabulary.kind(token) != PieceKind::user_defined) return text;
  std::string marked;
  for (const char c : text) {
    if (c == ' ') {
      marked += "\u2581";
    } else {
      marked += c;
    }
  }
  return marked;
}

/// The bytes of a ModelProto of sentencepiece.
std::string model_proto(const GgufFile& file, const GgufVocabulary& vocabulary) {
  const Json& scores = file.list(scores_key, GgufFile::ListOf::numbers);
  TokenId size = vocabulary.size();
  if (scores.size() != static_cast<std::size_t>(size)) {
    file.fields().refuse(scores_key, cat("a list of ", size, " numbers"));
  }
  while (size > 0 && vocabulary.kind(size - 1) == PieceKind::unused) --size;  // fills the table up
  const std::vector<TokenId> ends = vocabulary.ends();
  std::string proto;
  bool has_bytes = false;
  for (TokenId token = 0; token < size; ++token) {
    // An end token that is an ordinary piece would be found in what a user types.
    const bool is_end = std::find(ends.begin(), ends.end(), token) != ends.end();
    const PieceKind kind = is_end && vocabulary.kind(token) == PieceKind::normal
                               ? PieceKind::control
                               : vocabulary.kind(token);
    has_bytes = has_bytes || kind == PieceKind::byte;
    proto +=
        bytes_field(1, bytes_field(1, piece_text(vocabulary, token)) +
                           float_field(2, scores[static_cast<std::size_t>(token)].get<float>()) +
                           number_field(3, static_cast<std::uint64_t>(kind)));
  }
  constexpr int pairs = 2;  // as sentencepiece numbers its kinds of models
  const bool marks = file.fields().boolean("tokenizer.ggml.add_space_prefix", true);
  proto += bytes_field(2, cat(number_field(3, pairs), number_field(35, has_bytes)));
  proto += bytes_field(
      3, cat(bytes_field(1, "identity"), number_field(3, marks), number_field(4, false)));
  return proto;
}

[[noreturn]] void refuse(const GgufFile& file, const std::string& what, const std::string& known) {
  throw_failure(cat(file.name(), ": ", what, " is unknown to coppice, which knows ", known,
                    "; give prompts as token ids with --prompt-ids"));
}

}  // namespace

bool has_known_tokenizer(const GgufFile& file) {
  const GgufVocabulary vocabulary(file);
  return vocabulary.model() == "llama" ||
         (vocabulary.model() == "gpt2" && pre_tokenizing(vocabulary.pre()) != nullptr);
}

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufFile& file,
                                               const TokenizerSettings& settings) {
  const GgufVocabulary vocabulary(file);
  if (vocabulary.model().empty()) {
    throw_failure(cat(file.name(),
                      ": has no tokenizer (tokenizer.ggml.model); give prompts as "
                      "token ids with --prompt-ids"));
  }
  if (vocabulary.model() == "llama") {
    return load_sentencepiece_tokenizer(model_proto(file, vocabulary), file.name(), settings,
                                        file_kind);
  }
  if (vocabulary.model() != "gpt2") {
    refuse(file, cat("tokenizer.ggml.model ", quote(vocabulary.model())), "gpt2 and llama");
  }
  const PreTokenizing* const rules = pre_tokenizing(vocabulary.pre());
  if (rules == nullptr) {
    refuse(file, cat("tokenizer.ggml.pre ", quote(vocabulary.pre())), pre_tokenizer_names());
  }
  return load_json_tokenizer(tokenizer_json(file, vocabulary, *rules, settings), file.name(),
                             settings, file_kind);
}

bool same_tokens(const GgufFile& one, const GgufFile& other) {
  const auto same = [&](const char* key) {
    const Json *const mine = one.fields().find(key), *const its = other.fields().find(key);
    return mine != nullptr && its != nullptr && *mine == *its;
  };
  return same("tokenizer.ggml.model") && same("tokenizer.ggml.tokens") &&
         same("tokenizer.ggml.token_type");
}

}  // namespace coppice

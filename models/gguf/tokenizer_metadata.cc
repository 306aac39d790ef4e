#include "models/gguf/tokenizer_metadata.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "models/gguf/pre_tokenizer_names.h"
#include "models/settings/template_settings.h"
#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/sentencepiece_file.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view word_mark = "\u2581";
constexpr const char* folder_says = "; where that matters, load the folder itself";
constexpr const char* elsewhere = "; load the model itself, with --target-weights in fewer bits";

/// As GGUF files spell pieces that a text may spell: with spaces in place of word marks.
std::string with_spaces(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const bool marked = piece.starts_with(word_mark);
    out += marked ? ' ' : piece.front();
    piece.remove_prefix(marked ? word_mark.size() : 1);
  }
  return out;
}

class TokenizerWriter {
 public:
  TokenizerWriter(const fs::path& dir, const ModelConfig& config)
      : dir_(dir),
        config_(config),
        settings_(read_tokenizer_settings(dir)),
        tokenizer_(Tokenizer::load(dir)) {
    if (tokenizer_->pieces() > config.vocab_size) {
      throw_failure(cat(dir.string(), ": its tokenizer has ", tokenizer_->pieces(),
                        " tokens, its model only ", config.vocab_size,
                        " rows for them, which no GGUF file can say", elsewhere));
    }
  }

  TokenizerMetadata write() {
    if (!write_bytes_bpe()) write_sentencepiece();
    write_tokens();
    write_special();
    write_templates();
    return std::move(out_);
  }

 private:
  void add(const char* key, GgufValue value) {
    out_.values.emplace_back(cat("tokenizer.", key), std::move(value));
  }

  /// False if there is no tokenizer.json, or one of another kind.
  bool write_bytes_bpe() {
    const fs::path path = dir_ / "tokenizer.json";
    if (!is_there(path)) return false;
    const std::string where = path.string();
    const JsonObject file = parse_json_object(read_file(path, "", largest_tokenizer_file), where);
    const Json& model = (*file)["model"];
    const bool spells_bytes = (*file)["decoder"].dump().find("\"ByteLevel\"") != std::string::npos;
    if (model.value("type", "BPE") != "BPE" || !spells_bytes) return false;
    add("ggml.model", "gpt2");
    add("ggml.pre", pre_tokenizer_name(*file, where));
    std::vector<std::string> merges;
    for (const Json& merge : model["merges"]) {
      merges.push_back(merge.is_array() ? cat(merge[0].get_ref<const std::string&>(), " ",
                                              merge[1].get_ref<const std::string&>())
                                        : merge.get<std::string>());
    }
    add("ggml.merges", std::move(merges));
    return true;
  }

  void write_sentencepiece() {
    const fs::path path = dir_ / "tokenizer.model";
    if (!is_there(path)) {
      throw_failure(cat((dir_ / "tokenizer.json").string(),
                        ": no BPE of bytes, for which a GGUF file wants a tokenizer.model; put the "
                        "model's own beside it"));
    }
    model_ = read_sentencepiece(read_file(path, "", largest_tokenizer_file), path.string());
    if (!model_->merges_pairs) {
      throw_failure(cat(path.string(), ": no BPE, which a GGUF file would need", elsewhere));
    }
    const bool rebuilt = settings_.mark != WordMark::as_file &&
                         settings_.kind != TokenizerClass::backend;  // its rewriting is not used
    if (!is_there(dir_ / "tokenizer.json") && !rebuilt &&
        (model_->rewrites || model_->remove_extra_whitespaces)) {
      throw_failure(cat(path.string(),
                        ": it rewrites text before it looks for pieces, which a "
                        "GGUF file cannot say",
                        elsewhere));
    }
    add("ggml.model", "llama");
    add("ggml.pre", "default");
    // As the tokenizer does it: which file and class decide is known to it.
    const auto marks = [&](TokenId before) {
      const std::vector<TokenId> tokens = tokenizer_->encode("a", before);
      return !tokens.empty() && tokenizer_->piece(tokens.front()).starts_with(word_mark);
    };
    const bool at_start = marks(Tokenizer::at_start);
    add("ggml.add_space_prefix", at_start);
    if (!at_start) return;
    const auto bos = id_of("bos_token");
    if (bos && !marks(*bos)) {
      out_.lost.push_back(cat("that no word mark stands behind special tokens", folder_says));
    }
    if (tokenizer_->encode("a") == tokenizer_->encode(" a")) {
      out_.lost.push_back(cat("that a space that begins a text is its word mark", folder_says));
    }
  }

  void write_tokens() {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> kinds;
    std::vector<float> scores;
    for (TokenId token = 0; token < config_.vocab_size; ++token) {
      const auto at = static_cast<std::size_t>(token);
      const bool is_piece = model_ && at < model_->pieces.size();
      std::string text(tokenizer_->piece(token));
      const bool is_added = !tokenizer_->added_text(token).empty();
      PieceKind kind = is_piece ? model_->pieces[at].kind : PieceKind::normal;
      if (text.empty()) {  // a row that no token has
        text = cat("[PAD", token, "]");
        kind = PieceKind::unused;
      } else if (kind == PieceKind::normal && is_added) {
        const bool special = tokenizer_->bytes_of(token).empty();
        kind = special ? PieceKind::control : PieceKind::user_defined;
      } else if (is_piece && !is_added && text != model_->pieces[at].text) {
        throw_failure(cat(dir_.string(), ": token ", token, " is ", quote(text),
                          " in tokenizer.json and ", quote(model_->pieces[at].text),
                          " in tokenizer.model; fetch both again"));
      }
      if (model_ && kind == PieceKind::user_defined) text = with_spaces(text);
      tokens.push_back(std::move(text));
      kinds.push_back(static_cast<std::int32_t>(kind));
      if (model_) scores.push_back(is_piece ? model_->pieces[at].score : 0.0f);
    }
    add("ggml.tokens", std::move(tokens));
    add("ggml.token_type", std::move(kinds));
    if (model_) add("ggml.scores", std::move(scores));
  }

  /// The token that the settings name, if the tokenizer has it.
  std::optional<TokenId> id_of(std::string_view name) const {
    const std::string* const text = settings_.find(name);
    if (text == nullptr || text->empty()) return std::nullopt;
    for (TokenId token = 0; token < tokenizer_->pieces(); ++token) {
      if (tokenizer_->piece(token) == *text) return token;
    }
    return std::nullopt;
  }

  void write_special() {
    // What stands around a text.
    const std::vector<TokenId> framed = tokenizer_->framed({-1});
    const auto middle = std::find(framed.begin(), framed.end(), -1);
    const auto before = middle - framed.begin(), behind = framed.end() - middle - 1;
    if (before > 1 || behind > 1) {
      throw_failure(cat(dir_.string(), ": its tokenizer puts ", before + behind,
                        " tokens around a text, of which a GGUF file can say one before and one "
                        "behind",
                        elsewhere));
    }
    const auto id = [&](const char* key, std::optional<TokenId> token) {
      if (token) add(cat("ggml.", key, "_token_id").c_str(), static_cast<std::uint32_t>(*token));
    };
    std::optional<TokenId> bos = id_of("bos_token");
    if (before == 1) bos = framed.front();
    if (!bos && config_.bos_token >= 0) bos = config_.bos_token;
    id("bos", bos);
    // The token that templates write comes first of those that end an answer.
    std::vector<TokenId> ends = config_.eos_tokens;
    std::optional<TokenId> eos = id_of("eos_token");
    if (behind == 1) eos = framed.back();
    if (eos) {
      const auto found = std::find(ends.begin(), ends.end(), *eos);
      if (found != ends.end()) {
        std::rotate(ends.begin(), found, found + 1);
      } else if (behind == 1 || ends.empty()) {
        ends.insert(ends.begin(), *eos);
      }
    }
    const char* const names[] = {"eos", "eot", "eom"};
    for (std::size_t i = 0; i < std::min(ends.size(), std::size(names)); ++i) {
      id(names[i], ends[i]);
    }
    if (ends.size() > std::size(names)) {
      out_.lost.push_back(
          cat("the last ", ends.size() - std::size(names),
              " of the tokens that end an answer; give the text of each as --stop TEXT"));
    }
    id("unknown", id_of("unk_token"));
    id("padding", id_of("pad_token"));
    add("ggml.add_bos_token", before == 1);
    add("ggml.add_eos_token", behind == 1);
  }

  void write_templates() {
    for (const Setting& one : template_notes(dir_).obeyed) {
      const bool is_default = one.value == "default";
      const std::string source = read_template_settings(dir_, is_default ? "" : one.value).source;
      add(is_default ? "chat_template" : cat("chat_template.", one.value).c_str(), source);
    }
  }

  const fs::path& dir_;
  const ModelConfig& config_;
  const TokenizerSettings settings_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<SentencepieceFile> model_;  ///< of a "llama"
  TokenizerMetadata out_;
};

}  // namespace

TokenizerMetadata tokenizer_metadata(const fs::path& dir, const ModelConfig& config) {
  return TokenizerWriter(dir, config).write();
}

}  // namespace coppice

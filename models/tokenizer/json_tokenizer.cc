#include "models/tokenizer/json_tokenizer.h"

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"
#include "base/utf8.h"
#include "models/tokenizer/added_tokens.h"
#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/byte_pieces.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/decoders.h"
#include "models/tokenizer/joined_text.h"
#include "models/tokenizer/json_place.h"
#include "models/tokenizer/normalizers.h"
#include "models/tokenizer/post_processors.h"
#include "models/tokenizer/pre_tokenizers.h"
#include "models/tokenizer/respelling.h"
#include "models/tokenizer/subword_model.h"
#include "models/tokenizer/word_cache.h"

namespace coppice {
namespace {

using namespace tokenization;

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(const JsonPlace& place, const TokenizerSettings& settings, std::string_view kind)
      : file_(place.file()), file_kind_(kind) {
    if (const auto version = place.find("version"); version && version->text() != "1.0") {
      version->refuse(cat("the version ", quote(version->text()), " is unknown to coppice"));
    }
    model_ = read_subword_model(place.at("model"));
    if (const auto normalizer = place.find("normalizer")) {
      read_normalizer(*normalizer, normalizers_);
    }
    if (const auto pre_tokenizer = place.find("pre_tokenizer")) {
      pre_tokenizers_ = read_pre_tokenizers(*pre_tokenizer);
    }
    std::vector<AddedTokenSetting> added;
    if (const auto list = place.find("added_tokens")) added = read_added_tokens(*list);
    added.insert(added.end(), settings.added.begin(), settings.added.end());
    added_ = AddedTokens(added, model_->vocabulary(), normalizers_, file_);
    if (const auto decoder = place.find("decoder")) decoders_ = Decoders(*decoder);
    if (const auto post_processor = place.find("post_processor")) {
      post_processors_ = PostProcessors(*post_processor, pieces());
    }
    measure();
    guard();
    caches_.reserve(most_caches);
  }

  std::string_view file_kind() const override { return file_kind_; }
  std::int32_t pieces() const override {
    return std::max(model_->vocabulary().size(), added_.ids_end());
  }
  std::int32_t vocabulary_pieces() const override { return model_->vocabulary().size(); }

  std::string_view piece(TokenId token) const override {
    const AddedToken* added = added_.find(token);
    return added != nullptr ? std::string_view(added->content) : model_->vocabulary().piece(token);
  }

  std::vector<TokenId> encode(std::span<const TextPart> parts, TokenId before) const override {
    const JoinedText joined(parts);
    if (!is_valid_utf8(joined.text)) {
      throw_usage("the text is not valid UTF-8; convert it to UTF-8");
    }
    std::vector<TokenId> tokens;
    Allowance allowance(joined.text.size(), file_);
    const ScratchLoan loan(*this);
    const auto pass =
        joined.typed.empty() ? AddedTokens::Pass::given : AddedTokens::Pass::given_in_part;
    const auto allowed = [&](const AddedToken& token, std::size_t begin, std::size_t end) {
      return !token.steers || !joined.is_typed(begin, end);
    };
    const Left left = left_of(before, pass);
    const std::size_t taken = left.takes_given ? leading_space(joined.text) : std::size_t{0};
    for (const TextStretch& stretch : added_.split(joined.text, pass, allowed, left.text)) {
      if (stretch.token >= 0) {
        tokens.push_back(stretch.token);
        continue;
      }
      const std::size_t begin = std::max(stretch.begin, taken);
      if (begin >= stretch.end) continue;
      encode_normalized(joined.text.substr(begin, stretch.end - begin),
                        joined.is_typed(begin, stretch.end), begin == 0 ? left : Left{}, allowance,
                        *loan.cache, tokens);
    }
    return tokens;
  }

  std::vector<TokenId> framed(std::vector<TokenId> tokens) const override {
    return post_processors_.apply(std::move(tokens));
  }

  std::string bytes_of(TokenId token) const override {
    const AddedToken* added = added_.find(token);
    if (added != nullptr && added->special) return {};
    return decoders_.bytes_of(added != nullptr ? added->normal : piece(token));
  }

  std::string_view added_text(TokenId token) const override {
    const AddedToken* added = added_.find(token);
    return added != nullptr ? std::string_view(added->content) : std::string_view();
  }

  std::string decode(std::span<const TokenId> tokens, bool with_special) const override {
    std::vector<std::string> pieces;
    for (const TokenId token : tokens) {
      const AddedToken* added = added_.find(token);
      if (added != nullptr && added->special && !with_special) continue;
      const std::string_view text = added != nullptr ? added->normal : piece(token);
      if (!text.empty()) pieces.emplace_back(text);
    }
    return decoders_.text_of(std::move(pieces));
  }

  std::uint64_t most_bytes(std::uint64_t tokens) const override {
    return bytes_at_most(tokens, longest_, keeps_all_text_);
  }

 protected:
  std::string_view kind_of(TokenId token) const override {
    const AddedToken* added = added_.find(token);
    return added == nullptr ? "of the vocabulary" : added->special ? "special" : "added";
  }

 private:
  void measure() {
    longest_ = model_->vocabulary().longest_piece();
    keeps_all_text_ =
        model_->keeps_all_text(pre_tokenizers_.spells_bytes) &&
        std::all_of(normalizers_.begin(), normalizers_.end(),
                    [](const auto& normalizer) { return normalizer->keeps_bytes(); }) &&
        std::none_of(pre_tokenizers_.stages.begin(), pre_tokenizers_.stages.end(),
                     [](const auto& stage) { return stage->drops_text(); });
    for (const AddedToken& token : added_.tokens()) {
      longest_ = std::max<std::uint64_t>(longest_, token.content.size());
      if (token.lstrip || token.rstrip) keeps_all_text_ = false;
    }
  }

  /// Has the model spell what it would find as one piece, for added tokens and those around a text.
  void guard() {
    const Vocabulary& vocabulary = model_->vocabulary();
    std::vector<Respelling::Piece> pieces;
    const auto add = [&](TokenId id, bool special) {
      const std::string_view text = vocabulary.piece(id);
      // Byte pieces stand for text.
      if (text.empty() || id == model_->unknown() || (!special && byte_value(text) >= 0)) return;
      if (may_steer(text, special)) pieces.emplace_back(text, id);
    };
    for (const AddedToken& token : added_.tokens()) add(token.id, token.special);
    for (const TokenId id : post_processors_.frame()) add(id, false);
    using Ids = std::vector<TokenId>;
    respelling_ = Respelling(
        std::move(pieces), model_->unknown(),
        [&](std::string_view text, Ids& out) { model_->encode(text, out); },
        [&](std::string_view text, Ids& out) { model_->append_bytes(text, out); });
  }

  /// What stands to the left of a stretch of text. Nothing is said of a stretch that follows an
  /// added token of the same text.
  struct Left {
    bool is_start = false;          ///< nothing does
    bool in_word = false;           ///< ordinary text
    bool normalized_along = false;  ///< text that is normalized as one with it
    /// An added token that takes white space: of the text as given, or as normalized.
    bool takes_given = false, takes_normalized = false;
    std::string text;  ///< whole characters of it, if they are known
  };

  /// An added token that is looked for in normalized text does not part what is normalized. The
  /// unknown token is ordinary text that has no piece.
  Left left_of(TokenId before, AddedTokens::Pass pass) const {
    Left left;
    left.is_start = before == at_start;
    if (left.is_start) return left;
    const AddedToken* const added = before == model_->unknown() ? nullptr : added_.find(before);
    left.text = added != nullptr ? added->content : bytes_of(before);
    if (!is_valid_utf8(left.text)) left.text.clear();
    left.in_word = added == nullptr;
    const bool given =
        added != nullptr && (!added->normalized || pass == AddedTokens::Pass::given_in_part);
    left.normalized_along = !given;
    left.takes_given = given && added->rstrip;
    left.takes_normalized = added != nullptr && !given && added->rstrip;
    return left;
  }

  void encode_normalized(std::string given, bool typed, const Left& left, Allowance& allowance,
                         WordCache& cache, std::vector<TokenId>& tokens) const {
    NormalText normal{std::move(given), left.is_start, left.normalized_along};
    normalize(normalizers_, normal, allowance);
    const auto allowed = [&](const AddedToken& token, std::size_t, std::size_t) {
      return !token.steers || !typed;
    };
    const std::size_t taken = left.takes_normalized ? leading_space(normal.text) : std::size_t{0};
    for (const TextStretch& stretch :
         added_.split(normal.text, AddedTokens::Pass::normalized, allowed,
                      left.normalized_along ? left.text : std::string())) {
      if (stretch.token >= 0) {
        tokens.push_back(stretch.token);
        continue;
      }
      const std::size_t begin = std::max(stretch.begin, taken);
      if (begin >= stretch.end) continue;
      Words words;
      words.text = normal.text.substr(begin, stretch.end - begin);
      const bool first = begin == 0;
      words.words = {{0, words.text.size(), normal.at_start && first, left.in_word && first}};
      for (const auto& stage : pre_tokenizers_.stages) {
        stage->apply(words, allowance);
        allowance.write(words.text.size() + 1);
      }
      for (const Word& word : words.words) encode_word(words.of(word), typed, cache, tokens);
    }
  }

  void encode_word(std::string_view word, bool typed, WordCache& cache,
                   std::vector<TokenId>& tokens) const {
    while (!word.empty()) {
      // A model's borders are borders of the text that it sees, not of what is still to be spelt.
      const std::string_view part = word.substr(
          0, pre_tokenizers_.spells_bytes ? word.size() : model_->independent_bytes(word));
      word.remove_prefix(part.size());
      const std::size_t before = tokens.size();
      encode_part(part, cache, tokens);
      if (typed) respell(part, before, tokens);
    }
  }

  void encode_part(std::string_view part, WordCache& cache, std::vector<TokenId>& tokens) const {
    if (part.size() > WordCache::longest_word) {
      look_up(part, tokens);
      return;
    }
    const std::uint64_t hash = WordCache::hash(part);
    const std::span<const TokenId> known = cache.find(part, hash);
    if (known.data() != nullptr) {
      tokens.insert(tokens.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = tokens.size();
    look_up(part, tokens);
    cache.add(part, hash, std::span(tokens).subspan(before));
  }

  void look_up(std::string_view word, std::vector<TokenId>& tokens) const {
    if (pre_tokenizers_.spells_bytes) {
      model_->encode(ByteAlphabet::get().spelt(word), tokens);
    } else {
      model_->encode(word, tokens);
    }
  }

  /// Has tokens[from] and those behind it, which a typed word became, steer nothing. The unknown
  /// token stands for what no piece spells, not for its own text.
  void respell(std::string_view word, std::size_t from, std::vector<TokenId>& tokens) const {
    const std::string_view unknown = model_->vocabulary().piece(model_->unknown());
    const std::size_t first = unknown.empty() ? 0 : code_point_bytes(unknown);
    const bool has_unknown = std::find(tokens.begin() + static_cast<std::ptrdiff_t>(from),
                                       tokens.end(), model_->unknown()) != tokens.end();
    if (first < unknown.size() && has_unknown) {
      const std::string text =
          pre_tokenizers_.spells_bytes ? ByteAlphabet::get().spelt(word) : std::string(word);
      tokens.resize(from);
      std::size_t done = 0;
      while (done < text.size()) {
        const std::size_t at = text.find(unknown, done);
        const std::size_t end = at == text.npos ? text.size() : at + first;
        model_->encode(std::string_view(text).substr(done, end - done), tokens);
        done = end;
      }
    }
    respelling_.apply(tokens, from);
  }

  /// A cache for one call; it serves the next one after that.
  struct ScratchLoan {
    explicit ScratchLoan(const JsonTokenizer& owner) : tokenizer(owner) {
      const std::lock_guard lock(tokenizer.mutex_);
      if (tokenizer.caches_.empty()) {
        cache = std::make_unique<WordCache>();
      } else {
        cache = std::move(tokenizer.caches_.back());
        tokenizer.caches_.pop_back();
      }
    }
    ~ScratchLoan() {
      const std::lock_guard lock(tokenizer.mutex_);
      // There is room: nothing is allocated.
      if (tokenizer.caches_.size() < most_caches) tokenizer.caches_.push_back(std::move(cache));
    }
    ScratchLoan(const ScratchLoan&) = delete;
    ScratchLoan& operator=(const ScratchLoan&) = delete;
    const JsonTokenizer& tokenizer;
    std::unique_ptr<WordCache> cache;
  };

  static constexpr std::size_t most_caches = 4;

  std::string file_;
  const std::string_view file_kind_;
  std::unique_ptr<SubwordModel> model_;
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
  AddedTokens added_;
  Decoders decoders_;
  PostProcessors post_processors_;
  Respelling respelling_;        ///< in typed text
  std::uint64_t longest_ = 1;    ///< bytes of a piece
  bool keeps_all_text_ = false;  ///< every byte of a text is in one of its tokens
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> caches_;
};

/// Puts the parts that the class of Llama makes anew, from keys of tokenizer_config.json, in place
/// of the file's, as transformers 5 does. Of a model that is no BPE it makes none.
void rebuild_as_llama(const TokenizerSettings& settings, JsonObject& json) {
  nlohmann::json& root = json.edit();
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object() || !model->contains("vocab") ||
      !model->contains("merges") || model->value("type", nlohmann::json("BPE")) != "BPE") {
    return;
  }
  (*model)["unk_token"] = nullptr;
  (*model)["fuse_unk"] = true;
  (*model)["byte_fallback"] = true;
  (*model)["ignore_merges"] = false;
  const char* const scheme = settings.mark == WordMark::always  ? "always"
                             : settings.mark == WordMark::first ? "first"
                                                                : "never";
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", scheme},
                           {"split", false}};
  nlohmann::json decoders = nlohmann::json::parse(R"([
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}])");
  if (settings.mark != WordMark::never) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  root["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

}  // namespace

std::unique_ptr<Tokenizer> load_json_tokenizer(const std::filesystem::path& file,
                                               const TokenizerSettings& settings) {
  const std::string name = file.string();
  return load_json_tokenizer(parse_json_object(read_file(file, "", largest_tokenizer_file), name),
                             name, settings, "tokenizer.json");
}

std::unique_ptr<Tokenizer> load_json_tokenizer(JsonObject json, const std::string& name,
                                               const TokenizerSettings& settings,
                                               std::string_view kind) {
  const auto uses_bytes = [&](const char* part) {
    const auto found = json->find(part);
    return found != json->end() &&
           found->dump().find("\"type\":\"ByteLevel\"") != std::string::npos;
  };
  const bool spells_bytes = uses_bytes("pre_tokenizer") || uses_bytes("decoder");
  if (settings.kind == TokenizerClass::llama_tokenizer && !spells_bytes)
    rebuild_as_llama(settings, json);
  return std::make_unique<JsonTokenizer>(JsonPlace(*json, name), settings, kind);
}

}  // namespace coppice

// Tokenizers of damaged files, and of files whose parts were swapped: whatever loads encodes in
// bounded time, and typed text steers nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_file.h"
#include "fuzz/mutator.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/gguf_file.h"
#include "reference/sanitized.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tiny_model.h"
#include "reference/typed_text.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Proto = SentencepieceProto;

constexpr int tokenizer_rounds = sanitized ? 500 : 2000;

/// Texts that cost much where something goes wrong.
const std::vector<std::string>& costly_texts() {
  static const std::vector<std::string> texts = [] {
    std::string spaces(2000, ' '), letters(2000, 'a'), mixed;
    for (int i = 0; i < 100; ++i) mixed += "</s> \u2581<|im_end|>ab\u00e9\u65e5\ufdfa  ";
    return std::vector<std::string>{spaces, letters, mixed, "a" + spaces + "</s>" + spaces};
  }();
  return texts;
}

/// Loads the folder's tokenizer and tries it. Whether it loaded.
bool try_tokenizer(const fs::path& dir, const std::function<TokenId()>& unknown_id,
                   std::uint32_t seed, const std::string& what) {
  const auto refused = [&](const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    EXPECT_NE(known, nullptr) << what << ": " << error.what();
    const std::string message = error.what();
    EXPECT_EQ(message, printable(message));
    EXPECT_GT(message.size(), 10u) << message;
    EXPECT_LT(message.size(), 2000u) << message;
  };
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::load(dir);
  } catch (const std::exception& error) {
    refused(error);
    return false;
  }
  const TokenId unknown = unknown_id();
  std::vector<std::string> marks;
  for (TokenId id = 0; id < std::min(tokenizer->pieces(), 5000); ++id) {
    if (const std::string text(tokenizer->added_text(id)); !text.empty()) marks.push_back(text);
  }
  Typist typist(std::move(marks), seed);
  const std::set<TokenId> steering = steering_ids(*tokenizer, unknown);
  expect_steers_nothing(*tokenizer, steering, typist, 12, what, refused);
  const std::string& costly = costly_texts()[seed % costly_texts().size()];
  for (const std::string& text : {typist.text(), costly}) {
    try {
      const std::vector<TokenId> tokens = tokenizer->encode(text);
      tokenizer->decode(tokenizer->framed(tokens), true);
      tokenizer->decode(tokenizer->encode_typed(text));
      for (std::size_t i = 0; i < std::min<std::size_t>(tokens.size(), 20); ++i) {
        tokenizer->bytes_of(tokens[i]);
      }
    } catch (const std::exception& error) {
      refused(error);
    }
  }
  return true;
}

Json token(int id, const char* content, bool special, bool normalized) {
  return {{"id", id},
          {"content", content},
          {"special", special},
          {"normalized", normalized},
          {"lstrip", id == 5},
          {"rstrip", id == 5},
          {"single_word", id == 6}};
}

/// Files that once did harm, small: expressions that never end, stages that double a text, tokens
/// that take white space, models that find marks themselves.
std::vector<Json> harmful_files() {
  Json vocab = Json::array();
  Json by_piece = Json::object();
  for (const char* piece : {"<unk>", "<s>", "</s>", "<|im_end|>", "a",  " ",  "word", "<",
                            ">",     "/",   "s",    "\u2581",     "|",  "im", "_",    "end",
                            "<s",    "</",  "</s",  "\u00e9",     "s>", "A",  "aa",   "aaaa"}) {
    by_piece[piece] = vocab.size();
    vocab.push_back({piece, -1.0 - static_cast<double>(vocab.size() % 5)});
  }
  const Json added = {token(0, "<unk>", true, false), token(1, "<s>", true, true),
                      token(2, "</s>", true, false),  token(3, "<|im_end|>", false, true),
                      token(5, " ", false, false),    token(6, "word", false, true)};
  const Json merges = Json::array({{"<", "s"},
                                   {"<s", ">"},
                                   {"<", "/"},
                                   {"</", "s"},
                                   {"</s", ">"},
                                   {"s", ">"},
                                   {"a", "a"},
                                   {"aa", "aa"}});
  const auto replace = [](const char* kind, const char* from, const char* to) {
    return Json{{"type", "Replace"}, {"pattern", {{kind, from}}}, {"content", to}};
  };
  const auto split = [](const char* pattern) {
    return Json{{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", pattern}}}};
  };
  const Json doubling = std::vector<Json>(6, replace("String", "a", "aa"));
  const Json spelling = std::vector<Json>(
      4, {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}});
  const Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  const Json unigram = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  const Json bpe = {{"type", "BPE"},         {"unk_token", "<unk>"}, {"vocab", by_piece},
                    {"ignore_merges", true}, {"merges", merges},     {"fuse_unk", true}};
  return {
      {{"model", unigram},
       {"added_tokens", added},
       {"normalizer",
        {{"type", "Sequence"},
         {"normalizers", {{{"type", "NFKC"}}, replace("Regex", "(?<=\\K.)", "s")}}}},
       {"pre_tokenizer", metaspace},
       {"decoder", {{"type", "Sequence"}, {"decoders", doubling}}}},
      {{"model", bpe},
       {"added_tokens", added},
       {"normalizer", {{"type", "Sequence"}, {"normalizers", doubling}}},
       {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", spelling}}}},
      {{"model", bpe},
       {"added_tokens", added},
       {"normalizer",
        {{"type", "Sequence"},
         {"normalizers", {replace("String", "\u00e9", "</s>"), {{"type", "Lowercase"}}}}}},
       {"pre_tokenizer",
        {{"type", "Sequence"},
         {"pretokenizers",
          {split("(?<=\\K.)"), split("(?:a|a?)+s|\\s+(?!\\S)"), {{"type", "Digits"}}}}}},
       {"decoder", {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}}},
       {"post_processor",
        {{"type", "TemplateProcessing"},
         {"single",
          {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}},
           {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
         {"special_tokens", {{"b", {{"ids", {14}}}}}}}}}};
}

class Tokenizers : public ::testing::Test {
 protected:
  fs::path file(const char* name) const { return folder_.path() / name; }

  TokenId unknown_of_json() const {
    const JsonObject file = read_json_object(folder_.path() / "tokenizer.json", 1 << 20);
    const Json& model = file->at("model");
    const Json id = model.value("unk_id", Json()), text = model.value("unk_token", Json());
    // The other kind of model's key says nothing.
    if (model.at("vocab").is_array()) return id.is_number() ? id.get<TokenId>() : -1;
    return text.is_string() ? model.at("vocab").value(text.get<std::string>(), TokenId{-1}) : -1;
  }
  bool try_json(std::uint32_t seed, const std::string& text) {
    write_file(file("tokenizer.json"), text);
    return try_tokenizer(
        folder_.path(), [&] { return unknown_of_json(); }, seed, text);
  }

  const TemporaryFolder folder_;
};

/// A random value in a file, the file itself rarely.
Json& some_value(Json& file, Mutator& mutator) {
  Json* at = &file;
  while (at->is_structured() && !at->empty() && (at == &file || mutator.below(5) != 0)) {
    at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(mutator.below(at->size())));
  }
  return *at;
}

void swap_parts(Json& file, std::vector<Json>& others, Mutator& mutator) {
  for (std::size_t changes = 1 + mutator.below(4); changes > 0; --changes) {
    // Most of a file is vocabulary: half of the changes are elsewhere.
    Json* part = &file;
    if (mutator.below(2) == 0) {
      const char* const names[] = {"normalizer", "pre_tokenizer", "decoder", "added_tokens",
                                   "post_processor"};
      part = &file[names[mutator.below(5)]];
    }
    Json& value = some_value(*part, mutator);
    Json& other = others[mutator.below(others.size())];
    switch (mutator.below(5)) {
      case 0:
        if (value.is_boolean()) value = !value.get<bool>();
        break;
      case 1: {
        const char* const texts[] = {"</s>",   "<s>",        "",   "a", " ",
                                     "\u2581", "<|im_end|>", ".*", "s"};
        if (value.is_string()) value = texts[mutator.below(9)];
        break;
      }
      case 2:
        if (value.is_array() && !value.empty() && value.size() < 100) {
          for (std::size_t n = mutator.below(40); n > 0; --n) value.push_back(value.front());
        }
        break;
      case 3: {
        const char* const names[] = {"normalizer", "pre_tokenizer", "decoder", "model",
                                     "added_tokens"};
        const char* const name = names[mutator.below(5)];
        file[name] = other.value(name, Json());
        break;
      }
      default:
        value = some_value(other, mutator);
    }
  }
}

TEST_F(Tokenizers, OfHarmfulFiles) {
  std::vector<Json> seeds = harmful_files();
  for (const char* name : {"byte_level", "unigram", "words"}) {
    const JsonObject golden = read_json_object(
        fs::path(COPPICE_SOURCE_DIR) / "tests/golden/tokenizers" / (std::string(name) + ".json"),
        1 << 20);
    seeds.push_back(golden->at("tokenizer"));
  }
  for (const Json& seed : seeds) EXPECT_TRUE(try_json(1, seed.dump())) << seed.dump();
  Mutator mutator(21);
  int loaded = 0, swapped = 0;
  for (int i = 0; i < tokenizer_rounds; ++i) {
    Json file = seeds[mutator.below(seeds.size())];
    swap_parts(file, seeds, mutator);
    swapped += try_json(static_cast<std::uint32_t>(i), file.dump());
    const Json& small = seeds[mutator.below(3)];
    loaded += try_json(static_cast<std::uint32_t>(i), mutator.mutate(small.dump()));
    ASSERT_FALSE(HasFailure()) << "round " << i;
  }
  EXPECT_GT(swapped, tokenizer_rounds / 4);
  EXPECT_GT(loaded, tokenizer_rounds / 40);
}

TEST_F(Tokenizers, OfPiecesThatAreMarks) {
  Proto proto;
  proto.piece("<unk>", PieceKind::unknown).piece("<s>", PieceKind::control);
  proto.piece("</s>", PieceKind::control).piece("<turn>", PieceKind::user_defined, 0.0f);
  proto.piece("<free>", PieceKind::user_defined, 0.0f).piece("X", PieceKind::user_defined, 0.0f);
  for (const char* one : {"<", ">", "t", "u", "r", "n", "e", "f", "s", "/", "\u2581", "a", "</",
                          "</s", "turn", "aa", "\u2581a"}) {
    proto.piece(one, PieceKind::normal, -3.0f);
  }
  Mutator mutator(22);
  int loaded = 0;
  for (int i = 0; i < tokenizer_rounds; ++i) {
    proto.type = 1 + static_cast<int>(mutator.below(4));
    const char* const classes[] = {"PreTrainedTokenizerFast", "LlamaTokenizer", "GemmaTokenizer"};
    const std::size_t kind = mutator.below(3);
    Json config = {{"eos_token", "</s>"},
                   {"tokenizer_class", classes[kind]},
                   {"legacy", mutator.below(2) == 0},
                   {"added_tokens_decoder",
                    {{"3", {{"content", "<turn>"}, {"special", mutator.below(2) == 0}}},
                     {"20", {{"content", "turn"}, {"rstrip", true}, {"special", true}}}}}};
    if (kind == 0) config["added_tokens_decoder"]["4"] = {{"content", "<end>"}, {"lstrip", true}};
    std::string settings = config.dump(), bytes = proto.file();
    const std::size_t damage = mutator.below(3);
    if (damage == 1) settings = mutator.mutate(settings);
    if (damage == 2) bytes = mutator.mutate(bytes);
    write_file(file("tokenizer.model"), bytes);
    write_file(file("tokenizer_config.json"), settings);
    const auto unknown = [&] {
      const auto pieces = read_sentencepiece(bytes, "again").pieces;
      const auto is_unknown = [](const auto& piece) { return piece.kind == PieceKind::unknown; };
      return static_cast<TokenId>(std::find_if(pieces.begin(), pieces.end(), is_unknown) -
                                  pieces.begin());
    };
    loaded += try_tokenizer(folder_.path(), unknown, static_cast<std::uint32_t>(i),
                            ::testing::PrintToString(bytes) + settings);
    ASSERT_FALSE(HasFailure()) << "round " << i;
  }
  EXPECT_GT(loaded, tokenizer_rounds / 3);
}

// Kinds, ids and settings at random: whatever loads, typed text becomes no mark.
TEST_F(Tokenizers, OfGgufFiles) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<turn>", "[PAD]", "  "};
  for (const char* one :
       {"<",  ">",   "t",    "u",  "r",       "n", "s", "/", "\u2581", "a", "\u0120",
        "</", "</s", "turn", "aa", "\u2581a", "A", "[", "]", "P",      "D"}) {
    tokens.emplace_back(one);
  }
  const std::vector<std::string> merges = {"< /", "</ s", "</s >", "a a", "[ P"};
  const char* const names[] = {"llama-bpe", "qwen2", "gpt-2", "smollm", "tekken", "viking"};
  Mutator mutator(23);
  int loaded = 0;
  for (int i = 0; i < tokenizer_rounds; ++i) {
    const bool pairs = mutator.below(2) == 0;
    std::vector<int> kinds = {2, 3, 3, 4, 5, 4};
    kinds.resize(tokens.size(), 1);
    for (std::size_t n = mutator.below(4); n > 0; --n) {
      kinds[1 + mutator.below(kinds.size() - 1)] = 1 + static_cast<int>(mutator.below(6));
    }
    GgufBytes metadata = shapes_of(mutator.below(3) == 0 ? "phi3" : "llama");
    metadata.add("tokenizer.ggml.model", pairs ? "gpt2" : "llama");
    metadata.add("tokenizer.ggml.pre", names[mutator.below(6)]);
    metadata.add("tokenizer.ggml.tokens", tokens).add("tokenizer.ggml.token_type", kinds);
    metadata.add("tokenizer.ggml.merges", merges);
    metadata.add("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
    for (const char* name : {"bos", "eos", "eot", "unknown", "padding"}) {
      if (mutator.below(2) == 0) continue;
      metadata.add("tokenizer.ggml." + std::string(name) + "_token_id",
                   static_cast<int>(mutator.below(tokens.size() + 2)));
    }
    for (const char* flag : {"add_bos_token", "add_eos_token", "add_space_prefix"}) {
      metadata.add("tokenizer.ggml." + std::string(flag), mutator.below(2) == 0);
    }
    std::string bytes = metadata.bytes();
    if (mutator.below(3) == 0) bytes = mutator.mutate(bytes);
    write_file(file("m.gguf"), bytes);
    loaded += try_tokenizer(
        file("m.gguf"), [&] { return TokenId{pairs ? -1 : 0}; }, static_cast<std::uint32_t>(i),
        "round " + std::to_string(i));
    ASSERT_FALSE(HasFailure()) << "round " << i;
  }
  EXPECT_GT(loaded, tokenizer_rounds / 6);
}

}  // namespace
}  // namespace coppice::testing

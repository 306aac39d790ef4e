// Typed text becomes no special token, whatever the file: the goldens, files made at random, and
// what each kind of model would find by itself.
#include "reference/typed_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/gguf_vocabulary.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tokenizer_file.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
using Proto = SentencepieceProto;

const fs::path golden_files = fs::path(COPPICE_SOURCE_DIR) / "tests/golden/tokenizers";

std::unique_ptr<Tokenizer> load_proto(const Proto& proto, const std::string& config = "") {
  return load_tokenizer("tokenizer.model", proto.file(), config);
}

std::vector<std::string> added_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (TokenId id = 0; id < tokenizer.pieces(); ++id) {
    if (const std::string text(tokenizer.added_text(id)); !text.empty()) texts.push_back(text);
  }
  return texts;
}

void rethrow(const std::exception& error) { FAIL() << error.what(); }

TEST(TypedText, SteersNothingInGoldens) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(golden_files)) {
    if (entry.path().extension() != ".json") continue;
    const JsonObject file = read_json_object(entry.path(), 1 << 20);
    const auto tokenizer = load_json(file->at("tokenizer"));
    Typist typist(added_texts(*tokenizer), 3);
    // All of them call piece 0 unknown.
    EXPECT_EQ(expect_steers_nothing(*tokenizer, steering_ids(*tokenizer, 0), typist, 2000,
                                    entry.path().filename(), rethrow),
              2000);
    ++files;
  }
  EXPECT_EQ(files, 9);
}

// By what the metadata name or by their kind, marks are added tokens: nobody types one.
TEST(TypedText, SteersNothingInGgufFiles) {
  const auto expect = [](const GgufBytes& file, TokenId unknown, const std::set<TokenId>& marks) {
    const auto tokenizer = load_gguf(file);
    std::set<TokenId> steering = steering_ids(*tokenizer, unknown);
    for (const TokenId mark : marks) {
      EXPECT_EQ(tokenizer->encode(std::string(tokenizer->piece(mark))).back(), mark)
          << "by what is not typed";
      steering.insert(mark);
    }
    Typist typist(added_texts(*tokenizer), 7);
    EXPECT_EQ(expect_steers_nothing(*tokenizer, steering, typist, 1000, "GGUF", rethrow), 1000);
  };
  const Json golden = gguf_golden("bpe"), pieces = gguf_golden("sentencepiece");
  for (const auto& [name, ids] : golden["ids"].items()) {
    expect(bpe_metadata(golden, name), -1, {0, 1, 2, 3, 4});
  }
  expect(sentencepiece_metadata(pieces), 0, {1, 2, 3, 4});
  expect(sentencepiece_metadata(pieces, "phi3"), 0, {1, 2, 3, 4});
  // Some files call marks ordinary pieces.
  Json plain = golden;
  for (Json& kind : plain["token_type"]) kind = 1;
  expect(bpe_metadata(plain, "llama-bpe"), -1, {0, 1, 2, 3});
}

// Every character of these has a piece of its own, or bytes, and nothing is rewritten.
TEST(TypedText, IsWhatItsTokensSpell) {
  for (const char* name : {"byte_level", "each_start", "whole_text"}) {
    const JsonObject file = read_json_object(golden_files / (std::string(name) + ".json"), 1 << 20);
    const auto tokenizer = load_json(file->at("tokenizer"));
    Typist typist(added_texts(*tokenizer), 4);
    int told = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::string text = typist.text();
      const std::string shown = tokenizer->decode(tokenizer->encode_typed(text));
      // A word mark is shown as a space.
      if (text.find("\u2581") != text.npos) continue;
      if (std::string(name) == "each_start" && text.starts_with(' ')) continue;
      EXPECT_EQ(shown, text) << name;
      ++told;
    }
    EXPECT_GT(told, 1000);
  }
}

Json added(TokenId id, const std::string& content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

TEST(TypedText, IsSpeltWhereAUnigramHoldsTheMark) {
  Json vocab = Json::array();
  for (const char* piece : {"<unk>", "<s>", "</s>", "<", ">", "/", "s", "/s", "a", "un", "k"}) {
    vocab.push_back({piece, std::string(piece).size() > 2 ? -1.0 : -2.0});
  }
  Json json = {
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}},
      {"added_tokens", {added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)}}};
  const auto tokenizer = load_json(json);
  EXPECT_EQ(tokenizer->encode("a</s>"), Ids({8, 2}));
  EXPECT_EQ(tokenizer->encode_typed("a</s>"), Ids({8, 3, 7, 4}));
  EXPECT_EQ(tokenizer->encode_typed("<s>"), Ids({3, 6, 4}));
  EXPECT_EQ(tokenizer->encode_typed("a<unk>a"), Ids({8, 3, 9, 10, 4, 8})) << "it has pieces";
  EXPECT_EQ(tokenizer->encode_typed("?"), Ids({0})) << "it has none";
  const std::vector<TextPart> parts = {{"<s>a"}, {"</s>", true}, {"</s>"}};
  EXPECT_EQ(tokenizer->encode(parts), Ids({1, 8, 3, 7, 4, 2}));
  // In full width it is the mark once it is normalized.
  json["normalizer"] = {{"type", "NFKC"}};
  EXPECT_EQ(load_json(json)->encode_typed("\uff1c\uff0f\uff53\uff1e"), Ids({3, 7, 4}));
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "</s>"}};
  EXPECT_EQ(load_json(json)->encode_typed("a"), Ids({3, 7, 4}));
  // Without pieces for its characters the mark is unknown text.
  for (const int id : {3, 4, 5, 6, 7}) json["model"]["vocab"][id][0] = "x" + std::to_string(id);
  json["normalizer"] = nullptr;
  EXPECT_EQ(load_json(json)->encode_typed("</s>"), Ids({0, 0}));
}

TEST(TypedText, IsSpeltWhereMergesMakeTheMark) {
  Json vocab;
  for (const char* piece : {"<unk>", "<", "s", ">", "<s", "<s>", "<s>s", "a", "s>"}) {
    vocab[piece] = vocab.size();
  }
  for (const bool ignores : {false, true}) {
    Json json = {{"model",
                  {{"type", "BPE"},
                   {"unk_token", "<unk>"},
                   {"vocab", vocab},
                   {"ignore_merges", ignores},
                   {"merges", Json::array({{"<", "s"}, {"<s", ">"}, {"<s>", "s"}})}}},
                 {"added_tokens", {added(5, "<s>", true)}}};
    EXPECT_EQ(load_json(json)->encode_typed("a<s>a"),
              ignores ? Ids({7, 1, 8, 7}) : Ids({7, 1, 2, 3, 7}));
    EXPECT_EQ(load_json(json)->encode_typed("<s>"), ignores ? Ids({1, 8}) : Ids({1, 2, 3}));
    EXPECT_EQ(load_json(json)->encode_typed("<s>s"), Ids({6})) << "a word of its own";
    json["model"]["merges"].push_back({"s", ">"});
    EXPECT_EQ(load_json(json)->encode_typed("<s>"), Ids({1, 8}));
    // A mark of roles that a file does not call special, a token around texts, and what
    // tokenizer_config.json adds.
    json["added_tokens"][0]["special"] = false;
    EXPECT_EQ(load_json(json)->encode_typed("<s>"), Ids({1, 8}));
    json["added_tokens"] = Json::array();
    EXPECT_EQ(load_json(json)->encode_typed("<s>"), Ids({5}));
    EXPECT_EQ(load_json(json, R"({"eos_token": "<s>"})")->encode_typed("<s>"), Ids({1, 8}));
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single",
                               {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}},
                                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                              {"special_tokens", {{"b", {{"ids", {5}}}}}}};
    EXPECT_EQ(load_json(json)->encode_typed("<s>"), Ids({1, 8}));
  }
}

TEST(TypedText, KeepsCharactersAndSpacesThatAFileAdds) {
  const std::string mark = "\u2581";
  Json json = {
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"vocab", {{"<unk>", 0}, {"a", 1}, {mark, 2}, {mark + mark, 3}, {"X", 4}}},
        {"merges", Json::array({Json::array({mark, mark})})}}},
      {"added_tokens", {added(1, "a", false), added(3, mark + mark, true), added(4, "X", true)}}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    json["model"]["vocab"][text] = 5 + byte;
  }
  const auto tokenizer = load_json(json);
  EXPECT_EQ(tokenizer->encode_typed("a" + mark + mark), Ids({1, 3}));
  EXPECT_EQ(tokenizer->encode_typed("aX"), Ids({1, 5 + 'X'})) << "special, so it is bytes";
}

Proto chat_pieces(int type) {
  Proto proto;
  proto.type = type;
  proto.piece("<unk>", PieceKind::unknown).piece("<s>", PieceKind::control);
  proto.piece("</s>", PieceKind::control).piece("<turn>", PieceKind::user_defined, 0.0f);
  proto.piece("\n\n", PieceKind::user_defined, 0.0f).piece("X", PieceKind::user_defined, 0.0f);
  proto.piece("<free>", PieceKind::user_defined, 0.0f);
  for (const char* one : {"<", ">", "t", "u", "r", "n", "e", "f", "s", "/", "\u2581", "a"}) {
    proto.piece(one, PieceKind::normal, -3.0f);
  }
  return proto.piece("turn", PieceKind::normal, -4.0f).piece("</s", PieceKind::normal, -4.0f);
}

// Gemma's role marks are user-defined: the library finds them in any text.
TEST(TypedText, IsSpeltWhereATokenizerModelFindsTheMark) {
  enum { less = 7, greater, t, u, r, n, e, f, s, slash, boundary, a, turn };
  for (const int type : {1, 2}) {  // Unigram, BPE
    SCOPED_TRACE(type);
    const auto tokenizer = load_proto(chat_pieces(type));
    const Ids spelt = type == 1 ? Ids{less, turn, greater} : Ids{less, t, u, r, n, greater};
    const auto with = [&](Ids before, const Ids& behind) {
      before.insert(before.end(), spelt.begin(), spelt.end());
      before.insert(before.end(), behind.begin(), behind.end());
      return before;
    };
    EXPECT_EQ(tokenizer->encode("a<turn>a"), Ids({boundary, a, 3, a}));
    EXPECT_EQ(tokenizer->encode_typed("a<turn>a"), with({boundary, a}, {a}));
    EXPECT_EQ(tokenizer->encode_typed("a<turn>a", a), with({a}, {a}));
    EXPECT_EQ(tokenizer->encode_typed("a\n\nX"), Ids({boundary, a, 4, 5})) << "text";
    // In one stretch the library finds what the template spells.
    const std::vector<TextPart> parts = {
        {"<turn>a"}, {"<turn>", true}, {"a<turn>"}, {"<tu", true}, {"rn>"}};
    EXPECT_EQ(tokenizer->encode(parts), with(with({boundary, 3, a}, {a, 3}), {}));
    // A placeholder that another file renames, spelt by its new name and by its old one.
    const std::string config = R"({"added_tokens_decoder": {"6": {"content": "<end>"}}})";
    const auto renamed = load_proto(chat_pieces(type), config);
    EXPECT_EQ(renamed->encode("<end>a").front(), 6);
    for (const char* text : {"<end>", "<free>", "a <free>a"}) {
      const Ids ids = renamed->encode_typed(text);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 6), 0) << text;
    }
    EXPECT_EQ(renamed->decode(renamed->encode_typed("<free>")), "<free>");
  }
}

/// Pieces that marks may be merged of, in random order.
std::vector<std::string> pieces_for(const std::vector<std::string>& marks, std::mt19937& random) {
  std::set<std::string> pieces = {"a", "b", "w", "o", "r", "d", "\u2581"};
  for (const std::string& mark : marks) {
    const auto characters = characters_of(mark);
    std::string begun;
    for (const std::string& one : characters) {
      if (random() % 8 != 0) pieces.insert(one);
      begun += one;
      if (random() % 2 != 0) pieces.insert(begun);
    }
    pieces.insert(mark);
  }
  std::vector<std::string> out(pieces.begin(), pieces.end());
  std::shuffle(out.begin(), out.end(), random);
  return out;
}

const std::vector<std::string> marks_to_draw = {"<s>",
                                                "</s>",
                                                "<|im_end|>",
                                                "<s><s>",
                                                "s>",
                                                "<|",
                                                "[INST]",
                                                "x",
                                                "word",
                                                "<pad>",
                                                "\u2581<m>",
                                                "<0x41>",
                                                "\uff5cend\u2581of\uff5c",
                                                "  ",
                                                "\u2581\u2581",
                                                "aaa",
                                                "aa"};

std::vector<std::string> some_marks(std::mt19937& random) {
  std::vector<std::string> marks = marks_to_draw;
  std::shuffle(marks.begin(), marks.end(), random);
  marks.resize(1 + random() % 8);
  return marks;
}

TEST(TypedText, SteersNothingInRandomTokenizers) {
  std::mt19937 random(9);
  int encoded = 0, steering = 0;
  for (int round = 0; round < 400; ++round) {
    const auto chance = [&](std::uint32_t of) { return random() % of == 0; };
    const std::vector<std::string> marks = some_marks(random);
    std::vector<std::string> pieces = pieces_for(marks, random);
    pieces.insert(pieces.begin(), "<unk>");
    if (chance(2)) {
      for (int byte = 0; byte < 256; ++byte) {
        char text[8];
        std::snprintf(text, sizeof text, "<0x%02X>", byte);
        if (std::find(pieces.begin(), pieces.end(), text) == pieces.end()) pieces.push_back(text);
      }
    }
    Json json;
    Json& model = json["model"] = {{"byte_fallback", chance(2)}};
    if (chance(2)) {
      model["type"] = "Unigram";
      if (!chance(8)) model["unk_id"] = 0;
      for (const std::string& piece : pieces) {
        model["vocab"].push_back({piece, -1.0 - static_cast<double>(random() % 10)});
      }
    } else {
      model["type"] = "BPE";
      model["ignore_merges"] = chance(2);
      model["fuse_unk"] = chance(2);
      if (!chance(8)) model["unk_token"] = "<unk>";
      Json& vocab = model["vocab"] = Json::object();
      for (const std::string& piece : pieces) vocab[piece] = vocab.size();
      model["merges"] = Json::array();
      for (const std::string& piece : pieces) {
        for (std::size_t at = 1; at < piece.size(); ++at) {
          const std::string left = piece.substr(0, at), right = piece.substr(at);
          if (vocab.contains(left) && vocab.contains(right))
            model["merges"].push_back({left, right});
        }
      }
    }
    json["added_tokens"] = Json::array();
    if (chance(2)) json["added_tokens"].push_back(added(0, "<unk>", true));
    for (const std::string& mark : marks) {
      const auto at = std::find(pieces.begin(), pieces.end(), mark) - pieces.begin();
      Json token = added(static_cast<TokenId>(at), mark, chance(2));
      for (const char* flag : {"normalized", "lstrip", "rstrip", "single_word"}) {
        token[flag] = chance(3);
      }
      json["added_tokens"].push_back(token);
    }
    const std::vector<Json> normalizers = {
        nullptr,
        {{"type", "NFKC"}},
        {{"type", "Lowercase"}},
        {{"type", "Prepend"}, {"prepend", "\u2581"}},
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", marks.front()}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}};
    const Json metaspace = {{"type", "Metaspace"},
                            {"replacement", "\u2581"},
                            {"prepend_scheme", "always"},
                            {"split", chance(2)}};
    const std::vector<Json> pre_tokenizers = {
        nullptr,
        metaspace,
        {{"type", "ByteLevel"}, {"add_prefix_space", chance(2)}, {"use_regex", chance(2)}},
        {{"type", "Punctuation"}, {"behavior", "Contiguous"}},
        {{"type", "WhitespaceSplit"}}};
    json["normalizer"] = normalizers[random() % normalizers.size()];
    json["pre_tokenizer"] = pre_tokenizers[random() % pre_tokenizers.size()];
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = load_json(json);
    } catch (const Error& error) {
      continue;  // nothing is left of an added token
    }
    const bool has_unknown = model.contains("unk_id") || model.contains("unk_token");
    Typist typist(marks, static_cast<std::uint32_t>(round));
    encoded += expect_steers_nothing(*tokenizer, steering_ids(*tokenizer, has_unknown ? 0 : -1),
                                     typist, 60, json.dump(), [](const std::exception& error) {
                                       EXPECT_NE(std::string(error.what()).find("no piece for"),
                                                 std::string::npos);
                                     });
    for (const std::string& mark : marks) {
      for (const TokenId token : tokenizer->encode(mark))
        steering += !tokenizer->added_text(token).empty();
    }
  }
  EXPECT_GT(encoded, 20'000);
  EXPECT_GT(steering, 1000) << "texts that nobody typed";
}

TEST(TypedText, SteersNothingInRandomTokenizerModels) {
  std::mt19937 random(10);
  int encoded = 0;
  for (int round = 0; round < 150; ++round) {
    const auto chance = [&](std::uint32_t of) { return random() % of == 0; };
    const std::vector<std::string> marks = some_marks(random);
    Proto proto;
    proto.type = 1 + static_cast<int>(random() % 4);  // Unigram, BPE, words, characters
    proto.normalizer = Proto::bytes_field(1, "identity") + Proto::number_field(3, random() % 2) +
                       Proto::number_field(4, random() % 2);
    proto.piece("<unk>", PieceKind::unknown);
    proto.byte_fallback = chance(2);
    std::set<TokenId> steering;
    TokenId count = 1;
    for (const std::string& piece : pieces_for(marks, random)) {
      const bool marked = std::find(marks.begin(), marks.end(), piece) != marks.end();
      const PieceKind kind = !marked                        ? PieceKind::normal
                             : chance(3)                    ? PieceKind::control
                             : chance(2)                    ? PieceKind::user_defined
                             : chance(2) && proto.type != 2 ? PieceKind::unused
                                                            : PieceKind::normal;
      if (proto.byte_fallback && piece.starts_with("<0x")) continue;
      const auto characters = characters_of(piece);
      const bool space = piece.find_first_not_of(" \xe2\x96\x81") == piece.npos;
      if (!space && (kind == PieceKind::control ||
                     (kind == PieceKind::user_defined && characters.size() > 1))) {
        steering.insert(count);
      }
      proto.piece(piece, kind, -1.0f - static_cast<float>(random() % 10));
      ++count;
    }
    for (int byte = 0; byte < 256 && proto.byte_fallback; ++byte) {
      char text[8];
      std::snprintf(text, sizeof text, "<0x%02X>", byte);
      proto.piece(text, PieceKind::byte);
    }
    Json config = Json::object();
    if (chance(3)) config["tokenizer_class"] = chance(2) ? "LlamaTokenizer" : "GemmaTokenizer";
    if (chance(2)) config["eos_token"] = marks.front();
    if (chance(2)) {
      config["added_tokens_decoder"][std::to_string(1 + random() % 10)] = {{"content", "<end>"},
                                                                           {"special", chance(2)}};
    }
    std::unique_ptr<Tokenizer> tokenizer;
    try {
      tokenizer = load_proto(proto, config.dump());
    } catch (const Error&) {
      continue;  // an id that is taken
    }
    steering.merge(steering_ids(*tokenizer, 0));
    Typist typist(marks, static_cast<std::uint32_t>(round));
    encoded += expect_steers_nothing(
        *tokenizer, steering, typist, 60, config.dump(), [](const std::exception& error) {
          // The library's models of words, and some of pairs, cannot encode every text.
          EXPECT_NE(std::string(error.what()).find("cannot encode"), std::string::npos);
        });
  }
  EXPECT_GT(encoded, 5000);
}

}  // namespace
}  // namespace coppice::testing

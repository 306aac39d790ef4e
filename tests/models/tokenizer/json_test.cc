// tokenizer.json: what the tokenizers package did (golden files), what the definitions say, and
// files that were made to do harm.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/tiny_model.h"
#include "reference/tokenizer_file.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
using testing::TemporaryFolder;
using testing::write_file;

const fs::path source = COPPICE_SOURCE_DIR;

Json golden(const std::string& name) {
  return *read_json_object(source / "tests/golden/tokenizers" / (name + ".json"), 1 << 20);
}

std::unique_ptr<Tokenizer> load_text(const std::string& text) {
  return testing::load_tokenizer("tokenizer.json", text);
}
std::unique_ptr<Tokenizer> load(const Json& json) { return load_text(json.dump()); }

std::string refusal_of_text(const std::string& text) {
  try {
    load_text(text);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_NE(message.find("tokenizer.json: "), message.npos) << message;
    EXPECT_EQ(message, printable(message));
    EXPECT_LT(message.size(), 1000u);
    return message;
  }
  return "accepted";
}
std::string refusal(const Json& json) { return refusal_of_text(json.dump()); }

/// Single letters, then `merges`; no pre-tokenizer.
Json letters(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  Json vocab = {{"<unk>", 0}, {"\u2581", 1}};
  for (const char letter : std::string("abcd")) vocab[std::string(1, letter)] = vocab.size();
  Json pairs = Json::array();
  for (const auto& [left, right] : merges) {
    vocab.emplace(left + right, vocab.size());
    pairs.push_back({left, right});
  }
  return {
      {"model", {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocab}, {"merges", pairs}}}};
}

class GoldenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, DoesWhatThePackageDid) {
  const Json file = golden(GetParam());
  const auto tokenizer = load(file["tokenizer"]);
  ASSERT_GT(file["vectors"].size(), 40u);
  for (int round = 0; round < 2; ++round) {  // the second finds its words in the cache
    for (const Json& vector : file["vectors"]) {
      const auto text = vector["text"].get<std::string>();
      const Ids ids = tokenizer->encode(text);
      EXPECT_EQ(ids, vector["ids"].get<Ids>()) << text;
      EXPECT_EQ(tokenizer->framed(ids), vector["framed"].get<Ids>()) << text;
      EXPECT_EQ(tokenizer->decode(ids, true), vector["decoded"].get<std::string>()) << text;
      EXPECT_LE(text.size(), tokenizer->most_bytes(ids.size()));
    }
  }
}

// A text that is cut where a token ends, its second part appended to the tokens of its first.
TEST_P(GoldenTokenizer, AppendsWhatThePackageJoins) {
  const Json file = golden(GetParam());
  const auto tokenizer = load(file["tokenizer"]);
  int seams = 0;
  for (const Json& vector : file["vectors"]) {
    const auto text = vector["text"].get<std::string>();
    const Ids ids = vector["ids"].get<Ids>();
    for (const Json& seam : vector["seams"]) {
      const auto tokens = seam[0].get<std::size_t>(), bytes = seam[1].get<std::size_t>();
      const Ids rest(ids.begin() + static_cast<std::ptrdiff_t>(tokens), ids.end());
      EXPECT_EQ(tokenizer->encode(text.substr(bytes), ids[tokens - 1]), rest)
          << text << " at " << bytes;
      ++seams;
    }
  }
  EXPECT_GT(seams, 100);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer,
                         ::testing::Values("after_space", "byte_level", "each_start", "first_word",
                                           "many_cuts", "unigram", "unigram_bytes", "whole_text",
                                           "words"),
                         [](const auto& given) { return std::string(given.param); });

// What a stream shows token by token is the text, but for the space before the first word.
TEST(JsonTokenizer, BytesOfTokensAddUpToTheText) {
  for (const char* name : {"byte_level", "whole_text", "unigram", "many_cuts"}) {
    const Json file = golden(name);
    const auto tokenizer = load(file["tokenizer"]);
    for (const Json& vector : file["vectors"]) {
      const Ids ids = tokenizer->encode(vector["text"].get<std::string>());
      std::string joined;
      for (const TokenId id : ids) joined += tokenizer->bytes_of(id);
      const std::string whole = tokenizer->decode(ids);
      EXPECT_TRUE(joined == whole || joined == " " + whole) << name << ": " << joined;
    }
    EXPECT_EQ(tokenizer->bytes_of(-1), "");
    EXPECT_EQ(tokenizer->bytes_of(tokenizer->pieces()), "");
    EXPECT_EQ(tokenizer->piece(1), "<s>");
    EXPECT_EQ(tokenizer->bytes_of(1), "") << "special tokens are not shown";
  }
}

// A byte-level token may end inside a character.
TEST(JsonTokenizer, TokensAreBytesNotCharacters) {
  const auto tokenizer = load(golden("byte_level")["tokenizer"]);
  const std::string text = "\xF0\x9F\x98\x80";
  const Ids ids = tokenizer->encode(text);
  ASSERT_EQ(ids.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tokenizer->bytes_of(ids[i]), text.substr(i, 1));
  EXPECT_EQ(tokenizer->decode(std::span(ids).first(2)), "\xEF\xBF\xBD");
}

/// Merges by the definition: always the pair of lowest rank, the leftmost of equals.
Ids merged(std::string_view text, const Json& model) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  const Json& merges = model["merges"];
  for (;;) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
      for (std::size_t rank = 0; rank < best; ++rank) {
        if (merges[rank][0] != pieces[i] || merges[rank][1] != pieces[i + 1]) continue;
        best = rank;
        at = i;
      }
    }
    if (best == merges.size()) break;
    pieces[at] += pieces[at + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& piece : pieces) ids.push_back(model["vocab"][piece].get<TokenId>());
  return ids;
}

TEST(JsonTokenizer, MergesByTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> pieces = {"a", "b", "c", "d"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 25; ++i) {
      const std::string left = pieces[random() % pieces.size()];
      const std::string right = pieces[random() % pieces.size()];
      if (std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
      merges.emplace_back(left, right);
      pieces.push_back(left + right);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const Json json = letters(merges);
    const auto tokenizer = load(json);
    for (const std::size_t length : {1u, 2u, 7u, 31u, 32u, 33u, 90u}) {
      std::string text;
      const std::uint32_t used = 1 + random() % 4;
      for (std::size_t i = 0; i < length; ++i) text += "abcd"[random() % used];
      EXPECT_EQ(tokenizer->encode(text), merged(text, json["model"])) << text;
    }
  }
}

// One word of a million letters: pairs, pairs of pairs, and what is left over.
TEST(JsonTokenizer, OneLongWord) {
  const auto tokenizer = load(letters({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}));
  const Ids ids = tokenizer->encode(std::string(1'000'005, 'a'));
  ASSERT_EQ(ids.size(), 125'000u + 2u);
  EXPECT_EQ(tokenizer->piece(ids[0]), "aaaaaaaa");
  EXPECT_EQ(tokenizer->piece(ids[125'000]), "aaaa");
  EXPECT_EQ(tokenizer->piece(ids[125'001]), "a");
}

// Text is cut before word marks if no piece reaches across; here one does.
TEST(JsonTokenizer, PiecesMayReachAcrossWordMarks) {
  const std::string mark = "\u2581";
  const Json json = letters({{"a", mark}, {"a" + mark, "b"}});
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("a" + mark + "b"), Ids({7}));
  EXPECT_EQ(tokenizer->encode("c" + mark + "b"), Ids({4, 1, 3}));
}

// What the tokenizers package (0.23) does where stages meet.
TEST(JsonTokenizer, CharactersThatAreDroppedPartNothing) {
  const std::string mark = "\u2581";
  Json json = letters({{"a", mark}});
  EXPECT_EQ(load(json)->encode("ax" + mark + "b"), Ids({2, 0, 1, 3}));
  json["model"].erase("unk_token");
  EXPECT_EQ(load(json)->encode("ax" + mark + "b"), Ids({6, 3}));
}

TEST(JsonTokenizer, WhiteSpaceBelongsToOneAddedToken) {
  Json json = letters();
  json["added_tokens"] = {{{"id", 6}, {"content", "<m>"}, {"rstrip", true}, {"normalized", false}},
                          {{"id", 7}, {"content", "  "}, {"lstrip", true}, {"normalized", false}}};
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("a<m>  b"), Ids({2, 6, 3}));
  EXPECT_EQ(tokenizer->encode("a<m> b  c"), Ids({2, 6, 3, 7, 4}));
}

TEST(JsonTokenizer, WhatIsReplacedByNothingWasTheFirstWord) {
  for (const char* kind : {"Regex", "String"}) {
    Json json = letters();
    json["normalizer"] = {{"type", "Replace"}, {"pattern", {{kind, "x"}}}, {"content", ""}};
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
    const auto tokenizer = load(json);
    EXPECT_EQ(tokenizer->encode("xab"), Ids({2, 3})) << kind;
    EXPECT_EQ(tokenizer->encode("axb"), Ids({1, 2, 3})) << kind;
    // What stands for several characters stands where the last of them did.
    json["normalizer"] = {{"type", "Replace"}, {"pattern", {{kind, "xx"}}}, {"content", "c"}};
    EXPECT_EQ(load(json)->encode("xxb"), Ids({4, 3})) << kind;
    json["normalizer"]["pattern"] = {{kind, "x"}};
    EXPECT_EQ(load(json)->encode("xb"), Ids({1, 4, 3})) << kind;
  }
}

// A word mark that is still to be spelt in the byte alphabet is no border.
TEST(JsonTokenizer, SpeltWordMarksPartNothing) {
  Json json = letters();
  json["model"]["fuse_unk"] = true;
  json["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  EXPECT_EQ(load(json)->encode("xx\u2581x\u2581a"), Ids({0, 2}));
}

TEST(JsonTokenizer, PatternsThatMatchNothing) {
  const std::vector<std::tuple<Json, Ids, std::string>> cases = {
      {{{"Regex", "x*"}}, {4, 2, 4, 3, 4}, "cbc"},
      {{{"Regex", "x|"}}, {4, 2, 4, 4, 3, 4}, "cbc"},
      {{{"Regex", "(?=b)"}}, {2, 0, 0, 4, 3}, "cb"},
      {{{"String", ""}}, {4, 2, 4, 0, 4, 0, 4, 3, 4}, "cbc"},
  };
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  const Json drop = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", ""}};
  for (const auto& [pattern, ids, text] : cases) {
    SCOPED_TRACE(pattern.dump());
    const Json replace = {{"type", "Replace"}, {"pattern", pattern}, {"content", "c"}};
    Json json = letters();
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {strip, replace}}};
    json["decoder"] = {{"type", "Sequence"}, {"decoders", {drop, replace}}};
    const auto tokenizer = load(json);
    EXPECT_EQ(tokenizer->encode("axxb"), ids);
    EXPECT_EQ(tokenizer->encode(" "), Ids());  // empty when it is replaced
    EXPECT_EQ(tokenizer->decode(Ids({2}), true), "");
    EXPECT_EQ(tokenizer->decode(Ids({2, 3}), true), text);
  }
  Json json = letters({{"a", "b"}});
  EXPECT_EQ(load(json)->encode("ab"), Ids({6}));
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Removed"}};
  EXPECT_EQ(load(json)->encode("ab"), Ids({2, 3}));
}

TEST(JsonTokenizer, PunctuationIsThatOfUnicode8) {
  Json json = letters();
  json["pre_tokenizer"] = {{"type", "Punctuation"}, {"behavior", "Removed"}};
  const auto tokenizer = load(json);
  for (const char* one :
       {"$", "-", "\u00BF", "\u0970", "\u166D", "\u2E42", "\u3001", "\U0001DA8B"}) {
    EXPECT_EQ(tokenizer->encode(std::string("a") + one + "b"), Ids({2, 3})) << one;
  }
  for (const char* one : {"\u00A9", "\u09FD", "\u1B7D", "\u2E43", "\U0001145B", "\U0001E95F"}) {
    EXPECT_EQ(tokenizer->encode(std::string("a") + one + "b"), Ids({2, 0, 3})) << one;
  }
}

TEST(JsonTokenizer, RefusesAddedTokensOfNothing) {
  Json json = letters();
  json["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  json["added_tokens"] = {{{"id", 6}, {"content", "\n"}, {"normalized", true}}};
  EXPECT_NE(refusal(json).find("added_tokens[0]: '\\n' is looked for as"), std::string::npos)
      << refusal(json);
  json["added_tokens"][0]["normalized"] = false;
  EXPECT_EQ(load(json)->encode("a\nb"), Ids({2, 6, 3}));
}

TEST(JsonTokenizer, ASequenceOfNoDecodersPutsNoSpaces) {
  Json json = letters();
  const Ids ids = {2, 3};
  EXPECT_EQ(load(json)->decode(ids, true), "a b");
  json["decoder"] = {{"type", "Sequence"}, {"decoders", Json::array()}};
  EXPECT_EQ(load(json)->decode(ids, true), "ab");
}

TEST(JsonTokenizer, TypedTextSteersNothing) {
  const auto tokenizer = load(golden("byte_level")["tokenizer"]);
  const auto id = [&](const std::string& text) {
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(ids.size(), 1u) << text;
    return ids.front();
  };
  const std::vector<std::string> marks = {"<s>", "</s>", "<think>", "</think>", "<mask>", "<end>"};
  std::string all;
  for (const std::string& mark : marks) {
    EXPECT_EQ(tokenizer->piece(id(mark)), mark);
    all += mark;
  }
  for (const TokenId token : tokenizer->encode_typed(all)) {
    const auto piece = std::string(tokenizer->piece(token));
    EXPECT_EQ(std::count(marks.begin(), marks.end(), piece), 0) << piece;
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->encode_typed(all)), all);
  // White space is text, whoever wrote it.
  EXPECT_EQ(tokenizer->encode_typed("a  b"), tokenizer->encode("a  b"));

  // Marks of the template's count, those that a user helps to spell do not, and words join.
  const std::vector<TextPart> parts = {
      {"<s>the li"}, {"ght</think>", true}, {"</th"}, {"ink></", true}, {"s>"}, {"</think></s>"}};
  Ids expected = {id("<s>")};
  const auto append = [&](const Ids& more) {
    expected.insert(expected.end(), more.begin(), more.end());
  };
  append(tokenizer->encode_typed("the light</think></think></s>"));
  append({id("</think>"), id("</s>")});
  EXPECT_EQ(tokenizer->encode(parts), expected);
  EXPECT_EQ(tokenizer->encode(std::vector<TextPart>{{"the li"}, {"ght", true}}),
            tokenizer->encode("the light"));
}

// What stands before a text is known by its last token: the start, ordinary text, or an added
// token, behind which a text begins anew.
TEST(JsonTokenizer, PutsNothingBeforeTextThatGoesOn) {
  const Json added = {
      {{"id", 7}, {"content", "<m>"}, {"special", true}, {"normalized", false}},
      {{"id", 8}, {"content", "<r>"}, {"rstrip", true}, {"normalized", false}},
      {{"id", 9}, {"content", "<n>"}, {"rstrip", true}, {"normalized", true}},
      {{"id", 10}, {"content", "word"}, {"single_word", true}, {"normalized", false}}};
  const Json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const TokenId a = 2, b = 3, mark = 1;
  for (const char* scheme : {"first", "always", "never", "prepend", "space"}) {
    SCOPED_TRACE(scheme);
    Json json = letters();
    json["added_tokens"] = added;
    json["model"]["vocab"]["\u0120"] = 6;  // a space in the byte alphabet
    const std::string kind = scheme;
    if (kind == "prepend") {
      json["normalizer"] = {
          {"type", "Sequence"},
          {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, spaces}}};
    } else if (kind == "space") {
      json["pre_tokenizer"] = {
          {"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
    } else {
      json["pre_tokenizer"] = {{"type", "Metaspace"},
                               {"replacement", "\u2581"},
                               {"prepend_scheme", scheme},
                               {"split", false}};
    }
    const auto tokenizer = load(json);
    const TokenId space = kind == "space" ? 6 : mark;
    const bool at_start = kind != "never", behind_marks = at_start && kind != "first";
    const auto one = [&](bool prefixed) { return prefixed ? Ids({space, a}) : Ids({a}); };
    EXPECT_EQ(tokenizer->encode("a"), one(at_start));
    EXPECT_EQ(tokenizer->encode("a", b), one(false));
    EXPECT_EQ(tokenizer->encode("a", Tokenizer::after_text), one(false));
    EXPECT_EQ(tokenizer->encode("a", 0), one(false)) << "unknown text is text";
    EXPECT_EQ(tokenizer->encode(" a", b), one(true));
    EXPECT_EQ(tokenizer->encode_typed("a", b), one(false));
    for (const TokenId before : {7, 8, 9}) {
      Ids whole = tokenizer->encode((kind == "prepend" ? "b " : "b") +
                                    std::string(tokenizer->piece(before)) + "a");
      EXPECT_EQ(whole.back(), a);
      const auto at = std::find(whole.begin(), whole.end(), before);
      EXPECT_EQ(tokenizer->encode("a", before), Ids(at + 1, whole.end())) << before;
    }
    EXPECT_EQ(tokenizer->encode("a", 7), one(behind_marks));
    EXPECT_EQ(tokenizer->encode(" a", 8), tokenizer->encode("a", 8)) << "the token took the space";
    EXPECT_NE(tokenizer->encode("word", b), Ids({10})) << "a letter stands before the word";
  }
}

TEST(JsonTokenizer, RefusesInvalidUtf8) {
  const auto tokenizer = load(letters());
  try {
    tokenizer->encode("a\xff");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

TEST(JsonTokenizer, BoundsThePromptsBytes) {
  Json lossless = golden("whole_text")["tokenizer"];
  lossless["added_tokens"] = Json::array();  // one swallows white space
  lossless["post_processor"] = nullptr;
  const auto exact = load(lossless);
  EXPECT_LT(exact->most_bytes(1), 64u);
  EXPECT_EQ(exact->most_bytes(10), 10 * exact->most_bytes(1));
  EXPECT_GE(load(golden("unigram")["tokenizer"])->most_bytes(10), 1u << 20) << "strips";
}

TEST(JsonTokenizer, MeetsTheSameVocabularyInAnotherFile) {
  const auto model = Tokenizer::load(source / "models/stories/target");
  Json vocab = Json::object();
  for (TokenId id = 0; id < model->pieces(); ++id) vocab[std::string(model->piece(id))] = id;
  Json json = letters();
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = Json::array();
  EXPECT_NO_THROW(model->require_same_pieces(*load(json), "target", "draft"));
  EXPECT_NO_THROW(load(json)->require_same_pieces(*model, "target", "draft"));
  vocab.erase(std::string(model->piece(300)));
  vocab["changed"] = 300;
  json["model"]["vocab"] = vocab;
  try {
    model->require_same_pieces(*load(json), "target", "draft");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("token 300 is '"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'changed'"), std::string::npos) << error.what();
  }
}

TEST(JsonTokenizer, NamesWhatItDoesNotKnowAndWhere) {
  const Json good = golden("byte_level")["tokenizer"];
  ASSERT_EQ(refusal(good), "accepted");
  const auto with = [&](const char* place, const Json& value) {
    Json json = good;
    json[Json::json_pointer(place)] = value;
    return refusal(json);
  };
  const std::vector<std::tuple<const char*, Json, std::string>> cases = {
      {"/normalizer", {{"type", "Nmt"}}, "normalizer: the normalizer 'Nmt' is unknown"},
      {"/pre_tokenizer/pretokenizers/1",
       {{"type", "BertPreTokenizer"}},
       "pre_tokenizer.pretokenizers[1]: the pre-tokenizer 'BertPreTokenizer'"},
      {"/decoder", {{"type", "CTC"}}, "decoder: the decoder 'CTC'"},
      {"/post_processor/processors/0", {{"type", "RobertaProcessing"}}, "processors[0]: the post-"},
      {"/model/type", "WordPiece", "model: the model 'WordPiece'"},
      {"/model/dropout", 0.1, "model.dropout: random merges"},
      {"/model/end_of_word_suffix", "</w>", "model.end_of_word_suffix"},
      {"/model/unk_token", "nothing", "model.unk_token: is not in the vocabulary"},
      {"/model/vocab", 3, "model.vocab"},
      {"/model/vocab/x", -1, "model.vocab.x: is -1"},
      {"/model/vocab/x", 4'000'000'000u, "model.vocab.x: is 4000000000"},
      {"/model/vocab/x", 1e300, "model.vocab.x"},
      {"/model/vocab/new", 5, "id 5 is both"},
      {"/model/merges/3", "a bc def", "model.merges[3]: 'a bc def' is not two pieces"},
      {"/model/merges/3", "a unknowable", "model.merges[3]: the piece 'unknowable' is not"},
      {"/model/merges/3", {"a", 1}, "model.merges[3][1]"},
      {"/added_tokens/0/id", 99,
       "added_tokens[0]: the added token '<unk>' has the id 99, but the voc"},
      {"/added_tokens/3/id", 4'000'000,
       "added_tokens[3]: the added token '<think>' has the id 4000000"},
      {"/added_tokens/3/content", std::string(5000, 'x'), "a token of 5000 bytes"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "(a", "pattern.Regex: not a regular exp"},
      {"/pre_tokenizer/pretokenizers/0/pattern/Regex", std::string(100'000, '('), "100000 bytes"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "Glued", "behavior 'Glued'"},
      {"/post_processor/processors/1/special_tokens/<s>/ids", {1'000'000}, "ids[0]: is 1000000"},
      {"/post_processor/processors/1/single", Json::array(), "does not hold the text once"},
      {"/post_processor/processors/0", good["post_processor"]["processors"][1],
       "processors[1]: a second template"},
      {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAB"}}, "is damaged"},
      {"/normalizer", {{"type", "Prepend"}, {"prepend", ""}}, "normalizer.prepend: is empty"},
      {"/version", "2.0", "version '2.0'"},
  };
  for (const auto& [place, value, wanted] : cases) {
    EXPECT_NE(with(place, value).find(wanted), std::string::npos) << with(place, value);
  }
  Json unigram = golden("unigram")["tokenizer"];
  unigram["model"]["vocab"][4] = Json::array();
  EXPECT_NE(refusal(unigram).find("model.vocab[4]: is a list of 0"), std::string::npos);
  EXPECT_NE(refusal_of_text("{}").find("has no 'model'"), std::string::npos);
}

TEST(JsonTokenizer, RefusesDepthAndRepetition) {
  std::string deep = "{\"normalizer\": ";
  for (int i = 0; i < 100'000; ++i) deep += "{\"type\": \"Sequence\", \"normalizers\": [";
  EXPECT_NE(refusal_of_text(deep).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal_of_text("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}").find("appears twice"),
            std::string::npos);
  EXPECT_NE(refusal_of_text("{\"model\"").find("not valid JSON"), std::string::npos);
  // Nested groups within the length that is allowed end in one line, or compile.
  Json nested = letters();
  nested["pre_tokenizer"] = {
      {"type", "Split"},
      {"behavior", "Isolated"},
      {"pattern", {{"Regex", std::string(2000, '(') + "a" + std::string(2000, ')')}}}};
  const std::string message = refusal(nested);
  EXPECT_TRUE(message == "accepted" || message.find("regular") != message.npos) << message;
}

// A pattern that steps back without end stops with one line that names it.
TEST(JsonTokenizer, BoundsRegularExpressions) {
  Json json = letters();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(?:a|a?)+c"}}}};
  const auto tokenizer = load(json);
  try {
    tokenizer->encode(std::string(300, 'a') + "bc");
    ADD_FAILURE() << "matched";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("pre_tokenizer.pattern.Regex"), message.npos) << message;
    EXPECT_EQ(message, printable(message));
  }
}

}  // namespace
}  // namespace coppice

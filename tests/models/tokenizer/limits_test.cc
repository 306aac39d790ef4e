// Small files that would take all time or memory: they end in a line that names the file.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/tokenizer/allowance.h"
#include "models/tokenizer/regex.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tokenizer_file.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
using tokenization::Allowance;
using tokenization::Regex;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_EQ(std::string(error.what()), printable(error.what()));
    return error.what();
  }
  return "none";
}

Json abc() {
  return {{"model",
           {{"type", "BPE"},
            {"unk_token", "?"},
            {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"c", 3}, {" ", 4}}},
            {"merges", Json::array()}}}};
}

Json split(const std::string& pattern) {
  return {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", pattern}}}};
}
Json replace(const std::string& from, const std::string& to, const char* kind = "String") {
  return {{"type", "Replace"}, {"pattern", {{kind, from}}}, {"content", to}};
}
Json many(const char* type, const char* list, std::size_t count, const Json& one) {
  return {{"type", type}, {list, std::vector<Json>(count, one)}};
}

// What a match begins with may lie before the match that went before.
TEST(TokenizerLimits, MatchesGoOn) {
  for (const char* pattern :
       {R"((?<=\K.))", R"((?<=\Ka)b?)", R"((?=a\K))", R"(\Ka|\K)", R"((?<=\K..)a)"}) {
    Json json = abc();
    json["pre_tokenizer"] = split(pattern);
    EXPECT_EQ(load_json(json)->encode("abcab"), Ids({1, 2, 3, 1, 2})) << pattern;
    json["normalizer"] = replace(pattern, "c", "Regex");
    EXPECT_LT(load_json(json)->encode("abcab").size(), 12u) << pattern;
  }
}

// Many searches that each step back often, and one that does.
TEST(TokenizerLimits, StepsBackAreCountedForAWholeText) {
  const std::string file = "f";
  const std::string text(400, 'a');
  const auto last_of = [&](const char* pattern, std::size_t allowed_for) {
    const Regex regex(pattern);
    Allowance allowance(allowed_for, file);
    const std::size_t before = allowance.steps_left();
    Regex::Matches matches(regex, text, allowance);
    std::size_t begin = 0, end = 0;
    while (matches.next(begin, end)) continue;
    return before - allowance.steps_left();
  };
  EXPECT_EQ(last_of("a", text.size()), 0u);
  EXPECT_EQ(last_of("a+", text.size()), 0u);
  const std::size_t some = last_of("(?:a|c)*b|a", text.size());
  EXPECT_GT(some, 10'000u) << "some hundred for each search";
  EXPECT_NE(
      error_of([&] { last_of("(?:a|c)*(?:a|c)*b|a", text.size()); }).find("cannot be matched"),
      std::string::npos);
  Json json = abc();
  json["pre_tokenizer"] = split("(?:a|c)*(?:a|c)*b|a");
  const auto tokenizer = load_json(json);
  EXPECT_NE(error_of([&] { tokenizer->encode(text); }).find("pre_tokenizer.pattern.Regex"),
            std::string::npos);
}

// What a search looks at without a step back: the library does not count it.
TEST(TokenizerLimits, PatternsThatLookFarEndInALine) {
  const std::string text(20'000, 'a');
  for (const char* pattern :
       {"[^x]*x|.", "(?=[^x]*).", ".*+x|.", "a*+b|.", "(?:(?=.*)a)+", "(?>a*)b|.", "a(?=.*)",
        "(?=(?:aaaa){2000})a|.", "[ab]*c|[ab]", ".{60000}b|.", "(?:.*)*?x|.", "(?!.*x)a"}) {
    for (const char* part : {"pre_tokenizer", "normalizer"}) {
      Json json = abc();
      json[part] = *part == 'p' ? split(pattern) : replace(pattern, "c", "Regex");
      const auto tokenizer = load_json(json);
      const std::string message = error_of([&] { tokenizer->encode(text); });
      EXPECT_NE(message.find("the pattern cannot be matched in a text of 20000 bytes"),
                message.npos)
          << pattern << ": " << message;
    }
  }
  for (const auto& [pattern, what] : std::vector<std::pair<std::string, std::string>>{
           {"(a)\\1", "\\1"},
           {"(?<n>a)\\g<n>", "\\g"},
           {"\\X", "\\X"},
           {"(?~a)", "(?~"},
           {"(?{a})", "(?{"},
           {"(*FAIL)", "(*"},
           {"(?<n>a)?(?(<n>)a|b)", "(?("},
           {"(?<=a*)b", "a repetition in a lookbehind"}}) {
    Json json = abc();
    json["pre_tokenizer"] = split(pattern);
    EXPECT_NE(error_of([&] { load_json(json); })
                  .find("pre_tokenizer.pattern.Regex: what a pattern with '" + what +
                        "' looks at cannot be counted"),
              std::string::npos)
        << pattern;
  }
}

// The patterns of tokenizers in use, over texts that are one run of what they repeat.
TEST(TokenizerLimits, PatternsInUseLookNearby) {
  const char* const patterns[] = {
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|)"
      R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|)"
      R"(\s+(?!\S)|\s)",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
      R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  const std::string file = "f";
  for (const char* pattern : patterns) {
    const Regex regex(pattern);
    for (const std::string unit :
         {"a", "A", " ", "\n", "1", "-", "\u65e5", "a ", "A1", "aB", " \n", "'s", "!a", "\u0301"}) {
      std::string text;
      while (text.size() < 40'000) text += unit;
      Allowance allowance(text.size(), file);
      const std::size_t before = allowance.steps_left();
      Regex::Matches matches(regex, text, allowance);
      for (std::size_t begin = 0, end = 0; matches.next(begin, end);) continue;
      EXPECT_LE(before - allowance.steps_left(), 48 * text.size()) << pattern << " of " << unit;
    }
  }
}

TEST(TokenizerLimits, StagesWriteInProportionToTheText) {
  const std::string text(1000, 'a');
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto expect_refused = [&](const char* part, const Json& stages, const std::string& what) {
    Json json = abc();
    json[part] = stages;
    const auto tokenizer = load_json(json);
    const std::string encoding = error_of([&] { tokenizer->encode(what); });
    const std::string decoding =
        error_of([&] { tokenizer->decode(tokenizer->encode(std::string(1000, 'a'))); });
    const std::string streaming = error_of([&] { tokenizer->bytes_of(1); });
    const std::string& message = *part == 'd' ? decoding : encoding;
    EXPECT_NE(message.find("tokenizer.json: its stages would write more than"), message.npos)
        << part << ": " << message;
    EXPECT_EQ(*part == 'd', streaming != "none");
  };
  expect_refused("normalizer", many("Sequence", "normalizers", 40, replace("a", "aa")), text);
  expect_refused("normalizer", many("Sequence", "normalizers", 40, replace("", "a")), text);
  expect_refused("normalizer", many("Sequence", "normalizers", 5000, {{"type", "NFC"}}), text);
  expect_refused("normalizer", replace("a", std::string(100'000, 'b')), text);
  expect_refused("normalizer", replace(".", std::string(100'000, 'b'), "Regex"), text);
  expect_refused("pre_tokenizer", many("Sequence", "pretokenizers", 40, byte_level),
                 std::string(1000, ' '));
  expect_refused("pre_tokenizer", many("Sequence", "pretokenizers", 5000, byte_level), text);
  expect_refused("decoder", many("Sequence", "decoders", 40, replace("a", "aa")), text);
  expect_refused("decoder", many("Sequence", "decoders", 5000, replace("b", "b")), text);
  // What real files do is far from that: a character that becomes eighteen, ten stages.
  Json json = abc();
  Json stages = many("Sequence", "normalizers", 8, {{"type", "NFKC"}});
  stages["normalizers"].push_back(replace(" ", "\u2581"));
  json["normalizer"] = stages;
  std::string ligatures;
  for (int i = 0; i < 1000; ++i) ligatures += "\ufdfa";
  EXPECT_EQ(load_json(json)->encode(ligatures).size(), 18'000u);
}

TEST(TokenizerLimits, AddedTokensAreReadInLinearTime) {
  Json json = abc();
  for (int i = 0; i < 20'000; ++i) {
    json["added_tokens"].push_back(
        {{"id", 5 + i}, {"content", "<" + std::to_string(i) + ">"}, {"normalized", true}});
  }
  EXPECT_EQ(load_json(json)->encode("<19999>"), Ids({20'004}));
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(300'000, 'b')}};
  EXPECT_NE(error_of([&] { load_json(json); }).find("added_tokens[0]: '<0>' is looked for as"),
            std::string::npos);
  json["normalizer"] = many("Sequence", "normalizers", 1000, replace("x", "y", "Regex"));
  EXPECT_NE(error_of([&] { load_json(json); }).find("its stages would write"), std::string::npos);
}

// Each of the tokens takes the white space at its sides.
TEST(TokenizerLimits, RunsOfSpacesAreWalkedOnce) {
  Json json = abc();
  const std::string run(1'000'000, ' ');
  for (const bool left : {false, true}) {
    for (const bool right : {false, true}) {
      json["added_tokens"] = Json::array({{{"id", 4},
                                           {"content", " "},
                                           {"lstrip", left},
                                           {"rstrip", right},
                                           {"normalized", false}}});
      const Ids ids = load_json(json)->encode("a" + run + "b");
      // With the one that takes the whole run behind it, those in it find nothing left.
      EXPECT_GE(ids.size(), 3u);
      EXPECT_EQ(ids.size(), right ? (left ? 3u : 1'000'002u) : 1'000'002u) << left << right;
    }
  }
}

TEST(TokenizerLimits, LargeFilesAreRefused) {
  const TemporaryFolder folder;
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    write_file(folder.path() / name, "{}");
    fs::resize_file(folder.path() / name, (std::uintmax_t{64} << 20) + 1);  // holds nothing on disk
    const std::string message = error_of([&] { Tokenizer::load(folder.path()); });
    EXPECT_NE(message.find(std::string(name) + ": 67108865 bytes are more than the 67108864"),
              message.npos)
        << message;
  }
}

// At every place of a text all of it may be compared, or written.
TEST(TokenizerLimits, LongTextsAreNotSought) {
  const std::string longest(1025, 'a');
  Json json = abc();
  json["pre_tokenizer"] = {{"type", "Split"},
                           {"behavior", "Isolated"},
                           {"pattern", {{"String", std::string(5000, 'a')}}}};
  EXPECT_NE(error_of([&] { load_json(json); }).find("pattern.String: a pattern of 5000 bytes"),
            std::string::npos);
  const Json unigram = {{"model",
                         {{"type", "Unigram"},
                          {"unk_id", 0},
                          {"vocab", Json::array({{"?", -1.0}, {longest, -2.0}})}}}};
  EXPECT_NE(error_of([&] { load_json(unigram); }).find("model.vocab[1]: is a piece of 1025 bytes"),
            std::string::npos);
  const auto load_proto = [](const SentencepieceProto& proto, const std::string& map = "",
                             const std::string& surface = "") {
    const TemporaryFolder folder;
    SentencepieceProto all = proto;
    if (!map.empty()) all.normalizer = SentencepieceProto::bytes_field(2, map);
    std::string bytes = all.file();
    if (!surface.empty()) {
      bytes += SentencepieceProto::bytes_field(2, SentencepieceProto::bytes_field(44, surface));
    }
    write_file(folder.path() / "tokenizer.model", bytes);
    Tokenizer::load(folder.path());
  };
  SentencepieceProto proto;
  proto.piece("<unk>", PieceKind::unknown).piece("a", PieceKind::normal);
  EXPECT_EQ(error_of([&] { load_proto(proto); }), "none");
  EXPECT_NE(error_of([&] { load_proto(proto, "", longest); }).find("is shown as 1025 bytes"),
            std::string::npos);
  // A trie of 512 units: the root leads to 0x100, where 'a' (0x61) ends with the string at 0.
  const auto map = [](std::size_t bytes) {
    std::vector<std::uint32_t> units(512, 0);
    units[0] = 0x100u << 10;
    units[0x100 ^ 0x61] = 0x61u | 1u << 8 | (0x61u ^ 0x1u) << 10;
    units[0x101] = 1u << 31;
    std::string out("\x00\x08\x00\x00", 4);
    for (const std::uint32_t unit : units) {
      for (int i = 0; i < 4; ++i) out += static_cast<char>(unit >> (8 * i));
    }
    return out + std::string(bytes, 'b') + std::string(1, '\0');
  };
  EXPECT_EQ(error_of([&] { load_proto(proto, map(128)); }), "none");
  EXPECT_NE(error_of([&] { load_proto(proto, map(129)); }).find("character map"),
            std::string::npos);
  proto.piece(longest, PieceKind::normal);
  EXPECT_NE(error_of([&] { load_proto(proto); }).find("piece 2 has 1025 bytes"), std::string::npos);
}

}  // namespace
}  // namespace coppice::testing

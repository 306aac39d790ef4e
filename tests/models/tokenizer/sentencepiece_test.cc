// The tokenizer against sentencepiece itself, and against damaged files.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/utf8.h"
#include "models/tokenizer/sentencepiece_file.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tiny_model.h"
#include "reference/tokenizer_file.h"

namespace coppice::sentencepiece_test {
namespace {

namespace fs = std::filesystem;
using Proto = testing::SentencepieceProto;
using testing::TemporaryFolder;
using testing::write_file;

const fs::path shipped = fs::path(COPPICE_SOURCE_DIR) / "models/stories/target";

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Proto letters() {
  Proto proto;
  proto.piece("<unk>", PieceKind::unknown).piece("<s>", PieceKind::control);
  proto.piece("</s>", PieceKind::control).piece("a", PieceKind::normal);
  proto.piece("b", PieceKind::normal).piece("ab", PieceKind::normal, -0.5f);
  proto.piece("\xE2\x96\x81", PieceKind::normal).piece("<<", PieceKind::user_defined);
  return proto;
}

std::unique_ptr<Tokenizer> load(const std::string& bytes) {
  return testing::load_tokenizer("tokenizer.model", bytes);
}

// As transformers 5.23 does for a tokenizer.model, but that BOS is what it does not ask for there.
TEST(Sentencepiece, TokenizerConfigSaysWhatIsPutAround) {
  const auto framed = [](const char* config) {
    const TemporaryFolder folder;
    write_file(folder.path() / "tokenizer.model", letters().file());
    if (*config != '\0') write_file(folder.path() / "tokenizer_config.json", config);
    const auto tokenizer = Tokenizer::load(folder.path());
    return tokenizer->framed({3, 4});
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(framed(""), (Tokens{1, 3, 4}));
  EXPECT_EQ(framed("{}"), (Tokens{1, 3, 4}));
  EXPECT_EQ(framed(R"({"bos_token": "</s>"})"), (Tokens{2, 3, 4}));
  EXPECT_EQ(framed(R"({"bos_token": null, "add_bos_token": true})"), (Tokens{3, 4}));
  EXPECT_EQ(framed(R"({"add_bos_token": true})"), (Tokens{1, 3, 4}));
  EXPECT_EQ(framed(R"({"add_bos_token": false})"), (Tokens{3, 4}));
  EXPECT_EQ(framed(R"({"add_bos_token": null})"), (Tokens{3, 4}));
  EXPECT_EQ(framed(R"({"add_eos_token": true})"), (Tokens{1, 3, 4, 2}));
  EXPECT_EQ(framed(R"({"add_bos_token": false, "add_eos_token": true})"), (Tokens{3, 4, 2}));
  for (const char* wrong : {R"({"add_bos_token": 1})", R"({"add_eos_token": "yes"})", "{"}) {
    try {
      framed(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("tokenizer_config.json"), std::string::npos)
          << error.what();
    }
  }
}

std::string refusal(const std::string& bytes) {
  try {
    load(bytes);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    EXPECT_NE(message.find("tokenizer.model"), message.npos) << message;
    return message;
  }
  return {};
}

std::vector<TokenId> ids(std::vector<TokenId> tokens) { return tokens; }

const std::vector<std::string> texts = {
    "",
    " ",
    "  two spaces,  inside and out  ",
    "Once upon a time there was a little girl.",
    "line\nbreaks\r\nand\ttabs\n\n",
    "\"I don't know,\" he said -- 3.14159 * 2 = 6.28",
    "na\xC3\xAFve caf\xC3\xA9 \xE2\x80\x94 \xE4\xBD\xA0\xE5\xA5\xBD "
    "\xF0\x9F\x8C\xB2\xF0\x9F\x8C\xB2",
    "</s> <s> <unk> <0x41>",
    "\x01\x1f\x7f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
};

TEST(ShippedTokenizer, AgreesWithSentencepieceAndRoundTrips) {
  const auto tokenizer = Tokenizer::load(shipped);
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.Load((shipped / "tokenizer.model").string()).ok());
  EXPECT_EQ(tokenizer->pieces(), processor.GetPieceSize());
  std::vector<std::string> all = texts;
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::uint32_t n = random() % 40; n > 0; --n) {
      const std::uint32_t kind = random() % 8;
      if (kind < 6) {
        text += static_cast<char>(32 + random() % 95);
      } else {
        const std::uint32_t code = kind == 6 ? 0xA1 + random() % 0x700 : 0x3041 + random() % 0x5000;
        if (code < 0x800) {
          text += static_cast<char>(0xC0 | code >> 6);
        } else {
          text += static_cast<char>(0xE0 | code >> 12);
          text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
        }
        text += static_cast<char>(0x80 | (code & 0x3F));
      }
    }
    all.push_back(text);
  }
  for (const std::string& text : all) {
    std::vector<int> wanted;
    ASSERT_TRUE(processor.Encode(text, &wanted).ok());
    const std::vector<TokenId> tokens = tokenizer->encode_typed(text);
    EXPECT_EQ(tokens, std::vector<TokenId>(wanted.begin(), wanted.end())) << text;
    std::string decoded;
    ASSERT_TRUE(processor.Decode(wanted, &decoded).ok());
    EXPECT_EQ(tokenizer->decode(tokens), decoded) << text;
    std::string joined;
    for (const TokenId token : tokens) joined += tokenizer->bytes_of(token);
    EXPECT_EQ(joined, decoded) << "it puts no space before the first word";
    // The shipped tokenizer changes nothing: what went in comes out.
    EXPECT_EQ(decoded, text);
  }
}

TEST(ShippedTokenizer, HasAByteForEveryByte) {
  const auto tokenizer = Tokenizer::load(shipped);
  std::set<std::string> singles;
  for (TokenId token = 0; token < tokenizer->pieces(); ++token) {
    if (tokenizer->bytes_of(token).size() == 1) singles.insert(tokenizer->bytes_of(token));
  }
  EXPECT_EQ(singles.size(), 256u);
  EXPECT_EQ(tokenizer->bytes_of(-1), "");
  EXPECT_EQ(tokenizer->bytes_of(tokenizer->pieces()), "");
  EXPECT_EQ(tokenizer->bytes_of(INT32_MAX), "");
  const auto tokens = tokenizer->encode(std::string("a\0b", 3));
  EXPECT_EQ(tokenizer->decode(tokens), std::string("a\0b", 3));
}

// The bound that refuses prompts before they are tokenized must never refuse one that fits.
TEST(Tokenizer, BytesBoundTokens) {
  Proto lossless = letters();
  lossless.byte_fallback = true;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    lossless.piece(text, PieceKind::byte);
  }
  const auto exact = load(lossless.file());
  EXPECT_EQ(exact->most_bytes(10), 50u) << "the longest piece that a text spells is <unk>";
  const auto merging = load(letters().file());
  EXPECT_EQ(merging->most_bytes(10), 1u << 20) << "unknown letters merge into one token";
  const auto shipped_one = Tokenizer::load(shipped);
  std::mt19937 random(1);
  const std::vector<std::string> parts = {"a",    "b",   "ab", " ",      "  ",  "\xE2\x96\x81",
                                          "<<",   "z",   "\n", "\u00e9", "the", "\U0001f600",
                                          "said", "</s>"};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    const std::size_t used = 1 + random() % parts.size();  // long runs of few parts as well
    for (int i = 0; i < 200; ++i) text += parts[(round + random() % used) % parts.size()];
    for (const auto* tokenizer : {exact.get(), merging.get(), shipped_one.get()}) {
      EXPECT_LE(text.size(), tokenizer->most_bytes(tokenizer->encode(text).size())) << text;
    }
  }
}

TEST(Tokenizer, RefusesInvalidUtf8) {
  const auto tokenizer = load(letters().file());
  for (const char* text :
       {"\xff", "a\x80", "\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\x80"}) {
    try {
      tokenizer->encode(text);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
  }
}

TEST(Tokenizer, RefusesANulItCannotRepresent) {
  const auto tokenizer = load(letters().file());
  EXPECT_THROW(tokenizer->encode(std::string("a\0b", 3)), Error);
}

TEST(Tokenizer, KnowsEveryKindOfPiece) {
  Proto proto = letters();
  proto.byte_fallback = true;
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    proto.piece(text, PieceKind::byte);
  }
  const auto tokenizer = load(proto.file());
  EXPECT_EQ(tokenizer->bytes_of(0), " \xE2\x81\x87 ");
  EXPECT_EQ(tokenizer->bytes_of(1), "");
  EXPECT_EQ(tokenizer->bytes_of(5), "ab");
  EXPECT_EQ(tokenizer->bytes_of(6), " ");
  EXPECT_EQ(tokenizer->bytes_of(7), "<<");
  EXPECT_EQ(tokenizer->bytes_of(8 + 255), "\xff");
  EXPECT_EQ(tokenizer->encode("ab"), (std::vector<TokenId>{6, 5}));
  EXPECT_EQ(tokenizer->decode(ids({6, 5, 6, 3})), "ab a");
  EXPECT_EQ(tokenizer->decode(ids({1, 6, 5, 2})), "ab");
  EXPECT_EQ(tokenizer->decode(ids({8 + 0xE2, 8 + 0x81, 8 + 0x87})), "\xE2\x81\x87");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("\xE4\xBD\xA0")), "\xE4\xBD\xA0");
}

TEST(Tokenizer, MakesControlPiecesOfTextThatNobodyTyped) {
  const auto tokenizer = load(letters().file());
  EXPECT_EQ(tokenizer->encode("<s>ab</s></s>"), ids({1, 6, 5, 2, 2}));
  const std::vector<TokenId> typed = tokenizer->encode_typed("<s>ab</s>");
  for (const TokenId token : typed) EXPECT_TRUE(token != 1 && token != 2) << token;
  // A mark that user and template spell together is none.
  const std::vector<TextPart> parts = {{"<s>"}, {"a<", true}, {"/s>b"}, {"</s>", true}, {"</s>"}};
  const std::vector<TokenId> tokens = tokenizer->encode(parts);
  EXPECT_EQ(tokens.front(), 1);
  EXPECT_EQ(tokens.back(), 2);
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i) EXPECT_TRUE(tokens[i] > 2 || tokens[i] == 0);
  EXPECT_EQ(tokenizer->framed(ids({5})), ids({1, 5}));
}

// A text that is cut where a token of the library ends, its second part appended to the tokens of
// its first: with and without a word mark that the library puts first, collapsed spaces, bytes for
// what has no piece, and characters that the seam between the parts might have been.
TEST(Tokenizer, AppendsWhatTheLibraryJoins) {
  std::mt19937 random(7);
  const std::vector<std::string> some = {
      "a", "b", "ab", " ", "  ", "<<", "z", "\xEE\xB0\x80", "\xEE\xB0\x81", "\u00e9", "zz", "<s>"};
  int seams = 0;
  for (int kind = 0; kind < 8; ++kind) {
    Proto proto = letters();
    proto.normalizer = Proto::bytes_field(1, "identity") + Proto::number_field(3, kind & 1) +
                       Proto::number_field(4, kind >> 1 & 1);
    proto.byte_fallback = (kind & 4) != 0;
    proto.piece("\xEE\xB0\x80", PieceKind::normal);
    for (int byte = 0; byte < 256 && proto.byte_fallback; ++byte) {
      char text[8];
      std::snprintf(text, sizeof text, "<0x%02X>", byte);
      proto.piece(text, PieceKind::byte);
    }
    const auto tokenizer = load(proto.file());
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(proto.file()).ok());
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (std::size_t n = 1 + random() % 8; n > 0; --n) text += some[random() % some.size()];
      const auto encoded = library.EncodeAsImmutableProto(text);
      const auto whole = encoded.pieces();
      std::vector<TokenId> all;
      for (const auto& piece : whole) all.push_back(static_cast<TokenId>(piece.id()));
      for (std::size_t k = 1; k < whole.size(); ++k) {
        const std::size_t at = whole[k - 1].end();
        // The last of a character's bytes alone ends it.
        if (at == 0 || at >= text.size() || whole[k - 1].begin() == at) continue;
        const std::vector<TokenId> rest(all.begin() + static_cast<std::ptrdiff_t>(k), all.end());
        const std::string right = text.substr(at);
        // The library finds user-defined pieces whoever wrote them, and control pieces never.
        const bool defined = right.find("<<") != right.npos;
        if (defined && right.find("<s>") != right.npos) continue;
        EXPECT_EQ(defined ? tokenizer->encode(right, all[k - 1])
                          : tokenizer->encode_typed(right, all[k - 1]),
                  rest)
            << text << " at " << at << ", kind " << kind;
        ++seams;
      }
    }
  }
  EXPECT_GT(seams, 1000);
  // Behind a control piece a text begins anew, as behind one that is spelt in it.
  const auto tokenizer = load(letters().file());
  EXPECT_EQ(tokenizer->encode("ab", 2), ids({6, 5}));
  EXPECT_EQ(tokenizer->encode("ab", 3), ids({5}));
  EXPECT_EQ(tokenizer->encode("ab", Tokenizer::after_text), ids({5}));
  EXPECT_EQ(tokenizer->encode(" ab</s>ab", 3), ids({6, 5, 2, 6, 5}));
  EXPECT_EQ(tokenizer->encode("</s>ab", 3), ids({2, 6, 5}));
}

TEST(Tokenizer, ComparesPiecesNotFiles) {
  const auto one = load(letters().file());
  Proto same = letters();
  same.normalizer += Proto::bytes_field(9, "another file");
  EXPECT_NO_THROW(one->require_same_pieces(*load(same.file()), "target", "draft"));
  const auto difference = [&](const Proto& proto) {
    try {
      one->require_same_pieces(*load(proto.file()), "target", "draft");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("same");
  };
  Proto longer = letters();
  longer.piece("c", PieceKind::normal);
  const std::string words = difference(longer);
  EXPECT_NE(words.find("the first piece that only one has is 'c'; target '"), words.npos) << words;
  EXPECT_NE(words.find("' has 8 pieces, draft '"), words.npos) << words;
  EXPECT_NE(words.find("' has 9; use a draft that shares"), words.npos) << words;
  EXPECT_NE(words.find("(--draft none)"), words.npos) << words;
  Proto other = letters();
  other.pieces.replace(other.pieces.find("ab"), 2, "ba");
  EXPECT_NE(difference(other).find("token 5 is 'ab' (normal) in target and 'ba'"),
            std::string::npos);
}

TEST(Tokenizer, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const auto message = [&] {
    try {
      Tokenizer::load(folder.path());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message().find("neither tokenizer.json nor tokenizer.model"), std::string::npos);
  EXPECT_NE(message().find("--prompt-ids"), std::string::npos);
}

TEST(Tokenizer, RefusesCorruptModels) {
  EXPECT_EQ(refusal(letters().file()), "");
  for (const char* bytes :
       {"", "x", "{\"model\": {}}", "\n", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    EXPECT_NE(refusal(bytes), "") << bytes;
  }
  Proto twice = letters();
  twice.piece("a", PieceKind::normal);
  EXPECT_NE(refusal(twice.file()).find("appears twice"), std::string::npos);
  Proto empty = letters();
  empty.piece("", PieceKind::normal);
  EXPECT_NE(refusal(empty.file()).find("empty"), std::string::npos);
  Proto nan = letters();
  nan.piece("c", PieceKind::normal, NAN);
  EXPECT_NE(refusal(nan.file()).find("finite"), std::string::npos);
  Proto unknowns = letters();
  unknowns.piece("?", PieceKind::unknown);
  EXPECT_NE(refusal(unknowns.file()).find("2 unknown pieces"), std::string::npos);
  Proto none;
  none.piece("a", PieceKind::normal);
  EXPECT_NE(refusal(none.file()).find("0 unknown pieces"), std::string::npos);
  Proto kind = letters();
  kind.piece("c", static_cast<PieceKind>(9));
  EXPECT_NE(refusal(kind.file()).find("unknown kind 9"), std::string::npos);
  Proto bytes = letters();
  bytes.byte_fallback = true;
  bytes.piece("<0x4>", PieceKind::byte);
  EXPECT_NE(refusal(bytes.file()), "");
  EXPECT_NE(refusal(letters().pieces).find("settings are missing"), std::string::npos);
  // Character maps: a length beyond the map, a trie that leads outside itself.
  for (const std::string& map : {std::string("\xff\xff\xff\xff"), std::string("\x04\0\0\0abcd", 8),
                                 std::string("\x04\0\0\0\xff\xff\xff\xff\0", 9),
                                 std::string("\x04\0\0\0\0\0\0\0x", 9), std::string("ab")}) {
    Proto mapped = letters();
    mapped.normalizer = Proto::bytes_field(2, map);
    EXPECT_NE(refusal(mapped.file()).find("character map"), std::string::npos);
  }
}

TEST(Tokenizer, DamageIsReportedQuietly) {
  const std::string good = contents(shipped / "tokenizer.model");
  ASSERT_GT(good.size(), 1000u);
  ::testing::internal::CaptureStderr();
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) refusal(good.substr(0, random() % good.size()));
  for (int i = 0; i < 120; ++i) {
    std::string bytes = good;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      // The settings lie behind the pieces: damage them as often.
      const std::size_t from = i % 2 == 0 ? 0 : bytes.size() - 1000;
      bytes[from + random() % (bytes.size() - from)] = static_cast<char>(random());
    }
    try {
      const auto tokenizer = load(bytes);
      for (const std::string& text : texts) tokenizer->decode(tokenizer->encode(text));
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace coppice::sentencepiece_test

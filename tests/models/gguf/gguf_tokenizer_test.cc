// Tokenizers made of a GGUF file's metadata do what those do that the metadata were made from.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "reference/files.h"
#include "reference/gguf_vocabulary.h"
#include "reference/sentencepiece_proto.h"
#include "reference/tokenizer_file.h"
#include "reference/typed_text.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

/// How many of the texts become other ids.
int differences(const Tokenizer& tokenizer, const Json& texts, const Json& wanted) {
  int count = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    count += tokenizer.encode(texts[i].get<std::string>()) != wanted[i].get<Ids>();
  }
  return count;
}

void expect_ids(const Tokenizer& tokenizer, const Json& texts, const Json& wanted) {
  ASSERT_EQ(texts.size(), wanted.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), wanted[i].get<Ids>()) << text;
  }
}

TEST(GgufTokenizer, DoesWhatTheTokenizerJsonDid) {
  const Json golden = gguf_golden("bpe");
  ASSERT_EQ(golden["ids"].size(), 8u);
  for (const auto& [name, ids] : golden["ids"].items()) {
    SCOPED_TRACE(name);
    const auto tokenizer = load_gguf(bpe_metadata(golden, name));
    expect_ids(*tokenizer, golden["texts"], ids);
    EXPECT_EQ(tokenizer->framed({}), golden["frames"][name].get<Ids>());
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("na\u00efve <think>"), true),
              "na\u00efve <think>");
    EXPECT_EQ(tokenizer->file_kind(), "GGUF tokenizer");
    EXPECT_EQ(tokenizer->pieces() + 1, static_cast<TokenId>(golden["tokens"].size()))
        << "what fills the table up is no token";
  }
}

TEST(GgufTokenizer, GoldensTellPreTokenizersApart) {
  const Json golden = gguf_golden("bpe");
  for (const auto& [name, mine] : golden["ids"].items()) {
    const auto tokenizer = load_gguf(bpe_metadata(golden, name));
    for (const auto& [other, its] : golden["ids"].items()) {
      EXPECT_EQ(differences(*tokenizer, golden["texts"], its) == 0, mine == its)
          << name << " " << other;
    }
  }
}

TEST(GgufTokenizer, KnowsNamesOfOneRule) {
  const Json golden = gguf_golden("bpe");
  for (const auto& [name, as] : {std::pair{"llama3", "llama-bpe"},
                                 {"llama-v3", "llama-bpe"},
                                 {"dbrx", "smaug-bpe"},
                                 {"deepseek-r1-qwen", "qwen2"}}) {
    expect_ids(*load_gguf(bpe_metadata(golden, name)), golden["texts"], golden["ids"][as]);
  }
}

TEST(GgufTokenizer, DoesWhatTheTokenizerModelDid) {
  const Json golden = gguf_golden("sentencepiece");
  const auto tokenizer = load_gguf(sentencepiece_metadata(golden));
  expect_ids(*tokenizer, golden["texts"], golden["ids"]);
  EXPECT_EQ(tokenizer->framed({}), Ids({1}));
  EXPECT_EQ(tokenizer->pieces() + 1, static_cast<TokenId>(golden["tokens"].size()));
}

TEST(GgufTokenizer, IsTheTokenizerModelOfItsPieces) {
  const Json golden = gguf_golden("sentencepiece");
  for (const bool marks : {true, false}) {
    GgufBytes file = sentencepiece_metadata(golden);
    if (!marks) file.add("tokenizer.ggml.add_space_prefix", false);
    const auto made = load_gguf(file);
    const auto model = load_tokenizer(
        "tokenizer.model", tokenizer_model(golden, marks),
        R"({"added_tokens_decoder": {"4": {"content": "<turn>", "normalized": false}}})");
    made->require_same_pieces(*model, "GGUF", "tokenizer.model");
    Typist typist({"<s>", "</s>", "<ctl>", "<turn>", "<unk>"}, 5);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = typist.text();
      EXPECT_EQ(made->encode(text), model->encode(text)) << text;
      EXPECT_EQ(made->encode_typed(text), model->encode_typed(text)) << text;
      const Ids ids = made->encode(text, Tokenizer::after_text);
      EXPECT_EQ(ids, model->encode(text, Tokenizer::after_text)) << text;
      EXPECT_EQ(made->framed(ids), model->framed(ids));
      EXPECT_EQ(made->decode(ids), model->decode(ids)) << text;
    }
  }
}

TEST(GgufTokenizer, PutsAroundATextWhatTheMetadataSay) {
  const Json golden = gguf_golden("bpe");
  for (const bool adds : {false, true}) {
    GgufBytes file = bpe_metadata(golden, "llama-bpe");
    file.add("tokenizer.ggml.add_bos_token", adds).add("tokenizer.ggml.add_eos_token", adds);
    EXPECT_EQ(load_gguf(file)->framed({9}), adds ? Ids({1, 9, 2}) : Ids({9}));
    GgufBytes pieces = sentencepiece_metadata(gguf_golden("sentencepiece"));
    pieces.add("tokenizer.ggml.add_bos_token", adds).add("tokenizer.ggml.add_eos_token", adds);
    EXPECT_EQ(load_gguf(pieces)->framed({9}), adds ? Ids({1, 9, 2}) : Ids({9}));
  }
}

// Phi's marks take white space beside them.
TEST(GgufTokenizer, OfPhiTakesSpaceBesideMarks) {
  const Json golden = gguf_golden("sentencepiece");
  const auto llama = load_gguf(sentencepiece_metadata(golden)),
             phi3 = load_gguf(sentencepiece_metadata(golden, "phi3"));
  EXPECT_NE(llama->encode("<ctl>  a"), phi3->encode("<ctl>  a"));
  EXPECT_EQ(phi3->encode("<ctl> \n a"), phi3->encode("<ctl>a"));
  EXPECT_EQ(phi3->encode("</s> a"), phi3->encode("</s>a"));
  EXPECT_EQ(phi3->encode("<s> a"), llama->encode("<s> a"));
  const auto phi4 = load_gguf(bpe_metadata(gguf_golden("bpe"), "dbrx", "phi3"));
  EXPECT_EQ(phi4->encode("a <|eot_id|> \n b"), phi4->encode("a<|eot_id|>b"));
}

/// Pieces of a "llama" by kind, with scores that let longer ones win.
GgufBytes pieces_of(const std::vector<std::pair<std::string, int>>& pieces, int eos) {
  GgufBytes file = shapes_of("llama").add("tokenizer.ggml.model", "llama");
  std::vector<std::string> texts;
  std::vector<int> kinds;
  std::vector<float> scores;
  for (const auto& [text, kind] : pieces) {
    texts.push_back(text);
    kinds.push_back(kind);
    scores.push_back(static_cast<float>(text.size()));
  }
  file.add("tokenizer.ggml.tokens", texts).add("tokenizer.ggml.token_type", kinds);
  file.add("tokenizer.ggml.scores", scores).add("tokenizer.ggml.add_space_prefix", false);
  return file.add("tokenizer.ggml.bos_token_id", 1).add("tokenizer.ggml.eos_token_id", eos);
}

// An end token that is an ordinary piece steers all the same: nobody types it.
TEST(GgufTokenizer, TypedTextNeverBecomesAnEndToken) {
  // "END" is what the metadata name, "<|im_end|>" a known end of a turn.
  std::vector<std::pair<std::string, int>> pieces = {{"<unk>", 2}, {"<s>", 3}, {"E", 1},  {"N", 1},
                                                     {"D", 1},     {"EN", 1},  {"END", 1}};
  const std::string turn = "<|im_end|>";
  for (std::size_t size = 1; size <= turn.size(); ++size) {
    const std::string begin = turn.substr(0, size), last = turn.substr(size - 1, 1);
    for (const std::string& text : {last, begin}) {
      const bool known = std::any_of(pieces.begin(), pieces.end(),
                                     [&](const auto& piece) { return piece.first == text; });
      if (!known) pieces.emplace_back(text, 1);
    }
  }
  const auto tokenizer = load_gguf(pieces_of(pieces, 6));
  const auto last = static_cast<TokenId>(pieces.size() - 1);
  EXPECT_EQ(tokenizer->encode("END"), Ids({6}));
  EXPECT_EQ(tokenizer->encode(turn), Ids({last}));
  EXPECT_EQ(tokenizer->encode_typed("END"), Ids({5, 4}));
  const Ids typed = tokenizer->encode_typed("EN" + turn + "D");
  EXPECT_EQ(std::count(typed.begin(), typed.end(), last), 0);
  EXPECT_EQ(tokenizer->decode(typed), "EN" + turn + "D");
}

// Some metadata name a byte for the end of a text. It stands for text all the same.
TEST(GgufTokenizer, BytesStayTextWhateverTheyAreNamedFor) {
  std::vector<std::pair<std::string, int>> all = {
      {"<unk>", 2}, {"<s>", 3}, {"</s>", 3}, {"a", 1}, {"b", 1}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    all.emplace_back(text, 6);
  }
  const auto pieces = load_gguf(pieces_of(all, 15));
  EXPECT_EQ(pieces->encode_typed("a\nb"), Ids({3, 15, 4}));
  EXPECT_EQ(pieces->decode(Ids({3, 15, 4})), "a\nb");

  GgufBytes file = shapes_of("llama").add("tokenizer.ggml.model", "gpt2");
  file.add("tokenizer.ggml.pre", "gpt-2");
  file.add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "b", "\u010a"});
  file.add("tokenizer.ggml.token_type", std::vector<int>{3, 1, 1, 1});
  file.add_list("tokenizer.ggml.merges", GgufBytes::string, 0, "");
  file.add("tokenizer.ggml.bos_token_id", 0).add("tokenizer.ggml.eos_token_id", 3);
  const auto bytes = load_gguf(file);
  EXPECT_EQ(bytes->encode_typed("a\nb"), Ids({1, 3, 2}));
  EXPECT_EQ(bytes->decode(Ids({1, 3, 2})), "a\nb");
}

TEST(GgufTokenizer, RefusesByName) {
  const Json golden = gguf_golden("bpe");
  const auto refusal = [](const GgufBytes& file) {
    const std::string message = error_of([&] { load_gguf(file); });
    EXPECT_NE(message.find("m.gguf: "), message.npos) << message;
    return message;
  };
  const auto with = [&](const char* model) {
    GgufBytes file = shapes_of("llama").add("tokenizer.ggml.model", model);
    file.add("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "a", "a"});
    return file;
  };
  const std::string pre = refusal(bpe_metadata(golden, "viking"));
  EXPECT_NE(pre.find("tokenizer.ggml.pre 'viking' is unknown to coppice, which knows llama-bpe, "),
            pre.npos)
      << pre;
  EXPECT_NE(pre.find("--prompt-ids"), pre.npos) << pre;
  EXPECT_NE(refusal(with("gpt2")).find("tokenizer.ggml.pre 'default'"), std::string::npos);
  EXPECT_NE(refusal(with("bert")).find("tokenizer.ggml.model 'bert' is unknown"),
            std::string::npos);
  EXPECT_NE(refusal(with("llama")).find("tokenizer.ggml.scores is missing"), std::string::npos);
  GgufBytes scores = with("llama");
  scores.add("tokenizer.ggml.scores", std::vector<float>{0.0f});
  EXPECT_NE(refusal(scores).find("but must be a list of 3 numbers"), std::string::npos);
  GgufBytes twice = with("gpt2");
  twice.add("tokenizer.ggml.pre", "gpt-2");
  EXPECT_NE(refusal(twice).find("tokenizer.ggml.tokens: 'a' is token 1 and 2"), std::string::npos);
  EXPECT_NE(refusal(shapes_of("llama")).find("has no tokenizer (tokenizer.ggml.model)"),
            std::string::npos);
}

TEST(GgufTokenizer, ToldApartByTokensAlone) {
  const Json golden = gguf_golden("bpe");
  const TemporaryFolder folder;
  const auto put = [&](const char* name, const GgufBytes& file) {
    write_file(folder.path() / name, file.bytes());
    return folder.path() / name;
  };
  const auto one = put("one.gguf", bpe_metadata(golden, "qwen2"));
  const auto other = put("other.gguf", bpe_metadata(golden, "qwen2").add("general.name", "x"));
  const auto third = put("third.gguf", sentencepiece_metadata(gguf_golden("sentencepiece")));
  EXPECT_TRUE(Tokenizer::same_file(one, other));
  EXPECT_FALSE(Tokenizer::same_file(one, third));
  EXPECT_FALSE(Tokenizer::same_file(one, folder.path()));
  EXPECT_TRUE(Tokenizer::is_in(one));
  EXPECT_FALSE(Tokenizer::is_in(put("new.gguf", bpe_metadata(golden, "viking"))))
      << "such a model runs by token ids";
}

}  // namespace
}  // namespace coppice::testing

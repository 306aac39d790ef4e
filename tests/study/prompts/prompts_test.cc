// Prompt files as benchmarks publish them, and what is wrong with others.
#include "study/prompts/prompts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "reference/tiny_model.h"

namespace coppice::study {
namespace {

class Prompts : public ::testing::Test {
 protected:
  std::vector<StudyPrompt> read(const std::string& contents, const char* name = "p.jsonl") {
    const auto file = folder_.path() / name;
    std::ofstream(file, std::ios::binary) << contents;
    return read_prompts(file);
  }
  void expect_error(const std::string& contents, const std::string& says,
                    const char* name = "p.jsonl") {
    try {
      read(contents, name);
      FAIL() << contents << " was read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
  }
  coppice::testing::TemporaryFolder folder_;
};

TEST_F(Prompts, EveryFormat) {
  const auto all = read(
      "{\"kind\": \"tales\", \"prompt\": \"Once\\nupon\"}\r\n"
      "\n"
      R"({"question_id": 81, "category": "writing", "turns": ["First turn", "Second turn"]})"
      "\n"
      R"({"question": "How many?", "answer": "4 #### 4"})"
      "\n"
      R"({"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": "x"})"
      "\n"
      R"({"text": "Some text", "kind": null})"
      "\n"
      R"({"kind": "ids", "tokens": [1, 5, 7]})");  // no end of line
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0].turns.at(0), "Once\nupon");
  EXPECT_EQ(all[0].kind, "tales");
  EXPECT_EQ(all[0].line, 1);
  EXPECT_EQ(all[1].turns.at(0), "First turn");
  EXPECT_EQ(all[1].kind, "writing");
  EXPECT_EQ(all[1].line, 3) << "blank lines count";
  EXPECT_EQ(all[2].turns.at(0), "How many?");
  EXPECT_EQ(all[2].kind, "");
  EXPECT_EQ(all[3].turns.at(0), "def f():\n");
  EXPECT_EQ(all[4].turns.at(0), "Some text");
  EXPECT_TRUE(all[5].turns.empty());
  EXPECT_EQ(all[5].tokens, (std::vector<TokenId>{1, 5, 7}));
}

TEST_F(Prompts, PlainText) {
  const auto all = read(
      "\xef\xbb\xbf"
      "The captain\r\n\n  Two spaces before\n",
      "p.txt");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].turns.at(0), "The captain");
  EXPECT_EQ(all[1].turns.at(0), "  Two spaces before");
  EXPECT_EQ(read("{\"text\": \"x\"}\n", "p.txt")[0].turns.at(0), "x")
      << "JSON is known by its brace";
}

TEST_F(Prompts, ErrorsNameFileAndLine) {
  expect_error("{\"prompt\": \"x\"}\n{\"prompt\": 3}\n", "p.jsonl' line 2: \"prompt\" is 3");
  expect_error("{\"prompt\": \"x\"}\n\n{\"prompt\": \"x\"\n", "line 3: not valid JSON");
  expect_error("plain words\n", "line 1: not valid JSON");
  expect_error("[1]\n", "not an object");
  expect_error("{\"answer\": \"x\"}\n", "line 1: no prompt");
  expect_error("{\"prompt\": \"\"}\n", "line 1: \"prompt\" is empty");
  expect_error("{\"turns\": []}\n", "line 1: \"turns\"");
  expect_error("{\"turns\": [7]}\n", "line 1: \"turns\" is 7");
  expect_error("{\"tokens\": [1, -2]}\n", "line 1: \"tokens\" holds -2");
  expect_error("{\"tokens\": [1, 99999999999]}\n", "\"tokens\" holds 99999999999");
  expect_error("{\"tokens\": []}\n", "a list of token ids");
  expect_error("{\"prompt\": \"x\", \"kind\": 4}\n", "line 1: \"kind\" is 4");
  expect_error("{\"prompt\": \"x\", \"prompt\": \"y\"}\n", "appears twice");
  expect_error("good\nbad \xff\n", "line 2: not valid UTF-8", "p.txt");
  expect_error("\n \t\r\n", "it holds none", "p.txt");
  EXPECT_THROW(read_prompts(folder_.path() / "nowhere"), Error);
  EXPECT_THROW(read_prompts(folder_.path()), Error) << "a folder";
}

TEST_F(Prompts, ALimitSpreadsOverTheFile) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + "\n";
  const auto all = read(text, "p.txt");
  const auto texts = [&](std::int32_t count) {
    std::string joined;
    for (const StudyPrompt& p : spread(all, count)) joined += p.turns[0];
    return joined;
  };
  EXPECT_EQ(texts(0), "0123456789");
  EXPECT_EQ(texts(10), "0123456789");
  EXPECT_EQ(texts(25), "0123456789");
  EXPECT_EQ(texts(5), "02468");
  EXPECT_EQ(texts(3), "036");
  EXPECT_EQ(texts(1), "0");
}

}  // namespace
}  // namespace coppice::study

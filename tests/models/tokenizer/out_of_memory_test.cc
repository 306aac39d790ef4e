// Memory that runs out anywhere in a tokenizer: the call fails, and the next ones are right.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json_file.h"
#include "engine/failing_allocation.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/word_cache.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using tokenization::WordCache;

/// A folder with the tokenizer of a golden.
void lay_golden(const std::string& name, const fs::path& dir) {
  const JsonObject file = read_json_object(
      fs::path(COPPICE_SOURCE_DIR) / "tests/golden/tokenizers" / (name + ".json"), 1 << 20);
  write_file(dir / "tokenizer.json", file->at("tokenizer").dump());
}

/// Calls with memory for `last` allocations. Whether it ran out.
template <typename Call>
bool runs_out(long last, const Call& call) {
  allocations_left = last;
  try {
    call();
    allocations_left = -1;
    return false;
  } catch (const std::bad_alloc&) {
    allocations_left = -1;
    return true;
  }
}

// A word that was half kept must not be found.
TEST(TokenizerMemory, WordsAreKeptWholeOrNotAtAll) {
  const auto ids_of = [](TokenId word) { return std::vector<TokenId>(3, word); };
  int failed = 0;
  bool out = true;
  for (long last = 0; out; ++last) {
    WordCache cache;
    TokenId word = 0;
    std::string text;
    std::vector<TokenId> ids;
    out = runs_out(last, [&] {
      for (; word < 500; ++word) {
        text = std::to_string(word);
        ids = ids_of(word);
        cache.add(text, WordCache::hash(text), ids);
      }
    });
    failed += out;
    for (TokenId one = 0; one < 500; ++one) {
      text = std::to_string(one);
      const auto found = cache.find(text, WordCache::hash(text));
      if (one < word) {
        EXPECT_EQ(std::vector(found.begin(), found.end()), ids_of(one)) << last;
      } else {
        EXPECT_EQ(found.data(), nullptr) << last;
      }
    }
  }
  EXPECT_GT(failed, 500);
}

TEST(TokenizerMemory, EncodesAfterMemoryRanOut) {
  const TemporaryFolder folder;
  for (const char* name : {"byte_level", "unigram", "whole_text"}) {
    lay_golden(name, folder.path());
    const auto tokenizer = Tokenizer::load(folder.path()), other = Tokenizer::load(folder.path());
    int failed = 0;
    for (long last = 0; last < 100; ++last) {
      std::string text;
      for (long word = 0; word < 40; ++word) text += "w" + std::to_string(last * 40 + word) + " ";
      failed += runs_out(last, [&] { tokenizer->encode(text); });
      const auto tokens = tokenizer->encode(text);
      ASSERT_EQ(tokens, other->encode(text)) << name << ", allocation " << last;
      failed += runs_out(last, [&] { tokenizer->decode(tokens); });
      failed += runs_out(last, [&] { tokenizer->encode_typed("</s>" + text); });
    }
    EXPECT_GT(failed, 50) << name;
  }
}

TEST(TokenizerMemory, LoadingFailsAsTheCallerExpects) {
  const TemporaryFolder folder;
  lay_golden("byte_level", folder.path());
  int failed = 0;
  bool out = true;
  for (long last = 0; out; last += 1 + last / 20) {
    out = runs_out(last, [&] { Tokenizer::load(folder.path()); });
    failed += out;
  }
  EXPECT_GT(failed, 50);
}

}  // namespace
}  // namespace coppice::testing

// Masks of XGrammar, on the shipped vocabulary. Made by
//   bench/constraints/compare.py --golden tests/golden/constraint_masks.json --end 2
//       --walks 3 --steps 40 models/stories/target
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json_file.h"
#include "constraints/languages.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice::constraints_test {
namespace {

std::uint32_t crc32(const std::vector<std::uint32_t>& words) {
  std::uint32_t sum = ~0u;
  for (const std::uint32_t word : words) {
    for (int bit = 0; bit < 32; ++bit) {
      const std::uint32_t odd = (sum ^ word >> bit) & 1;
      sum = sum >> 1 ^ (odd != 0 ? 0xedb88320u : 0);
    }
  }
  return ~sum;
}

TEST(ConstraintGolden, MasksAreXGrammars) {
  const auto tokenizer = Tokenizer::load(COPPICE_SOURCE_DIR "/models/stories/target");
  const std::vector<TokenId> ends = {2};
  const auto vocabulary = std::make_shared<const Vocabulary>(*tokenizer, ends);
  const std::string path = COPPICE_SOURCE_DIR "/tests/golden/constraint_masks.json";
  const JsonObject golden = parse_json_value(read_file(path, "", 1 << 20), path);
  std::size_t masks = 0;
  for (const auto& one : *golden) {
    const auto kind = one.at("kind").get<std::string>();
    Shared constraint;
    if (kind == "choice") {
      constraint =
          compiled({Kind::choice, one.at("text").get<std::vector<std::string>>()}, vocabulary);
    } else {
      const auto text = one.at("text").get<std::string>();
      constraint = kind == "schema"
                       ? compiled({Kind::json_schema, {text}, JsonSpace::python}, vocabulary)
                   : kind == "regex" ? compiled({Kind::regex, {text}}, vocabulary)
                                     : compiled({Kind::grammar, {text}}, vocabulary);
    }
    Constraint::State state = constraint->start();
    for (std::size_t i = 0; i < one.at("tokens").size(); ++i, ++masks) {
      ASSERT_NE(state, Constraint::nowhere);
      ASSERT_EQ(crc32(constraint->mask(state)->words), one.at("masks")[i].get<std::uint32_t>())
          << one.at("text") << ", token " << i;
      state = constraint->advance(state, one.at("tokens")[i].get<TokenId>());
    }
  }
  EXPECT_GT(masks, 500u);
}

}  // namespace
}  // namespace coppice::constraints_test

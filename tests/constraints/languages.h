// Small vocabularies, and what tests of constraints compare masks with.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "constraints/constraint.h"

namespace coppice::constraints_test {

using constraints::Constraint;
using constraints::ConstraintSource;
using constraints::JsonSpace;
using constraints::Mask;
using constraints::Vocabulary;
using Kind = ConstraintSource::Kind;
using Shared = std::shared_ptr<const Constraint>;

inline constexpr TokenId end_token = 1;

/// Token 0 is special, token 1 the end; then all single bytes, then pieces of texts as vocabularies
/// have them, some twice.
inline std::vector<std::string> small_pieces() {
  std::vector<std::string> bytes = {"", "</s>"};
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* piece : {"ab",
                            "abc",
                            "ba",
                            "bab",
                            "aaaa",
                            "aaaaaaaa",
                            "  ",
                            "    ",
                            " \"",
                            "\",",
                            "\", ",
                            "\": ",
                            "\":",
                            "\"\"",
                            "{\"",
                            "\"}",
                            "\"}]",
                            "}]",
                            "]}",
                            "},",
                            "[]",
                            "{}",
                            "[{\"",
                            "true",
                            "false",
                            "null",
                            "10",
                            "12",
                            "00",
                            "123",
                            "0.",
                            ".5",
                            "e+",
                            "-1",
                            "\\\"",
                            "\\\\",
                            "\\u",
                            "\\n",
                            "u00",
                            "name",
                            "na",
                            "\"name",
                            "name\"",
                            "name\":",
                            "age",
                            "x\"y",
                            "tes",
                            "t\", \"",
                            "\xc3\xa9",
                            "\xc3\xa9t\xc3\xa9",
                            "\xa9",
                            "\xe2\x82\xac",
                            "\x82\xac",
                            "\xf0\x9f\x98\x80",
                            "\x9f\x98",
                            "\n\n",
                            "\n  ",
                            "ab",
                            "the ",
                            "2024",
                            "-01",
                            "-02-",
                            "\xe2\x82",
                            "z\xc3",
                            "bcx",
                            "a\xc3\xa9",
                            "e\n",
                            "no \"",
                            "\xf0\x9f\x98\x80!"}) {
    bytes.emplace_back(piece);
  }
  return bytes;
}

inline std::shared_ptr<const Vocabulary> small_vocabulary() {
  static const auto vocabulary =
      std::make_shared<const Vocabulary>(small_pieces(), std::vector<TokenId>{end_token});
  return vocabulary;
}

inline bool accepts(const Constraint& constraint, std::string_view text) {
  return constraint.accepting(constraint.advance(constraint.start(), text));
}

inline Shared compiled(ConstraintSource source,
                       std::shared_ptr<const Vocabulary> vocabulary = small_vocabulary()) {
  return std::make_shared<const Constraint>(std::move(vocabulary), compile(std::move(source)));
}
inline Shared regex(std::string_view pattern) {
  return compiled({Kind::regex, {std::string(pattern)}});
}
inline Shared gbnf(std::string_view grammar) {
  return compiled({Kind::grammar, {std::string(grammar)}});
}
inline Shared schema(std::string_view text, JsonSpace space = JsonSpace::python) {
  return compiled({Kind::json_schema, {std::string(text)}, space});
}

/// The message of the Error(usage) that `make` throws; a test that fails if it throws none.
template <typename Make>
std::string refusal(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

/// The mask of a state, by following every token byte by byte.
inline Mask slow_mask(const Constraint& constraint, Constraint::State state) {
  Mask mask;
  const Vocabulary& vocabulary = constraint.vocabulary();
  mask.words.assign(vocabulary.words(), 0);
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    Constraint::State after = state;
    const std::string_view bytes = vocabulary.bytes(token);
    for (std::size_t i = 0; i < bytes.size() && after != Constraint::nowhere; ++i) {
      after = constraint.advance(after, bytes.substr(i, 1));
    }
    const bool is_allowed = vocabulary.is_end(token)
                                ? constraint.accepting(state)
                                : !bytes.empty() && after != Constraint::nowhere;
    if (!is_allowed) continue;
    mask.words[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    mask.allowed += 1;
    mask.only = token;
  }
  if (mask.allowed != 1) mask.only = -1;
  return mask;
}

inline std::vector<TokenId> tokens_of(const Mask& mask) {
  std::vector<TokenId> all;
  for (TokenId t = 0; t < static_cast<TokenId>(32 * mask.words.size()); ++t) {
    if (mask.has(t)) all.push_back(t);
  }
  return all;
}

/// Walks over random tokens of the masks, and calls `at` with each state and its mask. Returns the
/// texts that ended.
template <typename At>
std::vector<std::string> walk(const Constraint& constraint, int walks, int steps, const At& at) {
  std::mt19937 random(7);
  std::vector<std::string> ended;
  for (int i = 0; i < walks; ++i) {
    Constraint::State state = constraint.start();
    std::string text;
    for (int step = 0; step < steps; ++step) {
      const auto mask = constraint.mask(state);
      at(state, *mask);
      const std::vector<TokenId> all = tokens_of(*mask);
      TokenId token = all[random() % all.size()];
      if (mask->has(end_token) && random() % 3 == 0) token = end_token;
      // Texts are to end: structure is likelier than what strings are filled with.
      const std::string_view marks = "\"]}";
      const auto mark = static_cast<TokenId>(2 + static_cast<unsigned char>(marks[random() % 3]));
      if (random() % 4 == 0 && mask->has(mark)) token = mark;
      if (token == end_token) {
        ended.push_back(text);
        break;
      }
      text += constraint.vocabulary().bytes(token);
      state = constraint.advance(state, token);
      if (state == Constraint::nowhere) {
        ADD_FAILURE() << "token " << token << " of the mask leads nowhere behind " << text;
        break;
      }
    }
  }
  return ended;
}

}  // namespace coppice::constraints_test

// Text that somebody typed to take hold of a model, and what must not come of it.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace coppice::testing {

/// Characters of valid UTF-8.
inline std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> out;
  for (const char c : text) {
    if (out.empty() || (static_cast<unsigned char>(c) & 0xC0) != 0x80) out.emplace_back();
    out.back() += c;
  }
  return out;
}

/// Ids of a tokenizer that no typed text may become, by its public face: added tokens that are
/// not shown or of several characters, unless they are white space, the unknown token, or a shown
/// byte piece.
inline std::set<TokenId> steering_ids(const Tokenizer& tokenizer, TokenId unknown) {
  const std::set<std::string> spaces = {" ",      "\t",     "\n",     "\v",     "\f",
                                        "\r",     "\u0085", "\u00a0", "\u1680", "\u2028",
                                        "\u2029", "\u202f", "\u205f", "\u3000", "\u2581"};
  std::set<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.pieces(); ++id) {
    const std::string text(tokenizer.added_text(id));
    if (text.empty() || id == unknown) continue;
    const std::vector<std::string> characters = characters_of(text);
    bool space = true;
    for (const std::string& one : characters) {
      space = space && (spaces.contains(one) || (one >= "\u2000" && one <= "\u200a"));
    }
    const bool hidden = tokenizer.bytes_of(id).empty();
    const bool byte = text.size() == 6 && text.starts_with("<0x");
    if (!space && (hidden || (characters.size() > 1 && !byte))) ids.insert(id);
  }
  return ids;
}

/// Spellings of marks, parts and mixtures of them, in full width, with white space around.
class Typist {
 public:
  Typist(std::vector<std::string> marks, std::uint32_t seed)
      : marks_(std::move(marks)), random_(seed) {
    if (marks_.size() > 100) marks_.resize(100);
    marks_.insert(marks_.end(), {"<s>", "</s>", "<unk>", "a"});
  }
  std::string text() {
    std::string out;
    for (std::size_t n = 1 + below(6); n > 0; --n) out += part();
    return out;
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  std::string part() {
    static const std::vector<std::string> fillers = {
        " ", "  ", "\n", "\t", "a", "b ", "The sea", "1234", "\u2581", "\u00e9", "\u65e5", "word"};
    const std::string& mark = marks_[below(marks_.size())];
    std::vector<std::string> characters = characters_of(mark);
    const std::size_t kind = below(8);
    if (kind == 0) return fillers[below(fillers.size())];
    if (kind == 1) characters.resize(1 + below(characters.size()));
    if (kind == 2)
      characters.erase(characters.begin(), characters.begin() + below(characters.size()));
    if (kind == 3) characters.insert(characters.begin() + below(characters.size() + 1), " ");
    std::string out;
    for (const std::string& one : characters) {
      const auto code = static_cast<unsigned char>(one.front());
      if (kind == 4 && code > 0x20 && code < 0x7f) {  // U+FF01 on
        out += "\xef";
        out += static_cast<char>(0xbc + (code - 0x20) / 0x40);
        out += static_cast<char>(0x80 + (code - 0x20) % 0x40);
      } else if (kind == 5 && code < 0x7f) {
        out += static_cast<char>(std::toupper(code));
      } else {
        out += one;
      }
    }
    return out;
  }

  std::vector<std::string> marks_;
  std::mt19937 random_;
};

/// Many typed texts become none of the tokens `steering`. Returns how many were encoded: what the
/// tokenizer refuses goes to `refused`.
template <typename Refused>
int expect_steers_nothing(const Tokenizer& tokenizer, const std::set<TokenId>& steering,
                          Typist& typist, int texts, const std::string& what,
                          const Refused& refused) {
  int encoded = 0;
  for (int i = 0; i < texts; ++i) {
    const std::string text = typist.text();
    const TokenId before = i % 3 == 0   ? Tokenizer::at_start
                           : i % 3 == 1 ? Tokenizer::after_text
                                        : i % std::max(tokenizer.pieces(), 1);
    try {
      for (const TokenId token : tokenizer.encode_typed(text, before)) {
        EXPECT_FALSE(steering.contains(token))
            << what << ": " << ::testing::PrintToString(text) << " became " << token << " "
            << tokenizer.piece(token);
      }
      ++encoded;
    } catch (const std::exception& error) {
      refused(error);
    }
  }
  return encoded;
}

}  // namespace coppice::testing

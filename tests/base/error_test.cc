#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

#include "base/remedy.h"
#include "base/utf8.h"

namespace coppice {
namespace {

TEST(Printable, EscapesWhatActsOnATerminal) {
  EXPECT_EQ(printable("plain 'words' \\ caf\u00e9 \u0434\u3042\U0001f600"),
            "plain 'words' \\ caf\u00e9 \u0434\u3042\U0001f600");
  EXPECT_EQ(printable("a\nb\tc\rd\x1b[2Je\x7f"), "a\\nb\\tc\\x0dd\\x1b[2Je\\x7f");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\u0080\u009b31m\u009f\u00a0"), "\\u0080\\u009b31m\\u009f\u00a0");
  EXPECT_EQ(printable("\u202a\u202e\u2066\u2069\u200e\u200f\u061c\u2028\u2029"),
            "\\u202a\\u202e\\u2066\\u2069\\u200e\\u200f\\u061c\\u2028\\u2029");
  EXPECT_EQ(printable("\u202f\u2065\u200d"), "\u202f\u2065\u200d");
}

TEST(ErrorMessages, HaveABoundedLength) {
  const std::string message = "file: " + std::string(1 << 20, 'x') + "; fetch it again";
  try {
    throw_failure(message);
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.size(), 2003u);
    EXPECT_TRUE(said.starts_with("file: xxx") && said.ends_with("xx; fetch it again"));
  }
}

TEST(Printable, EscapesWhatIsNotUtf8AndOnlyThat) {
  EXPECT_EQ(printable("\xff\u00e9\x80"), "\\xff\u00e9\\x80");
  EXPECT_EQ(printable("\x9b[2J"), "\\x9b[2J");
  EXPECT_EQ(printable("\xc3"), "\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string shown =
          printable(std::string{static_cast<char>(a), static_cast<char>(b), 'x'});
      ASSERT_TRUE(is_valid_utf8(shown)) << a << " " << b;
      for (const char c : shown) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    }
  }
}

TEST(Printable, AnErrorIsOneLineWhateverItHolds) {
  EXPECT_STREQ(Error(ErrorKind::usage, "a\nb\x1b]0;title\x07").what(), "a\\nb\\x1b]0;title\\x07");
}

TEST(Remedy, FollowsASentenceAsOne) {
  EXPECT_EQ(with_remedy("no such file", "see --help"), "no such file; see --help");
  EXPECT_EQ(with_remedy("did you mean x?", "see --help"), "did you mean x? See --help");
  EXPECT_EQ(with_remedy("Only users may speak!", "correct it"), "Only users may speak! Correct it");
  EXPECT_EQ(with_remedy("It ends.", "--n 4 is more"), "It ends. --n 4 is more");
}

TEST(Quote, ShortensBetweenCharacters) {
  EXPECT_EQ(quote("a\nb"), "'a\\nb'");
  for (std::size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    while (text.size() < 400) text += "\U0001f600";
    const std::string shown = quote(text);
    EXPECT_TRUE(is_valid_utf8(shown));
    EXPECT_EQ(shown.find("\\x"), std::string::npos) << shown;
    EXPECT_NE(shown.find("..."), std::string::npos);
    EXPECT_LT(shown.size(), 180u);
  }
  EXPECT_LT(quote(std::string(1000, '\xff')).size(), 1000u);
}

}  // namespace
}  // namespace coppice

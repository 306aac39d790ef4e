#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace coppice {
namespace {

TEST(TextStream, ReleasesWholeCharactersOnly) {
  TextStream stream({});
  const std::string euro = "\xE2\x82\xAC";
  EXPECT_FALSE(stream.push("a" + euro.substr(0, 1)));
  EXPECT_EQ(stream.release(false), "a");
  stream.push(euro.substr(1, 1));
  EXPECT_EQ(stream.release(false), "");
  stream.push(euro.substr(2));
  EXPECT_EQ(stream.release(false), euro);
  EXPECT_EQ(stream.release(true), "");
}

TEST(TextStream, ReplacesInvalidBytes) {
  TextStream stream({});
  stream.push("x\xFFy\xE2\x82");
  EXPECT_EQ(stream.release(false), "x\xEF\xBF\xBDy");
  // A sequence that never ends becomes replacement characters.
  const std::string rest = stream.release(true);
  EXPECT_TRUE(is_valid_utf8(rest));
  EXPECT_FALSE(rest.empty());
}

TEST(TextStream, HoldsBackWhatMayBecomeAStopText) {
  TextStream stream({"</end>"});
  stream.push("one <");
  EXPECT_EQ(stream.release(false), "one ");
  stream.push("/en");
  EXPECT_EQ(stream.release(false), "");
  stream.push("ter");
  EXPECT_EQ(stream.release(false), "</enter");
  stream.push(" </e");
  EXPECT_TRUE(stream.push("nd> gone"));
  EXPECT_EQ(stream.release(true), " ");
  // " </e" and "nd> gone" reach into the stop text; the four tokens before do not.
  EXPECT_EQ(stream.tokens_before_stop(), 3u);
}

TEST(TextStream, FindsTheEarliestOfSeveralStops) {
  TextStream stream({"longer stop", "stop"});
  EXPECT_TRUE(stream.push("a longer stop"));
  EXPECT_EQ(stream.release(true), "a ");
  TextStream overlapping({"aab"});
  overlapping.push("aa");
  EXPECT_EQ(overlapping.release(false), "");
  overlapping.push("a");
  EXPECT_EQ(overlapping.release(false), "a");
  EXPECT_TRUE(overlapping.push("b"));
  EXPECT_EQ(overlapping.release(true), "");
}

TEST(TextStream, EveryPrefixIsValidUtf8HoweverBytesArrive) {
  const std::string text = "na\xC3\xAFve \xF0\x9F\x8C\xB3 \xE6\x9C\xA8 stop";
  for (std::size_t cut = 1; cut < 5; ++cut) {
    TextStream stream({"stop"});
    std::string shown;
    for (std::size_t i = 0; i < text.size(); i += cut) {
      const bool stopped = stream.push(text.substr(i, cut));
      shown += stream.release(stopped);
      EXPECT_TRUE(is_valid_utf8(shown)) << cut << " " << i;
      if (stopped) break;
    }
    EXPECT_EQ(shown, text.substr(0, text.size() - 4));
  }
}

TEST(Utf8, RejectsWhatRfc3629Forbids) {
  for (const char* bad : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5",
                          "\x80", "\xE2\x28\xA1"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
  }
  EXPECT_TRUE(is_valid_utf8("\xF4\x8F\xBF\xBF\xEE\x80\x80"));
}

}  // namespace
}  // namespace coppice

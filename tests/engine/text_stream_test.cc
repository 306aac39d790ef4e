#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>

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

// A special token is not shown, but a stop text may spell it, alone or with text on either side.
TEST(TextStream, StopTextsMaySpellSpecialTokens) {
  const auto push_all = [](TextStream& stream, std::string& shown) {
    const std::vector<std::pair<std::string, std::string>> tokens = {
        {"one", ""}, {"", "<end>"}, {" two", ""}, {"", "<end>"}, {"", "<stop>"}, {"x", ""}};
    for (const auto& [bytes, hidden] : tokens) {
      const bool stopped = stream.push(bytes, hidden);
      shown += stream.release(stopped);
      if (stopped) return true;
    }
    shown += stream.release(true);
    return false;
  };
  const std::vector<std::tuple<std::string, std::string, std::size_t>> cases = {
      {"<stop>", "one two", 4},  {"<end>", "one", 1},           {"e<end>", "on", 0},
      {"<end> t", "one", 1},     {"two<end><stop>", "one ", 2}, {"nd><st", "one two", 3},
      {"<stop>x", "one two", 4}, {"one<end> two<e", "", 0}};
  for (const auto& [stop, text, tokens] : cases) {
    TextStream stream({"never", stop});
    std::string shown;
    EXPECT_TRUE(push_all(stream, shown)) << stop;
    EXPECT_EQ(shown, text) << stop;
    EXPECT_EQ(stream.tokens_before_stop(), tokens) << stop;
  }
  for (const char* stop : {"one two", "<end>x", "<stop>y", "e two"}) {
    TextStream stream({stop});
    std::string shown;
    EXPECT_FALSE(push_all(stream, shown)) << stop;
    EXPECT_EQ(shown, "one twox");
    EXPECT_EQ(stream.tokens_before_stop(), 6u);
  }
  // What a special token parts is one character where it is shown.
  TextStream stream({"<end>!"});
  stream.push("\xE2\x82");
  EXPECT_EQ(stream.release(false), "");
  stream.push("", "<end>");
  EXPECT_EQ(stream.release(false), "");
  stream.push("\xAC");
  EXPECT_EQ(stream.release(false), "\xE2\x82\xAC");
}

// One U+FFFD for each longest beginning of a character, as Python's bytes.decode("utf-8",
// "replace") and Rust's from_utf8_lossy do, whole or in pieces.
TEST(TextStream, ReplacesEachBrokenSequenceOnce) {
  const std::string one = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, int>> broken = {{"\xF0\x9F\x98", 1},
                                                           {"\xE2\x82", 1},
                                                           {"\xE2", 1},
                                                           {"\xC0\x80", 2},
                                                           {"\xED\xA0\x80", 3},
                                                           {"\xF4\x90\x80\x80", 4},
                                                           {"\xF5\x80", 2},
                                                           {"\x80\xBF", 2},
                                                           {"\xE2\x82\xE2\x82", 2},
                                                           {"\xF0\x9F\xF0\x9F\x98", 2},
                                                           {"\xE0\x80", 2},
                                                           {"\xC3\xFF\xF0\x90\x80", 3}};
  for (const auto& [bytes, count] : broken) {
    std::string text = "a";
    for (int i = 0; i < count; ++i) text += one;
    for (const std::string tail : {"", "B", "\u00e9"}) {
      EXPECT_EQ(to_valid_utf8("a" + bytes + tail), text + tail);
      for (const bool stops : {false, true}) {
        TextStream stream(stops ? std::vector<std::string>{"never", "\u00e8"}
                                : std::vector<std::string>{});
        std::string pieces;
        for (const char byte : "a" + bytes + tail) {
          EXPECT_FALSE(stream.push(std::string(1, byte)));
          pieces += stream.release(false);
          EXPECT_TRUE(is_valid_utf8(pieces));
        }
        EXPECT_EQ(pieces + stream.release(true), text + tail);
      }
    }
  }
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

#include "chat/rendering.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/chat_template.h"
#include "chat/json.h"

namespace coppice::testing {
namespace {

constexpr const char* names = R"json({
  "messages": [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "  Ünï <b> 'q' \"d\" \n"},
    {"role": "assistant", "content": "fine",
     "tool_calls": [{"name": "f", "arguments": {"b": 1, "a": [1.5, null, true, "x\ny"]}}]}],
  "name": "ada", "n": 7, "f": 2.5, "big": 1e20, "small": 1e-7, "none_value": null, "yes": true,
  "words": ["b", "a", "C", "b"], "d": {"z": 1, "y": "two", "items": 3}, "empty": [],
  "nested": [[1, 2], [3, [4]]]})json";

}  // namespace

chat::Text render(const std::string& source) { return render(source, names); }

chat::Text render(const std::string& source, const std::string& context, bool foreign) {
  // 2 January 2026, at noon in UTC: the same day in every zone but the outermost.
  return chat::ChatTemplate::parse(source, "template")
      .render(chat::parse_json(context, "context", foreign), 1767355200);
}

std::string in_brackets(const chat::Text& text) {
  std::string out;
  for (const chat::Segment& part : text.segments()) {
    out += part.foreign ? "[" + std::string(part.text) + "]" : std::string(part.text);
  }
  return out;
}

void expect_renders(const std::vector<Rendering>& cases) {
  for (const Rendering& one : cases) {
    try {
      EXPECT_EQ(render(one.source).bytes(), one.text) << one.source;
    } catch (const Error& error) {
      ADD_FAILURE() << one.source << "\n" << error.what();
    }
  }
}

}  // namespace coppice::testing

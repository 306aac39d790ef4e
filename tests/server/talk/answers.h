// Answers read in pieces, put together again.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "server/talk/answer_parser.h"

namespace coppice::server_test {

using server::AnswerDelta;
using server::AnswerForm;
using server::AnswerOptions;
using server::AnswerParser;
using server::ToolForm;

struct Call {
  std::string id, name, arguments;
  bool operator==(const Call&) const = default;
};
struct Answer {
  std::string content, reasoning;
  std::vector<Call> calls;
  bool operator==(const Answer&) const = default;
};
inline void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "content [" << answer.content << "] reasoning [" << answer.reasoning << "]";
  for (const Call& call : answer.calls) {
    *out << " call " << call.id << " " << call.name << " " << call.arguments;
  }
}

inline void add(Answer& answer, const std::vector<AnswerDelta>& deltas) {
  for (const AnswerDelta& delta : deltas) {
    switch (delta.kind) {
      case AnswerDelta::Kind::content:
        answer.content += delta.text;
        break;
      case AnswerDelta::Kind::reasoning:
        answer.reasoning += delta.text;
        break;
      case AnswerDelta::Kind::call:
        EXPECT_EQ(delta.call, static_cast<int>(answer.calls.size()));
        answer.calls.push_back({delta.id, delta.name, ""});
        break;
      case AnswerDelta::Kind::arguments:
        ASSERT_EQ(delta.call, static_cast<int>(answer.calls.size()) - 1);
        answer.calls.back().arguments += delta.text;
    }
  }
}

inline Answer read(const AnswerOptions& options, const std::vector<std::string_view>& pieces) {
  AnswerParser parser(options);
  Answer answer;
  for (const std::string_view piece : pieces) add(answer, parser.feed(piece));
  add(answer, parser.finish());
  EXPECT_EQ(parser.calls(), static_cast<int>(answer.calls.size()));
  return answer;
}

/// Places between characters; in text that is no UTF-8, every place.
inline std::vector<std::size_t> places_to_cut(std::string_view text) {
  std::vector<std::size_t> places = {0};
  while (places.back() < text.size()) {
    const int length = utf8_sequence(text.substr(places.back()));
    places.push_back(places.back() + (length > 0 ? static_cast<std::size_t>(length) : 1));
  }
  return places;
}

/// The answer of a whole text, which all ways to cut it once, and character by character, must have
/// as well.
inline Answer read_cut_everywhere(const AnswerOptions& options, std::string_view text) {
  const Answer whole = read(options, {text});
  const auto places = places_to_cut(text);
  std::vector<std::string_view> characters;
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    characters.push_back(text.substr(places[i], places[i + 1] - places[i]));
    const auto cut = {text.substr(0, places[i]), text.substr(places[i])};
    EXPECT_EQ(read(options, cut), whole) << text << " cut at " << places[i];
  }
  EXPECT_EQ(read(options, characters), whole) << text;
  return whole;
}

}  // namespace coppice::server_test

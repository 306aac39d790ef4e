// One choice of a chat's answer while it is written: content, reasoning and tool calls.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/backend.h"
#include "server/talk/answer_parser.h"

namespace coppice::server {

/// Puts special tokens, which an engine does not show, back to where they stood in its text.
class SpelledText {
 public:
  explicit SpelledText(const Backend& backend) : backend_(backend) {}
  /// `text` is shown now; `tokens` came now, and their text may follow later.
  std::string feed(std::string_view text, std::span<const TokenId> tokens);
  /// Tokens that begin among the first `bytes` of what feed() returned.
  std::int64_t tokens_within(std::size_t bytes) const;

 private:
  const Backend& backend_;
  std::size_t spelled_ = 0;          ///< bytes
  std::vector<std::size_t> starts_;  ///< of tokens, in these
  std::vector<TokenText> tokens_;    ///< whose text has not been shown whole
  std::size_t shown_ = 0;            ///< bytes of the first of them
};

class ChatChoice {
 public:
  ChatChoice(const Backend& backend, const AnswerOptions& options)
      : spelled_(backend), parser_(options) {}

  std::vector<AnswerDelta> feed(std::string_view text, std::span<const TokenId> tokens) {
    return parser_.feed(spelled_.feed(text, tokens));
  }
  std::vector<AnswerDelta> finish() { return parser_.finish(); }
  bool calls_tools() const { return parser_.calls() > 0; }
  std::int64_t reasoning_tokens() const {
    return spelled_.tokens_within(parser_.reasoning_bytes());
  }

 private:
  SpelledText spelled_;
  AnswerParser parser_;
};

}  // namespace coppice::server

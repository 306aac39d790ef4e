// A conversation with a model whose KV is kept from turn to turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "cli/conversation.h"
#include "coppice.h"

namespace coppice::cli {

class ChatSession {
 public:
  ChatSession(Engine& engine, Conversation conversation, const GenerateOptions& request)
      : engine_(engine),
        conversation_(std::move(conversation)),
        request_(request),
        sequence_(engine.new_sequence()) {}

  /// Says `text` and has the model answer. Only what is new is computed, and, if the template
  /// changed what was said before, all from there on; computed_again() then says how much. If it
  /// throws, nothing was said. Once `stop` is asked for, the answer ends where it is.
  Generation answer(const std::string& text, const PieceCallback& callback,
                    const std::stop_token& stop);
  /// Has the model answer the last message once more, by other random numbers, in place of its
  /// last answer. If it throws, that answer stands. There is a message.
  Generation retry(const PieceCallback& callback, const std::stop_token& stop);
  /// Takes the last message and its answer back, and returns the message; nothing if none is left.
  std::optional<std::string> undo();

  /// Tokens of the last answer's context that had been computed before and were computed again.
  std::int32_t computed_again() const { return computed_again_; }
  /// Tokens that are kept now.
  std::int32_t length() const { return static_cast<std::int32_t>(sequence_.tokens().size()); }
  const Conversation& conversation() const { return conversation_; }
  void reset();

 private:
  /// Where the text that the sequence holds and its tokens end together.
  struct Mark {
    std::size_t bytes;
    std::int32_t tokens;
  };
  Generation go_on(const PieceCallback& callback, const std::stop_token& stop);
  std::vector<TokenId> cut_back(const chat::Text& whole);

  Engine& engine_;
  Conversation conversation_;
  GenerateOptions request_;
  Sequence sequence_;
  std::string kept_;                ///< the text whose tokens the sequence holds
  std::vector<Mark> marks_;         ///< at the ends of prompts and answers, in order
  std::vector<std::size_t> turns_;  ///< how many marks there were before each turn
  bool taken_back_ = false;         ///< something was, since the last answer
  std::int32_t computed_again_ = 0;
};

}  // namespace coppice::cli

// A conversation with a model whose KV is kept from turn to turn.
#pragma once

#include <string>

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

  /// Says `text` and has the model answer. Only what is new since the last answer is computed,
  /// unless the template changed what was said before; computed_again() then says how much. If it
  /// throws, nothing was said.
  Generation answer(const std::string& text, const PieceCallback& callback);

  /// Tokens of the last answer's context that had been computed before and were computed again.
  std::int32_t computed_again() const { return computed_again_; }
  /// Tokens that are kept now.
  std::int32_t length() const { return static_cast<std::int32_t>(sequence_.tokens().size()); }
  const Conversation& conversation() const { return conversation_; }
  void reset();

 private:
  Engine& engine_;
  Conversation conversation_;
  GenerateOptions request_;
  Sequence sequence_;
  std::string kept_;   ///< the text whose tokens the sequence holds
  bool exact_ = true;  ///< kept_ is that text, to the byte
  std::int32_t computed_again_ = 0;
};

}  // namespace coppice::cli

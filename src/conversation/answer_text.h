// A model's answer as a conversation holds it.
#pragma once

#include <span>
#include <string>

#include "base/token_id.h"
#include "chat/value.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice::conversation {

/// Spells an answer's tokens, which the token `before` precedes, so that encoding the text gives
/// them again where a tokenizer would choose them. Added tokens are spelt out, shown or not, and
/// are the text's own; all else is foreign, also where it only looks like an added token. `shown`
/// is the answer as it was shown; what it has beyond its tokens, because a stop text cut one in
/// two, is at the end.
chat::Text answer_text(const Tokenizer& tokenizer, TokenId before, std::span<const TokenId> tokens,
                       const std::string& shown);

/// The message of an answer. Where its text looks like added tokens that it does not hold, the
/// message says which of them are real, for owned_answer().
chat::Value answer_message(const Tokenizer& tokenizer, TokenId before, const chat::Text& text);

/// A message of an assistant as a file gives it, all foreign, with the added tokens that the model
/// wrote as its text's own: all that are spelt, unless the message says which of them are real.
/// Throws Error(usage), which begins with `where`, if it says that wrongly.
chat::Value owned_answer(const chat::Value& message, const std::string& where);

}  // namespace coppice::conversation

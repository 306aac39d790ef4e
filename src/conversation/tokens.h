// Texts of a conversation in an engine's tokens.
#pragma once

#include <span>
#include <vector>

#include "chat/text.h"
#include "coppice.h"

namespace coppice::conversation {

/// Tokens of a text that is appended to the tokens `before`. What a template wrote may be special
/// tokens, what people wrote never is. Raw text at the start gets what the tokenizer puts around
/// one, unless `add_bos` is false; a template says itself what it wants. Throws Error(usage) for an
/// empty text, and for more than the context holds.
std::vector<TokenId> tokens_of(const Engine& engine, const chat::Text& text, bool raw, bool add_bos,
                               std::span<const TokenId> before = {});

}  // namespace coppice::conversation

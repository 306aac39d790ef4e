#include "conversation/tokens.h"

#include <utility>

#include "base/error.h"
#include "engine/engine_impl.h"

namespace coppice::conversation {

std::vector<TokenId> tokens_of(const Engine& engine, const chat::Text& text, bool raw, bool add_bos,
                               std::span<const TokenId> before) {
  if (text.empty()) {
    throw_usage(raw ? "the conversation is empty; say something"
                    : "the chat template makes no text of these messages; say something, or "
                      "correct the template");
  }
  const Engine::Impl& impl = inside(engine);
  impl.check_bytes(text.size(), static_cast<std::int32_t>(before.size()));
  const Tokenizer& tokenizer = impl.require_tokenizer();
  std::vector<TextPart> parts;
  const std::vector<chat::Segment> segments = text.segments();
  for (const chat::Segment& segment : segments) parts.push_back({segment.text, segment.foreign});
  std::vector<TokenId> tokens =
      tokenizer.encode(parts, before.empty() ? Tokenizer::at_start : before.back());
  if (!raw || !add_bos || !before.empty()) return tokens;
  return tokenizer.framed(std::move(tokens));
}

}  // namespace coppice::conversation

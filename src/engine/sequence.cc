#include <atomic>
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/decode.h"
#include "engine/sequence_impl.h"

namespace coppice {

Sequence::Sequence(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

std::span<const TokenId> Sequence::tokens() const { return impl_->state.tokens; }

Generation Sequence::generate(std::string_view prompt, const GenerateOptions& options,
                              const PieceCallback& callback) {
  const bool first = impl_->state.tokens.empty();
  impl_->engine.check_bytes(prompt, impl_->state.length());
  const std::vector<TokenId> tokens = impl_->engine.encode(prompt, options.add_bos && first);
  return generate(tokens, options, callback);
}

Generation Sequence::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const PieceCallback& callback) {
  const std::shared_ptr<Impl> self = impl_;  // the callback may destroy this sequence
  struct Turn {
    std::atomic<bool>& taken;
    ~Turn() { taken = false; }
  };
  if (self->generating.exchange(true)) {
    throw_usage("sequence: its generate() is under way; wait for its end or use another sequence");
  }
  const Turn turn{self->generating};
  self->engine.check(options);
  CutBack kept{self->state, self->state.length()};
  try {
    self->engine.append_prompt(self->state, prompt);
    const std::int32_t prompt_tokens = self->state.length();
    Generation result = decode(self->engine, self->state, options, callback);
    result.statistics.prompt_tokens = prompt_tokens;
    kept.length = self->state.length();
    return result;
  } catch (const std::bad_alloc&) {
    throw_failure("generate: the host's memory ran out; free memory, or use smaller trees");
  }
}

}  // namespace coppice

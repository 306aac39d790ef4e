#include <utility>

#include "base/error.h"
#include "engine/open_sequence.h"
#include "engine/sequence_impl.h"

namespace coppice {

Sequence::Sequence(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

std::span<const TokenId> Sequence::tokens() const { return impl_->state.tokens; }

Generation Sequence::generate(std::string_view prompt, const GenerateOptions& options,
                              const PieceCallback& callback) {
  return generate(in_words("generate", [&] { return tokens_of(*impl_, prompt, options); }), options,
                  callback);
}

Generation Sequence::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const PieceCallback& callback) {
  return write_sequence(impl_, prompt, options, callback);
}

Sequence Sequence::fork() const {
  const SequenceClaim claim(*impl_);
  return in_words("fork", [&] {
    const auto fork = std::make_shared<Impl>(impl_->engine, impl_->state.base.cache() != nullptr);
    fork->state.take_text(impl_->state);
    return Sequence(fork);
  });
}

void Sequence::rewind(std::int32_t length) {
  const std::shared_ptr<Impl> impl = impl_;
  const SequenceClaim claim(*impl);
  SequenceState& state = impl->state;
  if (length < 0 || length > state.length()) {
    throw_usage(cat("rewind ", length, ": use 0 to ", state.length(),
                    ", the tokens that the sequence has"));
  }
  if (length == state.length()) return;
  state.cut(length);
  ++state.epoch;
}

}  // namespace coppice

#include <utility>

#include "engine/open_text.h"
#include "engine/scheduler.h"
#include "engine/sequence_impl.h"

namespace coppice {

Sequence::Sequence(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;

std::span<const TokenId> Sequence::tokens() const { return impl_->state.tokens; }

Generation Sequence::generate(std::string_view prompt, const GenerateOptions& options,
                              const PieceCallback& callback) {
  return generate(tokens_of(*impl_, prompt, options), options, callback);
}

Generation Sequence::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const PieceCallback& callback) {
  const std::shared_ptr<Impl> self = impl_;
  try {
    OpenText text(self, prompt, options, callback);
    write_to_end(*self->engine.scheduler, text.run());
    return text.finish();
  } catch (...) {
    std::rethrow_exception(in_words(std::current_exception()));
  }
}

}  // namespace coppice

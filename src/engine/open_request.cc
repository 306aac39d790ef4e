#include "engine/open_request.h"

#include <utility>

#include "base/error.h"
#include "engine/scheduler.h"
#include "engine/sequence_impl.h"

namespace coppice {
namespace {

constexpr std::int32_t most_samples = 1 << 20;
// Sequences that a caller opens besides those that may run; the scheduler admits those first that
// share most.
constexpr std::int32_t waiting_sequences = 64;

}  // namespace

std::size_t most_open(const Engine::Impl& engine) {
  return static_cast<std::size_t>(engine.options.max_sequences +
                                  (engine.options.prefix_cache ? waiting_sequences : 0));
}

void check_samples(const Request& request) {
  if (request.n < 1 || request.n > most_samples) {
    throw_usage(cat("n ", request.n, ": use 1 to ", most_samples, " samples"));
  }
}

void check_request(const Engine::Impl& engine, const Request& request) {
  if (request.sequence != nullptr) {
    if (request.n > 1) {
      throw_usage(cat("n ", request.n, ": a sequence goes on in one way; use 1"));
    }
    const auto sequence = SequenceAccess::impl(*request.sequence);
    if (sequence == nullptr) {
      throw_usage("sequence: it was moved from; give the one that it was moved to");
    }
    if (&sequence->engine != &engine) {
      throw_usage("sequence: it is another engine's; use one of this engine's new_sequence()");
    }
  }
  if (!request.prompt.empty() && !request.tokens.empty()) {
    throw_usage("prompt: both a text and token ids are given; use one of them");
  }
}

Outcome outcome_before(const Request& request) {
  Generation none;
  none.finish_reason = FinishReason::failed;
  return {std::vector<Generation>(static_cast<std::size_t>(request.n), none), nullptr};
}

std::shared_ptr<Sequence::Impl> sequence_for(Engine::Impl& engine, const Request& request) {
  return request.sequence != nullptr ? SequenceAccess::impl(*request.sequence)
                                     : std::make_shared<Sequence::Impl>(engine);
}

std::unique_ptr<OpenSequence> open_sample(std::shared_ptr<Sequence::Impl> sequence,
                                          const Request& request, std::int32_t sample,
                                          const std::stop_token& stop) {
  GenerateOptions options = request.options;
  options.stream += static_cast<std::uint64_t>(sample);
  PieceCallback callback;
  if (request.callback) {
    callback = [&request, sample](const Piece& piece) { return request.callback(sample, piece); };
  }
  std::vector<TokenId> encoded;
  if (request.tokens.empty()) encoded = tokens_of(*sequence, request.prompt, options);
  return std::make_unique<OpenSequence>(std::move(sequence),
                                        request.tokens.empty() ? encoded : request.tokens, options,
                                        std::move(callback), stop);
}

bool begin_run(Call& call, OpenSequence& open) {
  if (open.run().ended()) return false;
  call.add(open.run());
  return true;
}

void note_error(Outcome& outcome) {
  if (!outcome.error) outcome.error = in_words(std::current_exception());
}

}  // namespace coppice

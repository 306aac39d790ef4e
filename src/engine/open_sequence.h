// A generate() of a sequence while it is under way.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "engine/running_sequence.h"
#include "engine/scheduler.h"
#include "engine/sequence_impl.h"
#include "engine/settled_request.h"

namespace coppice {

/// The one use of a sequence at a time. Throws Error(usage) if another is under way.
class SequenceClaim {
 public:
  explicit SequenceClaim(Sequence::Impl& sequence);
  ~SequenceClaim() { taken_ = false; }
  SequenceClaim(const SequenceClaim&) = delete;
  SequenceClaim& operator=(const SequenceClaim&) = delete;

 private:
  std::atomic<bool>& taken_;
};

/// Until it is finished, its end leaves the sequence as it was before.
class OpenSequence {
 public:
  /// Appends the prompt. Throws as Sequence::generate() does. `stop` ends what comes before the
  /// first step.
  OpenSequence(std::shared_ptr<Sequence::Impl> sequence, std::span<const TokenId> prompt,
               const GenerateOptions& options, PieceCallback callback,
               const std::stop_token& stop = {});

  /// For a Call, unless it has ended at once.
  RunningSequence& run() { return run_; }
  /// Ends the run where it stands, once it is in no call. One that has ended by itself delivers its
  /// last piece; no other is heard again.
  void cancel();
  /// Once the run has ended: the sequence keeps its tokens. Throws what it failed by.
  Generation finish();

 private:
  SequenceState& with_prompt(std::span<const TokenId> prompt, const GenerateOptions& options);

  const std::shared_ptr<Sequence::Impl> sequence_;  ///< a callback may destroy the caller's
  const SequenceClaim claim_;
  CutBack<SequenceState> kept_;
  const PieceCallback callback_;
  SequenceState& state_;
  const std::int32_t prompt_tokens_;
  const SettledRequest request_;
  const double start_;
  RunningSequence run_;
};

/// Opens a sequence, writes it and finishes it. Throws as Sequence::generate() does.
Generation write_sequence(std::shared_ptr<Sequence::Impl> sequence, std::span<const TokenId> prompt,
                          const GenerateOptions& options, const PieceCallback& callback);

/// Token ids of a prompt that goes on with a sequence.
std::vector<TokenId> tokens_of(const Sequence::Impl& sequence, std::string_view prompt,
                               const GenerateOptions& options);
/// The same failure, but of memory that ran out: in words, of the call `what`.
std::exception_ptr in_words(std::exception_ptr failure, const char* what = "generate");
/// Does it; memory that runs out leaves the library as an Error.
template <typename Body>
auto in_words(const char* what, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    std::rethrow_exception(in_words(std::current_exception(), what));
  }
}

}  // namespace coppice

#include "engine/open_sequence.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/stopwatch.h"

namespace coppice {

namespace {

constexpr const char* ran_out = "the host's memory ran out; free memory, or use smaller trees";
// Made while there is memory for it; copies share its text.
const HostMemoryError without_call(ran_out);

}  // namespace

SequenceClaim::SequenceClaim(Sequence::Impl& sequence) : taken_(sequence.generating) {
  if (taken_.exchange(true)) {
    throw_usage("sequence: its generate() is under way; wait for its end or use another sequence");
  }
}

OpenSequence::OpenSequence(std::shared_ptr<Sequence::Impl> sequence,
                           std::span<const TokenId> prompt, const GenerateOptions& options,
                           PieceCallback callback, const std::stop_token& stop)
    : sequence_(std::move(sequence)),
      claim_(*sequence_),
      kept_{sequence_->state, sequence_->state.length()},
      callback_(std::move(callback)),
      state_(with_prompt(prompt, options)),
      prompt_tokens_(state_.length()),
      request_(sequence_->engine, options, stop),
      start_(now_seconds()),
      run_(sequence_->engine, state_, request_, callback_, &sequence_->index) {
  run_.gives_kv_back = true;
}

SequenceState& OpenSequence::with_prompt(std::span<const TokenId> prompt,
                                         const GenerateOptions& options) {
  sequence_->engine.check(options);
  sequence_->engine.append_prompt(sequence_->state, prompt);
  return sequence_->state;
}

void OpenSequence::cancel() {
  run_.note_failure([&] {
    if (run_.ended()) {
      run_.call_back();
    } else {
      run_.end_between_steps(FinishReason::cancelled);
    }
  });
}

Generation OpenSequence::finish() {
  if (run_.failure) std::rethrow_exception(in_words(run_.failure));
  Generation result = run_.finish(request_.planning_seconds + now_seconds() - start_);
  Engine::Impl& engine = sequence_->engine;
  result.statistics.prompt_tokens = prompt_tokens_;
  engine.prompt_tokens += prompt_tokens_;
  engine.cached_tokens += result.statistics.cached_tokens;
  engine.cached_draft_tokens += result.statistics.cached_draft_tokens;
  engine.new_tokens += static_cast<std::int64_t>(result.tokens.size());
  kept_.length = state_.length();
  return result;
}

Generation write_sequence(std::shared_ptr<Sequence::Impl> sequence, std::span<const TokenId> prompt,
                          const GenerateOptions& options, const PieceCallback& callback) {
  Scheduler& scheduler = *sequence->engine.scheduler;
  return in_words("generate", [&] {
    OpenSequence open(std::move(sequence), prompt, options, callback);
    write_to_end(scheduler, open.run());
    return open.finish();
  });
}

std::vector<TokenId> tokens_of(const Sequence::Impl& sequence, std::string_view prompt,
                               const GenerateOptions& options) {
  if (prompt.empty() && !sequence.state.tokens.empty()) return {};
  sequence.engine.check_bytes(prompt.size(), sequence.state.length());
  return sequence.engine.encode_after(sequence.state.tokens, prompt, options.add_bos);
}

std::exception_ptr in_words(std::exception_ptr failure, const char* what) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    try {
      throw HostMemoryError(cat(what, ": ", ran_out));
    } catch (const HostMemoryError&) {
      return std::current_exception();
    } catch (...) {
      return std::make_exception_ptr(without_call);
    }
  } catch (...) {
    return failure;
  }
}

}  // namespace coppice

// A text in progress: what it is so far, what of it was handed on, and what it took.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/settled_request.h"
#include "engine/speculator.h"
#include "engine/text_stream.h"

namespace coppice {

class TextRun {
 public:
  /// `state` holds the text so far, the prompt appended. All outlive this.
  TextRun(Engine::Impl& engine, SequenceState& state, const SettledRequest& request,
          const PieceCallback& callback);

  Engine::Impl& engine;
  const SettledRequest& request;
  SequenceState& state;
  Speculator speculator;
  const std::unique_ptr<TreeJudge> judge;

  // Of the step at hand, in memory that all steps use.
  TokenTree tree;
  Verdict verdict;
  std::vector<TokenLogprob> logprobs;  ///< of the tokens that it brings, where they are asked for

  /// What steps took and brought. Wall-clock seconds.
  struct Account {
    Seconds seconds;  ///< prefill, draft, verify and sampling
    std::int64_t steps = 0, draft_passes = 0;
    std::int64_t judged = 0;  ///< accepted and bonus tokens
    std::int64_t drafted = 0;
    bool first_with_prefill = false;  ///< the first token: no step brought it
    double observer_seconds = 0.0;    ///< not the text's own
  } account;

  bool ended() const { return ended_.has_value(); }
  void end(FinishReason reason) { ended_ = reason; }
  /// Ends the text where it stands; what could have begun a stop text is handed on.
  void end_between_steps(FinishReason reason);
  std::int32_t tokens_left() const;
  /// Hands the step's tokens on, one by one, until one of them ends the text. Tokens that are not
  /// part of the result are taken back from the sequence.
  void hand_on();
  /// The result, after `seconds` in all. Once.
  Generation finish(double seconds);

 private:
  bool take(TokenId token);

  const PieceCallback& callback_;
  std::int32_t prompt_length_;  ///< tokens of the sequence before this generation's
  TextStream stream_;
  Generation result_;
  std::optional<FinishReason> ended_;
  std::size_t handed_on_ = 0;  ///< tokens that the callback has seen
};

}  // namespace coppice

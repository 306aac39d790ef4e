// A sequence in progress: what it is so far, what of it was delivered, and what it took.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "engine/least_length.h"
#include "engine/settled_request.h"
#include "engine/speculator.h"
#include "engine/text_stream.h"

namespace coppice {

class Call;

/// Where the scheduler (scheduler.h) has a sequence.
struct SequencePlace {
  enum class State {
    outside,
    queued,  ///< for others have the memory, or are as many as may run
    ready,   ///< for the next step
    in_step,
    at_call,  ///< which delivers what the last step brought
  } state = State::outside;
  Call* call = nullptr;
  double since = 0.0;            ///< queued, or at its call
  std::int64_t admitted = 0;     ///< in which order sequences left the queue
  bool slow = false;             ///< its callback took longer than steps wait
  bool preempted = false;        ///< its KV was taken, and it was not let in since
  std::int32_t passed_over = 0;  ///< times that a later one was let in first
};

class RunningSequence {
 public:
  /// `state` holds the sequence so far, the prompt appended; `index`: Speculator's. All outlive
  /// this.
  RunningSequence(Engine::Impl& engine, SequenceState& state, const SettledRequest& request,
                  const PieceCallback& callback, TextIndex* index = nullptr);
  /// The tokens that come after it are ruled by nothing.
  ~RunningSequence();
  RunningSequence(const RunningSequence&) = delete;
  RunningSequence& operator=(const RunningSequence&) = delete;

  Engine::Impl& engine;
  const SettledRequest& request;
  SequenceState& state;
  Speculator speculator;

  SequencePlace place;  ///< the scheduler's; nobody else reads or writes it
  /// Its KV goes to the tree, or is freed, when the scheduler is done with it. Else the caller
  /// keeps it.
  bool gives_kv_back = false;

  // Results of the step at hand, in memory that all steps use.
  TokenTree tree;
  Verdict verdict;
  std::vector<TokenLogprob> logprobs;  ///< of the tokens that it brings, where they are asked for

  /// What steps took and brought. Wall-clock seconds.
  struct Account {
    Seconds seconds;  ///< prefill, draft, verify and sampling
    std::int64_t steps = 0, draft_passes = 0;
    std::int64_t drafted = 0, looked_up = 0, looked_up_accepted = 0;
    double batch = 0.0;  ///< sequences of its steps, added up
    double queue_seconds = 0.0;
    std::int32_t preemptions = 0;
    double preparing_seconds = 0.0;  ///< its share
    double observer_seconds = 0.0;   ///< not the sequence's own
  } account;

  /// What ended the sequence instead of a reason; its caller is to throw it.
  std::exception_ptr failure;
  /// Does it, and notes what it throws.
  template <typename Body>
  void note_failure(const Body& body) {
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }

  bool ended() const { return ended_.has_value(); }
  /// Ends the sequence where it stands; text held back as a possible stop text is released.
  void end_between_steps(FinishReason reason);
  std::int32_t tokens_left() const;
  /// Counts it among the sequences of a step.
  void join(DraftStartPolicy::Batch& batch, DraftGaps& gaps) const;
  /// What the draft is to see before the step of that batch, after the target's prefill; nothing:
  /// it has seen the sequence, or will later.
  std::optional<DraftPrompt> draft_prompt(DraftStartPolicy::Batch& batch, const DraftGaps& gaps);
  /// A pass over it, of `pass_rows` in all, took this long by its share; 0 rows: it says nothing of
  /// later ones.
  void take_pass(const DraftPrompt& prompt, double seconds, double pass_rows);
  /// Whether a tree may grow.
  bool can_draft() const {
    return draft_ready_ && speculator.begun() && speculator.can_follow(state);
  }
  /// Whether a tree may grow, with the draft or without.
  bool can_speculate() const { return can_draft() || speculator.proposes(); }
  /// Whether a step can be taken meanwhile.
  bool goes_on_without_draft() const { return draft_ready_ || speculator.was_put_off(); }
  /// Counts the judged step's tokens up to an end token, which is among them: what lies behind it
  /// is never returned. A stop text ends a sequence later, in take_tokens().
  std::int32_t tokens_to_end() const;
  /// Takes over the tokens of a step, or of a pass that is none (StepView::is_step()), one by one,
  /// until one of them ends the sequence. Tokens that are not part of the result are taken back
  /// from the sequence.
  void take_tokens(bool of_step);
  /// Whether there is something that the callback has not seen.
  bool has_piece() const;
  /// Delivers it.
  void call_back();
  /// Goes on with what the tree has of its tokens by now.
  void find_shared();
  /// The sequence is let in for the first time, with what KV it has.
  void note_cached() { result_.statistics.cached_tokens = state.target_kv(); }
  /// Gives all KV up, which is computed again before the next step.
  void release_kv();
  /// Goes on with what the tree has of what it wrote itself: a prefix that somebody keeps, say, may
  /// hold the same tokens. Frees its own KV of them, and its draft begins anew. False: it has none.
  bool fold_copies();
  /// The result, after `seconds` in all. Once.
  Generation finish(double seconds);

 private:
  void end(FinishReason reason) { ended_ = reason; }
  void begin_draft(const DraftPrompt& prompt);
  std::optional<FinishReason> end_by(TokenId token) const;
  void begin_rules();
  void drop_reached_length();
  bool take(TokenId token, bool of_step);
  void release_text();

  std::shared_ptr<const TokenRules> rules_;  ///< of its text alone; null: none
  const PieceCallback& callback_;
  std::int32_t prompt_length_;  ///< tokens of the sequence before this generation's
  std::optional<LeastLength> least_length_;
  TextStream stream_;
  Generation result_;
  std::optional<FinishReason> ended_;
  bool step_brought_end_ = false;  ///< the end token came from a step
  bool stopped_by_text_ = false;
  /// Places of the result's tokens that came with a prefill, so that no step brought them.
  std::vector<std::size_t> with_prefill_;
  std::size_t delivered_ = 0;  ///< tokens that the callback has seen
  std::string piece_;          ///< text that it has not seen
  bool draft_ready_ = false;   ///< prefilled, or it will not be
  /// Rows that the draft computed of its prompt; below 0: it was counted what was cached.
  std::int32_t draft_rows_ = 0;
};

}  // namespace coppice

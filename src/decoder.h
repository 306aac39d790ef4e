// One generation: prefill, which brings the first token with it, then step after step, until
// something ends it.
#pragma once

#include <memory>

#include "drafting/belief_temperature.h"
#include "drafting/calibration.h"
#include "engine_impl.h"
#include "models/sequence_state.h"
#include "sizing/auto_size.h"
#include "text_stream.h"

namespace coppice {

class Decoder {
 public:
  /// `state` holds the text so far, the prompt appended. All outlive the decoder.
  Decoder(Engine::Impl& engine, SequenceState& state, const GenerateOptions& options,
          const PieceCallback& callback);

  Generation run();
  /// One step's tree, judged; nothing is committed.
  JudgedTree judge_first_tree();

 private:
  void set_up_draft();
  void learn_belief();
  void prefill();
  bool prefill_target();
  void prefill_draft();
  std::int32_t tokens_left() const;
  bool draft_can_follow() const;
  double share_run() const;
  void begin_step();
  void plan_growth();
  DraftRunner::Step grow();
  TargetRunner::Pass judge();
  void note_logprobs();
  void show_step();
  void accept();
  void count_step();
  void emit();
  bool emit_token(TokenId token);
  void note_logprob(std::int32_t node, TokenId token);
  void finish(double seconds);

  void settle_rule(const CostTable* costs);
  void learn_rule();

  Engine::Impl& engine_;
  SequenceState& state_;
  GenerateOptions options_;
  const PieceCallback& callback_;
  std::int32_t prompt_length_;  ///< tokens of the sequence before this generation's
  SamplingParams target_params_;
  DraftRunner::Setting draft_setting_;
  bool believes_ = false;                    ///< whether children come with beliefs
  RuleChoice* rules_ = nullptr;              ///< of the engine; null if this text is none of them
  std::optional<BeliefTemperature> belief_;  ///< learned
  std::unique_ptr<AutoSize> auto_size_;
  std::unique_ptr<AcceptanceCalibration> calibration_;
  std::unique_ptr<DraftPolicy> policy_;
  std::unique_ptr<TreeJudge> judge_;

  // The step at hand.
  GrowthLimits limits_;
  bool speculate_ = false;
  StepKey key_;
  TokenTree tree_;
  Verdict verdict_;
  std::vector<TokenLogprob> step_logprobs_;
  StepSeconds step_seconds_;
  double began_ = 0.0, began_cpu_ = 0.0;  ///< on the clock, and of this thread's processor time

  TextStream text_;
  Generation result_;
  std::optional<FinishReason> finished_;
  std::size_t handed_out_ = 0;       ///< tokens that the callback has seen
  bool first_with_prefill_ = false;  ///< the first token: no step brought it
  std::int64_t judged_ = 0;          ///< accepted and bonus tokens of all steps
  std::int64_t drafted_ = 0;
  double planning_seconds_ = 0.0;  ///< of the tree, before the text
  std::string planned_for_;        ///< as in Statistics
  double sampling_seconds_ = 0.0;
  double observer_seconds_ = 0.0;  ///< not the generation's own
};

}  // namespace coppice

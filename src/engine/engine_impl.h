// What an engine owns: for the engine, and for its tests and benches. Commands and studies go by
// engine/access.h.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "constraints/vocabulary.h"
#include "coppice.h"
#include "drafting/answer_index.h"
#include "drafting/belief_temperature.h"
#include "drafting/draft_runner.h"
#include "drafting/lookup.h"
#include "drafting/policy.h"
#include "engine/access.h"
#include "engine/step_counts.h"
#include "engine/step_view.h"
#include "engine/tree_plan.h"
#include "kernels/device_sampler.h"
#include "models/kv/prefix_cache.h"
#include "models/loaded_model.h"
#include "models/model.h"
#include "models/sequence_state.h"
#include "models/tokenizer/tokenizer.h"
#include "sizing/batch_sizer.h"
#include "sizing/cost_correction.h"
#include "sizing/cost_measurement.h"
#include "sizing/cost_table.h"
#include "sizing/draft_start_policy.h"
#include "sizing/rule_choice.h"
#include "verify/target_runner.h"
#include "verify/tree_judge.h"
#include "verify/verifier.h"

namespace coppice {

class Driver;
class Scheduler;

struct __attribute__((visibility("hidden"))) Engine::Impl {
  Impl();
  ~Impl();

  EngineOptions options;
  std::unique_ptr<Device> device;  ///< of both models
  /// That the models are split over, if they are.
  std::vector<std::unique_ptr<Device>> further_devices;
  LoadedModel target, draft;           ///< draft.model is null for plain decoding only
  std::unique_ptr<PrefixCache> cache;  ///< what sequences share of both models' KV
  std::unique_ptr<Tokenizer> tokenizer;
  std::string no_tokenizer;  ///< why there is none
  mutable std::mutex vocabulary_mutex;
  mutable std::shared_ptr<const constraints::Vocabulary> vocabulary_of_tokenizer;
  std::unique_ptr<DeviceSampler> sampler;  ///< null where the host samples
  std::unique_ptr<TargetRunner> target_runner;
  std::unique_ptr<NoiseCache> noise;
  std::unique_ptr<DraftRunner> draft_runner;
  std::optional<CostTable> costs;
  CostCorrection correction;              ///< of these costs, by the clock, over all sequences
  std::optional<BatchSizer> batch_sizer;  ///< by these, once sequences have shared a step
  std::int64_t steps = 0;                 ///< that were planned
  /// Measured speed of each acceptance rule, by policy and tenths of temperature.
  std::map<std::pair<std::size_t, std::int64_t>, RuleChoice> rules;
  /// And of how far the draft is to be believed, by tenths of temperature.
  std::map<std::int64_t, PairInverseTemperature> inverse_temperatures;
  /// And of whether a draft pays among others, by policy, drawing, tenths of temperature and
  /// whether there is one.
  std::map<std::tuple<std::size_t, AcceptanceRule, std::int64_t, bool>, DraftStartPolicy>
      draft_starts;
  /// How often what was looked up was right, by tenths of temperature.
  std::map<std::int64_t, LookupCalibration> lookups;
  AnswerIndex answers;  ///< of sequences with Lookup::engine
  SequoiaTrees sequoia_trees;
  /// In a cost table file: sizes must then repeat themselves. As it is loaded, it stays.
  bool costs_are_saved = false;
  std::atomic<double> load_seconds = 0.0;
  /// Set to judge by another rule than the options say, on the host: planted faults.
  std::function<std::unique_ptr<Verifier>()> other_verifier;
  StepObserver observer;  ///< of every generation; empty: none
  /// Held for one step at a time: models, runners and pools are shared by all sequences.
  std::mutex mutex;
  std::unique_ptr<Scheduler> scheduler;
  /// Sums over sequences that have ended, for CacheStatistics and EngineStatistics.
  std::atomic<std::int64_t> prompt_tokens = 0, cached_tokens = 0, cached_draft_tokens = 0;
  std::atomic<std::int64_t> new_tokens = 0;
  StepCounts step_counts;
  std::atomic<bool> told_of_costs = false;  ///< EngineOptions::progress was

  /// The cost table, read or measured on first use (the time goes to load_seconds); nullptr
  /// while there are too few free KV slots to measure in, and if measuring is asked to stop: the
  /// next call then begins anew.
  const CostTable* find_costs(const std::stop_token& stop = {});
  MeasuredRows measured_rows() const;
  /// Once there are costs.
  BatchSizer& batch_sizes();
  const Tokenizer& require_tokenizer() const;
  /// Judges trees where this engine samples, or by the rule that is set instead.
  std::unique_ptr<TreeJudge> make_judge();

  /// The target's tokens as constraints see them, made when first asked for. Throws Error(usage)
  /// without a tokenizer.
  std::shared_ptr<const constraints::Vocabulary> vocabulary() const;

  /// validate(), and what depends on this engine: the largest tree, stop texts without tokenizer.
  void check(const GenerateOptions& options) const;
  /// Throws Error(usage), which begins with `option`, for a token outside the target's vocabulary.
  void check_token(const char* option, TokenId token) const;
  /// Token ids of a text prompt. Throws Error(usage) for an empty one or invalid UTF-8.
  std::vector<TokenId> encode(std::string_view prompt, bool add_bos) const;
  /// The same of one that is appended to these tokens: with none of them, as above.
  std::vector<TokenId> encode_after(std::span<const TokenId> tokens, std::string_view prompt,
                                    bool add_bos) const;
  /// Throws Error(usage), before anything is tokenized, for a prompt whose bytes say that it cannot
  /// fit the context behind `before` tokens; `what` begins the message.
  void check_bytes(std::uint64_t bytes, std::int32_t before, const char* what = "prompt") const;
  /// A sequence without tokens, which shares its KV with nobody and frees it when it dies.
  SequenceState new_state() const {
    return {target.model->config().vocab_size, *target.pool, draft.pool.get()};
  }
  /// One that shares its KV.
  SequenceState new_shared_state() const { return {target.model->config().vocab_size, *cache}; }
  /// Appends a prompt to a sequence. Throws Error(usage) for no tokens at all, a token outside the
  /// vocabulary, or a sequence that fills the context; `state` is unchanged then.
  void append_prompt(SequenceState& state, std::span<const TokenId> prompt) const;

  /// Writes submissions; its thread begins with the first of them.
  Driver& driver();
  /// Samples that were submitted and are not open.
  std::int32_t unopened() const;

 private:
  mutable std::mutex driver_mutex_;
  std::unique_ptr<Driver> driver_;  ///< ends before all that it uses
};

inline const Engine::Impl& inside(const Engine& engine) {
  return EngineAccess::impl(const_cast<Engine&>(engine));
}

/// What this engine owns.
inline Engine::Impl& inside(Engine& engine) { return EngineAccess::impl(engine); }

}  // namespace coppice

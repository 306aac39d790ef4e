// What this project's own commands and studies do with an engine beside what coppice.h offers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string_view>

#include "base/stopwatch.h"
#include "coppice.h"
#include "drafting/draft_runner.h"
#include "engine/step_view.h"
#include "kernels/device_sampler.h"
#include "models/loaded_model.h"
#include "models/sequence_state.h"
#include "models/tokenizer/tokenizer.h"
#include "sizing/cost_table.h"
#include "verify/target_runner.h"
#include "verify/tree_judge.h"
#include "verify/verifier.h"

namespace coppice {

/// The wall clock, but that it stands still while the engine loads and measures costs.
inline double working_seconds(const Engine& engine) {
  return now_seconds() - engine.load_seconds();
}

/// Internal access to an Engine, which must outlive it.
class EngineAccess {
 public:
  explicit EngineAccess(Engine& engine) : impl_(impl(engine)) {}

  const EngineOptions& options() const;
  const Device& device() const;
  const LoadedModel& target() const;
  const LoadedModel& draft() const;    ///< its model and pool are null for plain decoding only
  const Tokenizer& tokenizer() const;  ///< throws Error(failure) if there is none

  /// As generate() checks a request, and the bytes of a prompt, or `what`, behind `before` tokens.
  void check(const GenerateOptions& options) const;
  void check_bytes(std::uint64_t bytes, std::int32_t before, const char* what = "prompt") const;

  /// The engine's costs if it has or can read some, else measured with this budget for each run;
  /// nullptr if there are too few free KV slots to measure in, or if `stop` ended the measurement.
  const CostTable* find_costs(double budget_seconds, const std::stop_token& stop = {});

  /// A sequence that frees its KV when it dies. Throws Error(usage) as Sequence::generate() does.
  SequenceState new_state(std::span<const TokenId> prompt) const;
  /// Goes on with a sequence; `options` are checked.
  Generation generate(SequenceState& sequence, const GenerateOptions& options);

  /// The engine's runners, for plain passes and drafted steps. It does nothing else meanwhile.
  struct Turn {
    std::unique_lock<std::mutex> lock;
    DeviceScope scope;
    TargetRunner& target;
    DraftRunner* draft;  ///< null without a draft
  };
  Turn turn();
  /// Has later passes of the target read what sequences share once for each of them, for
  /// comparison.
  void read_by_text(bool by_text);
  /// Has later passes of the target divide their attention so, for comparison.
  void divide(AttentionDivision division);
  /// Judges as steps do, during a turn().
  std::unique_ptr<TreeJudge> make_judge();

  /// Who watches every step from now on; returns who did.
  StepObserver observe(StepObserver observer);

  // Planted faults.
  using VerifierMaker = std::function<std::unique_ptr<Verifier>()>;
  bool judges_on_device() const;
  /// Judges by another rule than the options say, on the host; an empty maker: as they say.
  /// Returns the former one.
  VerifierMaker judge_by(VerifierMaker maker);
  void change_passes(ChangePass change);
  void plant(DrawingFault fault);  ///< for engines with a draft
  void plant(DeviceFault fault);   ///< for devices that judge

  /// All that it owns (engine_impl.h): for the engine's own tests and benches.
  static Engine::Impl& impl(Engine& engine) { return *engine.impl_; }

 private:
  Engine::Impl& impl_;
};

}  // namespace coppice

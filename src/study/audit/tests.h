// The target's own law of the next token, by plain passes, and the law of short texts against it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coppice.h"
#include "engine/access.h"
#include "models/sequence_state.h"
#include "study/audit/audit.h"
#include "study/audit/goodness_of_fit.h"
#include "study/observed.h"

namespace coppice::study {

/// One plain pass over a text.
struct PlainPass {
  /// [vocab] log-probabilities at temperature 1 after the repetition penalty, no filter.
  std::vector<double> logprob;
  std::vector<float> probability;  ///< [vocab] as sampled from, filters included
  /// What rounding may make of a difference of two logprobs (logit_rounding).
  double rounding = 0.0;
  /// Returns the least of the logprobs of tokens that the filters keep.
  double least_kept() const;
};

/// Takes over the engine's observer for the call. Throws Error(failure) where the text has no room.
PlainPass plain_pass(Engine& engine, std::span<const TokenId> text,
                     const GenerateOptions& sampling);

/// Laws under the temperature, filters and penalty of one request, each computed once.
class TargetLaws {
 public:
  TargetLaws(Engine& engine, const GenerateOptions& sampling);
  /// Valid as long as this object.
  const TokenLaw& after(std::span<const TokenId> text);
  /// nullptr where it was never asked for.
  const TokenLaw* find(std::span<const TokenId> text) const;
  /// Largest PlainPass::rounding so far.
  double rounding() const { return rounding_; }

 private:
  Engine& engine_;
  GenerateOptions sampling_;
  std::map<std::vector<TokenId>, TokenLaw> laws_;
  double rounding_ = 0.0;
};

/// Samples of one setting, added to batch by batch and tested at any time. A prompt is continued
/// again and again and its KV kept in between, so that a text costs its steps alone, and has no
/// token that did not come from one: speculation begins with the first.
class LawSampling {
 public:
  /// `engine` and `laws`, which are under the setting's temperature and filters, outlive this.
  /// Throws Error(usage) for a prompt that the engine does not take.
  /// Text i has stream `first_stream` + i.
  LawSampling(Engine& engine, TargetLaws& laws, const std::vector<std::vector<TokenId>>& prompts,
              const GenerateOptions& options, std::uint64_t first_stream = 0);

  /// `count` more texts, the prompts in turn. `tick` is called after every text. Throws
  /// Error(failure) where context or KV memory ends one early.
  void draw(std::int64_t count, const std::function<void()>& tick);
  /// A test of each of the first tokens. Contexts are the prompts, and behind them what many
  /// samples begin with. Events of all samples so far; smallest_bias at `significance`.
  std::vector<EventFinding> test(double significance);
  /// Compares laws at the nodes that a few texts go through with plain passes'.
  void check_passes(LawFinding& finding);

  /// Frees the KV of the prompts until more is drawn.
  void rest();

  std::int64_t samples() const { return samples_; }
  const Trial& drawn() const { return sums_; }

 private:
  Generation draw_text(std::size_t prompt, std::uint64_t stream);

  Engine& engine_;
  EngineAccess access_;
  TargetLaws& laws_;
  const std::vector<std::vector<TokenId>>& prompts_;
  GenerateOptions options_;
  std::vector<SequenceState> states_;        ///< by prompt
  std::vector<std::vector<TokenId>> drawn_;  ///< by prompt, sampled_tokens a text
  std::uint64_t first_stream_;
  std::int64_t samples_ = 0;
  Trial sums_;
};

// Texts that speculation must leave as they are, token for token.

/// Compares texts at temperature 0, or under coupled acceptance, with plain decoding's. After a
/// divergence speculation starts again behind the plain token, so that every one is counted.
/// Where context or KV memory ends a text, what there is of it is compared. `tick` is called after
/// every prompt.
TextFinding compare_texts(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                          const GenerateOptions& options, std::int32_t tokens,
                          const std::function<void()>& tick);

// Faults that an audit plants to see that its tests would see them.

struct PlantedFault {
  std::string name;
  std::function<void(EngineAccess&)> plant;
};

/// All that the engine's device supports and that break trees under this acceptance. Coupled
/// acceptance is broken by judging its trees by rejection, on devices that judge on the host.
std::vector<PlantedFault> faults_for(const EngineAccess& engine, Acceptance acceptance);

/// Thrown out of whatever test is under way once the request is to stop.
struct Stopped {};

/// "Sampling", and how many texts of it: gives what is to be called after every text.
using MakeTicker = std::function<std::function<void()>(const std::string& what, std::int64_t all)>;

/// Plants faults one by one, and draws texts until the tests see them.
class SelfCheck {
 public:
  /// `significance` is that of a single test of the audit. All arguments outlive this.
  SelfCheck(Engine& engine, const AuditRequest& request, double significance);
  ~SelfCheck();
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

  /// Takes all faults that there are for the acceptance of `options`.
  void add(const std::string& setting, const GenerateOptions& options, TargetLaws& laws);
  /// Draws on to `samples` texts of every fault that was not seen yet, and tests them.
  void look(std::int64_t samples, const MakeTicker& ticker);

  /// Faults that were neither seen nor found to bias less than the request asks for.
  std::size_t unseen() const;
  /// About what `texts` more of each of these would take, by the last look.
  double seconds_of_look(std::int64_t texts) const;
  /// Texts with which the faults that samples showed, and the bias that the request asks for, are
  /// seen with probability stated_power.
  std::int64_t needed() const;
  std::vector<FaultFinding> findings() const;

 private:
  struct Trial;
  struct State;
  void judge(Trial& trial, bool first);
  void compare(Trial& trial);

  Engine& engine_;
  const AuditRequest& request_;
  double significance_;
  std::unique_ptr<State> state_;
};

/// Takes every fault out again at its end.
class FaultGuard {
 public:
  explicit FaultGuard(Engine& engine);
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

 private:
  EngineAccess engine_;
  EngineAccess::VerifierMaker rule_;  ///< the former one
};

}  // namespace coppice::study

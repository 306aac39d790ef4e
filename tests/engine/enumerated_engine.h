// An engine whose random decisions are enumerated: the exact law of what its calls write.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drafting/host_draft_sampler-inl.h"
#include "engine/pair.h"
#include "reference/enumeration.h"
#include "reference/exact_law.h"
#include "reference/model_reference.h"
#include "reference/naive_logits.h"
#include "verify/rejection-inl.h"

namespace coppice::testing {

/// Calls of an engine, and what they write. The engine has written nothing before, and what follows
/// depends on its random decisions alone.
struct Program {
  std::string name;
  /// Returns all tokens that anybody saw, in an order of the program's own, those of a stop text
  /// and those that were taken back among them.
  std::function<TokenPath(Engine&)> run;
  /// The whole text that the token after these was written behind.
  std::function<std::vector<TokenId>(const TokenPath&)> before;
  SamplingParams sampling{1.0};
  /// Whether a token may follow these; null: all may.
  std::function<bool(const TokenPath&, TokenId)> allows = {};
  std::vector<TokenBias> bias = {};
  /// The new tokens of the text that these end with, which penalties count; null: none.
  std::function<std::vector<TokenId>(const TokenPath&)> fresh = {};
};

/// By which rule an engine is to judge, over decisions by an enumeration.
using EnumeratedRule = std::function<std::unique_ptr<Verifier>(const EnumeratedDecisions&)>;

inline std::unique_ptr<Verifier> enumerated_rejection(const EnumeratedDecisions& decide) {
  return std::make_unique<RejectionVerifier<EnumeratedDecisions>>(decide);
}

/// Only on the CPU, and with costs from a file: nothing else may depend on the clock.
class EnumeratedEngine {
 public:
  /// What growth sees of the number that will judge a child is in which half of (0, 1) it is.
  explicit EnumeratedEngine(const EngineOptions& options)
      : engine_(Engine::load(options)), target_(options.target) {
    Engine::Impl& impl = inside(engine_);
    const auto vocab = impl.target.model->config().vocab_size;
    if (impl.draft.model != nullptr) {
      impl.draft_runner =
          std::make_unique<DraftRunner>(*impl.draft.model, *impl.draft.pool,
                                        std::make_unique<HostDraftSampling<EnumeratedDecisions>>(
                                            vocab, impl.draft.model->config().vocab_size,
                                            *impl.noise, EnumeratedDecisions(enumeration_), 2));
    }
    judge_by(enumerated_rejection);
  }

  Engine& engine() { return engine_; }
  void judge_by(const EnumeratedRule& rule) {
    EngineAccess(engine_).judge_by([&, rule] { return rule(EnumeratedDecisions(enumeration_)); });
  }

  /// How far what the program writes is from the target's law.
  LawError error(const Program& program) {
    std::map<TokenPath, double> written;
    LawError sums;
    double tokens = 0.0;
    const std::int64_t before = enumeration_.paths();
    inside(engine_).observer = [&](const StepView& view) {
      sums.largest_tree = std::max(sums.largest_tree, view.tree.size());
      if (view.is_step()) ++steps_;
    };
    enumeration_.each([&] {
      forget();
      const TokenPath path = program.run(engine_);
      const double probability = enumeration_.probability();
      written[path] += probability;
      sums.total += probability;
      tokens += probability * static_cast<double>(path.size());
      expected_steps_ += probability * static_cast<double>(std::exchange(steps_, 0));
    });
    inside(engine_).observer = {};
    PathRows rows(static_cast<std::size_t>(target_.vocab_size()), [&](const TokenPath& path) {
      const std::vector<TokenId> text = program.before(path);
      std::vector<bool> seen(static_cast<std::size_t>(target_.vocab_size()), false);
      for (const TokenId token : text) seen[static_cast<std::size_t>(token)] = true;
      const auto logits = target_.logits(text).back();
      std::vector<float> allowed(logits.begin(), logits.end());
      for (std::size_t token = 0; program.allows && token < allowed.size(); ++token) {
        if (!program.allows(path, static_cast<TokenId>(token))) {
          allowed[token] = -std::numeric_limits<float>::infinity();
        }
      }
      for (const TokenBias& of : program.bias) {
        allowed[static_cast<std::size_t>(of.token)] += of.bias;
      }
      std::vector<std::int32_t> fresh(allowed.size());
      if (program.fresh) {
        for (const TokenId token : program.fresh(path)) ++fresh[static_cast<std::size_t>(token)];
      }
      const auto row = naive_process(allowed, program.sampling, seen, nullptr, fresh);
      return std::vector<float>(row.begin(), row.end());
    });
    LawError error = compare_exactly(written, rows);
    error.total = sums.total;
    error.largest_tree = sums.largest_tree;
    error.paths = enumeration_.paths() - before;
    error.accepted_length = tokens / std::exchange(expected_steps_, 0.0);
    return error;
  }

 private:
  // As it was when it was loaded: nothing in memory, nothing learned.
  void forget() {
    engine_.drop_cache();
    Engine::Impl& impl = inside(engine_);
    impl.rules.clear();
    impl.inverse_temperatures.clear();
    impl.draft_starts.clear();
    impl.lookups.clear();
    impl.answers = AnswerIndex();
    impl.batch_sizer.reset();
    impl.steps = 0;
  }

  Enumeration enumeration_;
  Engine engine_;
  ModelReference target_;
  std::int64_t steps_ = 0;
  double expected_steps_ = 0.0;
};

}  // namespace coppice::testing

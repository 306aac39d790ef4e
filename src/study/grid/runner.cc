#include "study/grid/runner.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "study/grid/node_counts.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

void note_nodes(const StepView& step, NodeCounts& counts, TracedText* trace) {
  std::vector<float> target_prob = token_probs(step, counted_params(step.target_params));
  counts.add(step.tree, step.verdict.path, target_prob, step.calibration);
  if (trace == nullptr) return;
  // What is counted is what the step was judged by, but for temperature 0.
  if (step.target_params.temperature == 0.0) target_prob = token_probs(step, step.target_params);
  trace->add(step, target_prob);
}

constexpr std::int32_t warm_up_tokens = 8;

/// What is left to do for one prompt in one round.
struct PromptWork {
  const std::string& id;
  std::size_t prompt;  ///< its place
  std::int32_t round;
  std::vector<const Cell*> cells = {};
};

/// The same order on every platform, whatever else is left to do.
void shuffle(std::vector<const Cell*>& cells, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t left = cells.size(); left > 1; --left) {
    std::swap(cells[left - 1], cells[random() % left]);
  }
}

std::vector<PromptWork> left_to_do(const Results& results) {
  const StudyPlan& plan = results.plan();
  std::vector<PromptWork> all;
  for (std::int32_t round = 0; round < plan.rounds; ++round) {
    for (std::size_t p = 0; p < plan.prompts.size(); ++p) {
      PromptWork left{plan.prompts[p].id, p, round};
      for (const Cell& cell : plan.cells) left.cells.push_back(&cell);
      // Before those that are done are left out, so that an interruption changes no order.
      shuffle(left.cells, stream_of(cat(left.id, ' ', round)));
      std::erase_if(left.cells,
                    [&](const Cell* cell) { return results.has(cell->key(), left.id, round); });
      if (!left.cells.empty()) all.push_back(std::move(left));
    }
  }
  return all;
}

class Runner {
 public:
  Runner(const StudyWork& work, Results& results, const StudyHooks& hooks)
      : work_(work),
        results_(results),
        hooks_(hooks),
        left_(left_to_do(results)),
        texts_(texts_left(results)) {}

  bool run(std::vector<Engine>& engines) {
    // One after the other: the first measures the costs that the others read.
    for (Engine& engine : engines) warm_up(engine);
    {
      std::vector<std::jthread> others;
      for (std::size_t e = 1; e < engines.size(); ++e) {
        others.emplace_back([this, &engine = engines[e]] { work_through(engine); });
      }
      work_through(engines.front());
    }
    if (failure_) std::rethrow_exception(failure_);
    return done_ == texts_;
  }

 private:
  bool stopped() const { return failed_ || (hooks_.stop && hooks_.stop()); }

  std::optional<Result> run_text(Engine& engine, GenerateOptions request, const PromptWork& work,
                                 TracedText* trace = nullptr) const {
    request.stream = stream_of(work.id);
    return run_cell(
        engine, request, work_.prompts[work.prompt], [this] { return stopped(); }, trace);
  }

  void warm_up(Engine& engine) const {
    for (const auto& [key, request] : work_.requests) {
      if (stopped() || left_.empty()) return;
      GenerateOptions few = request;
      few.max_new_tokens = std::min(few.max_new_tokens, warm_up_tokens);
      run_text(engine, few, left_.front());
    }
  }

  void work_through(Engine& engine) noexcept {
    try {
      for (std::size_t next = next_++; next < left_.size() && !stopped(); next = next_++) {
        for (const Cell* cell : left_[next].cells) {
          if (!work_on(engine, left_[next], cell->key())) return;
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_ = true;
    }
  }

  /// False: stopped.
  bool work_on(Engine& engine, const PromptWork& work, const std::string& cell) {
    if (stopped()) return false;
    TracedText trace{cell, work.id, work_.run, {}};
    const bool traced = work_.trace != nullptr && work.round == 0;
    std::optional<Result> result =
        run_text(engine, work_.requests.at(cell), work, traced ? &trace : nullptr);
    if (!result) return false;
    result->cell = cell;
    result->prompt = work.id;
    result->round = work.round;
    result->run = work_.run;
    const std::lock_guard lock(mutex_);
    // First: what the results lack is run, and traced, again.
    if (traced) work_.trace->append(trace);
    results_.add(std::move(*result));
    ++done_;
    if (hooks_.progress) {
      hooks_.progress("studying", static_cast<double>(done_) / static_cast<double>(texts_));
    }
    return true;
  }

  const StudyWork& work_;
  Results& results_;
  const StudyHooks& hooks_;
  std::vector<PromptWork> left_;
  std::size_t texts_, done_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;  ///< results, trace, progress, failure
};

}  // namespace

std::optional<Result> run_cell(Engine& engine, const GenerateOptions& request, const Turns& turns,
                               const std::function<bool()>& stop, TracedText* trace) {
  Result result;
  Components& seconds = result.seconds;
  const auto note_step = [&](const StepView& step) {
    if (!step.is_step()) return;
    note_nodes(step, result.nodes, trace);
    seconds.draft += step.seconds.draft;
    seconds.drawing += step.seconds.drawing;
    seconds.construction += step.seconds.construction;
    seconds.verify += step.seconds.verify;
    seconds.judging += step.seconds.judging;
    result.tree_sizes.push_back(step.tree.size());
    result.accepted.push_back(static_cast<std::int32_t>(step.verdict.path.size()));
  };
  const PieceCallback callback = [&](const Piece&) { return !stop || !stop(); };
  const Observed observed(engine, note_step);
  Sequence sequence = engine.new_sequence();
  double decode = 0.0;
  for (const std::vector<TokenId>& tokens : turns) {
    Generation generation = sequence.generate(tokens, request, callback);
    const FinishReason reason = generation.finish_reason;
    if (reason == FinishReason::cancelled) return std::nullopt;
    const Statistics& s = generation.statistics;
    result.turns.push_back({s.prompt_tokens, s.prefill_tokens, std::move(generation.tokens),
                            std::move(generation.text), name_of(reason)});
    result.draft_passes += s.draft_passes;
    seconds.prefill += s.seconds.prefill;
    decode += s.seconds.total - s.seconds.load - s.seconds.prefill;
    result.device = generation.used.device;
    result.dtype = generation.used.dtype;
    if (reason == FinishReason::context || reason == FinishReason::memory) break;
  }
  seconds.other = std::max(0.0, decode - seconds.decode());
  return result;
}

std::size_t texts_left(const Results& results) {
  std::size_t texts = 0;
  for (const PromptWork& one : left_to_do(results)) texts += one.cells.size();
  return texts;
}

bool run_study(std::vector<Engine>& engines, const StudyWork& work, Results& results,
               const StudyHooks& hooks) {
  return Runner(work, results, hooks).run(engines);
}

}  // namespace coppice::study

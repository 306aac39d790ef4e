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
  std::vector<const OracleCell*> oracle = {};

  std::size_t units() const { return cells.size() + oracle.size(); }
};

/// The same order on every platform, whatever else is left to do.
void shuffle(std::vector<const Cell*>& cells, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t left = cells.size(); left > 1; --left) {
    std::swap(cells[left - 1], cells[random() % left]);
  }
}

std::vector<PromptWork> left_to_do(const Results& results, const std::string& pair) {
  const StudyPlan& plan = results.plan();
  std::vector<PromptWork> all;
  for (std::int32_t round = 0; round < plan.rounds; ++round) {
    for (std::size_t p = 0; p < plan.prompts.size(); ++p) {
      PromptWork left{plan.prompts[p].id, p, round};
      for (const Cell& cell : plan.cells) {
        if (cell.pair == pair) left.cells.push_back(&cell);
      }
      // Before those that are done are left out, so that an interruption changes no order.
      shuffle(left.cells, stream_of(cat(left.id, ' ', round)));
      std::erase_if(left.cells,
                    [&](const Cell* cell) { return results.has(cell->key(), left.id, round); });
      for (const OracleCell& oracle : plan.oracle) {
        const bool wanted = oracle.pair == pair && round == 0;
        if (wanted && !results.has(oracle.key(), left.id)) left.oracle.push_back(&oracle);
      }
      if (left.units() > 0) all.push_back(std::move(left));
    }
  }
  return all;
}

std::size_t units_of(const std::vector<PromptWork>& work) {
  std::size_t units = 0;
  for (const PromptWork& one : work) units += one.units();
  return units;
}

class Runner {
 public:
  Runner(const StudyWork& work, Results& results, const RunHooks& hooks)
      : work_(work),
        results_(results),
        hooks_(hooks),
        left_(left_to_do(results, work.pair)),
        units_(units_of(left_)) {}

  bool run(std::vector<Engine>& engines) {
    // One after the other: the first measures the costs that the others read.
    for (Engine& engine : engines) {
      if (!stopped() && !left_.empty()) warm_up(engine);
    }
    {
      std::vector<std::jthread> others;
      for (std::size_t e = 1; e < engines.size(); ++e) {
        others.emplace_back([this, &engine = engines[e]] { work_through(engine); });
      }
      work_through(engines.front());
    }
    if (failure_) std::rethrow_exception(failure_);
    return units_done_ == units_;
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
      if (stopped()) return;
      GenerateOptions few = request;
      few.max_new_tokens = std::min(few.max_new_tokens, warm_up_tokens);
      run_text(engine, few, left_.front());
    }
  }

  void work_through(Engine& engine) noexcept {
    try {
      for (std::size_t next = next_++; next < left_.size() && !stopped(); next = next_++) {
        work_on(engine, left_[next]);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_ = true;
    }
  }

  void work_on(Engine& engine, const PromptWork& work) {
    for (const Cell* cell : work.cells) {
      if (stopped()) return;
      const std::string key = cell->key();
      TracedText trace{key, work.id, {}};
      const bool traced = work_.trace != nullptr && work.round == 0;
      std::optional<Result> result =
          run_text(engine, work_.requests.at(key), work, traced ? &trace : nullptr);
      if (!result) return;
      result->cell = key;
      result->prompt = work.id;
      result->round = work.round;
      result->run = work_.run;
      // First: what the results lack is run, and traced, again.
      if (traced) work_.trace->append(trace);
      note([&] { results_.add(std::move(*result)); });
    }
    // Along the text that plain decoding writes in the first turn with seed 0, whatever seeds a
    // study has now.
    const std::vector<TokenId>& prompt = work_.prompts[work.prompt].front();
    GenerateOptions request = work_.shared;
    std::vector<TokenId> text;
    for (const OracleCell* oracle : work.oracle) {
      if (stopped()) return;
      if (text.empty() || request.sampling.temperature != oracle->temperature) {
        Cell plain;
        plain.temperature = oracle->temperature;
        request = plain.request(work_.shared);
        request.stream = stream_of(work.id);
        text = engine.generate(prompt, request).tokens;
      }
      OracleWalk walk =
          walk_oracle(engine, prompt, text, request, oracle->size, work_.oracle_positions);
      walk.cell = oracle->key();
      walk.prompt = work.id;
      note([&] { results_.add(std::move(walk)); });
    }
  }

  template <typename Add>
  void note(const Add& add) {
    const std::lock_guard lock(mutex_);
    add();
    ++units_done_;
    if (hooks_.done) hooks_.done();
  }

  const StudyWork& work_;
  Results& results_;
  const RunHooks& hooks_;
  std::vector<PromptWork> left_;
  std::size_t units_;
  std::size_t units_done_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;  ///< results, progress, failure
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

std::size_t units_left(const Results& results, const std::string& pair) {
  return units_of(left_to_do(results, pair));
}

bool run_study(std::vector<Engine>& engines, const StudyWork& work, Results& results,
               const RunHooks& hooks) {
  return Runner(work, results, hooks).run(engines);
}

}  // namespace coppice::study

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

void note_nodes(const StepView& step, NodeCounts& counts, TraceRun* trace) {
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
  std::int32_t prompt, round;
  std::vector<const Cell*> cells;
  std::vector<OraclePlan> oracle;  ///< with the sizes that are missing

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
      PromptWork left{static_cast<std::int32_t>(p), round, {}, {}};
      for (const Cell& cell : plan.cells) {
        if (cell.pair == pair) left.cells.push_back(&cell);
      }
      // Before those that are done are left out, so that an interruption changes no order.
      shuffle(left.cells, stream_of(cat(plan.prompts[p].id, ' ', round)));
      std::erase_if(left.cells,
                    [&](const Cell* cell) { return results.has(*cell, left.prompt, round); });
      for (OraclePlan oracle : plan.oracle) {
        std::erase_if(oracle.sizes, [&](std::int32_t size) {
          return results.has_oracle(pair, oracle.temperature, size, left.prompt);
        });
        const bool wanted = oracle.pair == pair && round == 0 && !oracle.sizes.empty();
        if (wanted) left.oracle.push_back(std::move(oracle));
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

  const std::vector<double>* vector_of(const Cell& cell) const {
    const auto found = work_.acceptance_vectors.find(cell.key());
    return found == work_.acceptance_vectors.end() ? nullptr : &found->second;
  }

  CellRun run_of(const Cell& cell, const GenerateOptions& shared, std::int32_t prompt) const {
    const auto at = static_cast<std::size_t>(prompt);
    return {cell,
            shared,
            work_.prompts[at],
            stream_of(results_.plan().prompts[at].id),
            [this] { return stopped(); },
            nullptr,
            vector_of(cell)};
  }

  void warm_up(Engine& engine) {
    GenerateOptions few = work_.shared;
    few.max_new_tokens = std::min(few.max_new_tokens, warm_up_tokens);
    for (const Cell& cell : results_.plan().cells) {
      if (cell.pair != work_.pair || stopped()) continue;
      run_cell(engine, run_of(cell, few, left_.front().prompt));
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
      CellRun run = run_of(*cell, work_.shared, work.prompt);
      std::optional<TraceRun> trace;
      if (work_.trace != nullptr && work.round == 0) {
        const PromptName& prompt = results_.plan().prompts[work.prompt];
        trace.emplace(work_.trace->run_of(cell->key()), work_.trace->prompt_of(prompt.id));
        run.trace = &*trace;
      }
      std::optional<Result> result = run_cell(engine, run);
      if (!result) return;
      result->prompt = work.prompt;
      result->round = work.round;
      result->run = work_.run;
      // First: what the results lack is run, and traced, again.
      if (trace) work_.trace->append(*trace);
      note([&] { results_.add(std::move(*result)); });
    }
    for (const OraclePlan& oracle : work.oracle) {
      std::vector<OracleResult> walks = walk(engine, oracle, work.prompt);
      if (walks.empty()) return;
      note([&] {
        for (OracleResult& one : walks) results_.add(std::move(one));
      });
    }
  }

  // Along the text that plain decoding writes in the first turn with seed 0, whatever seeds a study
  // has now. Empty: stopped.
  std::vector<OracleResult> walk(Engine& engine, const OraclePlan& oracle, std::int32_t prompt) {
    const auto at = static_cast<std::size_t>(prompt);
    const std::vector<TokenId>& tokens = work_.prompts[at].front();
    Cell plain;
    plain.temperature = oracle.temperature;
    GenerateOptions request = plain.request(work_.shared);
    request.stream = stream_of(results_.plan().prompts[at].id);
    const Generation text = engine.generate(tokens, request);
    std::vector<OracleResult> walks;
    for (const std::int32_t size : oracle.sizes) {
      if (stopped()) return {};
      walks.push_back(
          {oracle.pair, oracle.temperature, prompt,
           walk_oracle(engine, tokens, text.tokens, request, size, work_.oracle_positions)});
    }
    return walks;
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

std::optional<Result> run_cell(Engine& engine, const CellRun& run) {
  Result result;
  result.cell = run.cell.key();
  Components& seconds = result.seconds;
  const auto note_step = [&](const StepView& step) {
    if (!step.is_step()) return;
    note_nodes(step, result.nodes, run.trace);
    seconds.draft += step.seconds.draft;
    seconds.drawing += step.seconds.drawing;
    seconds.construction += step.seconds.construction;
    seconds.verify += step.seconds.verify;
    seconds.judging += step.seconds.judging;
    result.tree_sizes.push_back(step.tree.size());
    result.accepted.push_back(static_cast<std::int32_t>(step.verdict.path.size()));
  };
  GenerateOptions request = run.cell.request(run.shared);
  if (run.acceptance_vector != nullptr) {
    std::get<Sequoia>(request.speculation).acceptance = *run.acceptance_vector;
  }
  request.stream = run.stream;
  const PieceCallback callback = [&](const Piece&) { return !run.stop || !run.stop(); };
  const Observed observed(engine, note_step);
  Sequence sequence = engine.new_sequence();
  double decode = 0.0;
  for (const std::vector<TokenId>& tokens : run.turns) {
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

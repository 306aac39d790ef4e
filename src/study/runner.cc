#include "study/runner.h"

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "study/cell_run.h"

namespace coppice::study {
namespace {

constexpr std::int32_t warm_up_tokens = 8;

/// What is left to do for one prompt.
struct PromptWork {
  std::int32_t prompt;
  std::vector<const Cell*> cells;
  std::vector<double> oracle_temperatures;

  std::size_t units() const { return cells.size() + oracle_temperatures.size(); }
};

std::vector<PromptWork> left_to_do(const StudyWork& work, const Results& results) {
  std::vector<PromptWork> all;
  for (std::int32_t p = 0; p < work.plan.prompts; ++p) {
    PromptWork left{p, {}, {}};
    for (const Cell& cell : work.plan.cells) {
      if (!results.has(cell, p)) left.cells.push_back(&cell);
    }
    for (const double temperature : work.plan.oracle_temperatures) {
      if (!results.has_oracle(temperature, p)) left.oracle_temperatures.push_back(temperature);
    }
    if (left.units() > 0) all.push_back(std::move(left));
  }
  return all;
}

class Runner {
 public:
  Runner(const StudyWork& work, Results& results, const RunHooks& hooks)
      : work_(work), results_(results), hooks_(hooks), left_(left_to_do(work, results)) {
    for (const PromptWork& prompt : left_) units_ += prompt.units();
  }

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

  CellRun run_of(const Cell& cell, const SharedOptions& shared, std::int32_t prompt) const {
    const PromptTokens& tokens = work_.prompts[static_cast<std::size_t>(prompt)];
    return {cell,
            shared,
            tokens.tokens,
            prompt,
            tokens.kind,
            prompt == 0,
            [this] { return stopped(); },
            nullptr};
  }

  void warm_up(Engine& engine) {
    SharedOptions few = work_.shared;
    few.max_new_tokens = std::min(few.max_new_tokens, warm_up_tokens);
    for (const Cell& cell : work_.plan.cells) {
      if (!stopped()) run_cell(engine, run_of(cell, few, left_.front().prompt));
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

  void work_on(Engine& engine, const PromptWork& prompt) {
    for (const Cell* cell : prompt.cells) {
      if (stopped()) return;
      const auto number = static_cast<std::uint32_t>(cell - work_.plan.cells.data());
      TraceRun trace(number, static_cast<std::uint32_t>(prompt.prompt));
      CellRun run = run_of(*cell, work_.shared, prompt.prompt);
      if (work_.trace != nullptr) run.trace = &trace;
      std::optional<Record> record = run_cell(engine, run);
      if (!record) return;
      // First: what the results lack is run, and traced, again.
      if (work_.trace != nullptr) work_.trace->append(trace);
      note(std::move(*record));
    }
    for (const double temperature : prompt.oracle_temperatures) {
      std::optional<OracleRecord> record = walk(engine, temperature, prompt.prompt);
      if (!record) return;
      note(std::move(*record));
    }
  }

  // Along the text that plain decoding writes with the study's first seed.
  std::optional<OracleRecord> walk(Engine& engine, double temperature, std::int32_t prompt) {
    const PromptTokens& tokens = work_.prompts[static_cast<std::size_t>(prompt)];
    Cell plain;
    plain.temperature = temperature;
    plain.seed = work_.plan.cells.front().seed;
    GenerateOptions request = plain.request(work_.shared);
    request.stream = static_cast<std::uint64_t>(prompt);
    const Generation text = engine.generate(tokens.tokens, request);
    OracleRecord record{temperature, prompt, tokens.kind, {}};
    for (const std::int32_t size : work_.oracle_sizes) {
      if (stopped()) return std::nullopt;
      record.walks.push_back(
          walk_oracle(engine, tokens.tokens, text.tokens, request, size, work_.oracle_positions));
    }
    return record;
  }

  template <typename AnyRecord>
  void note(AnyRecord record) {
    const std::lock_guard lock(mutex_);
    results_.add(std::move(record));
    ++units_done_;
    if (hooks_.progress) {
      hooks_.progress(static_cast<double>(units_done_) / static_cast<double>(units_));
    }
  }

  const StudyWork& work_;
  Results& results_;
  const RunHooks& hooks_;
  std::vector<PromptWork> left_;
  std::size_t units_ = 0;
  std::size_t units_done_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;  ///< results, progress, failure
};

}  // namespace

bool run_study(std::vector<Engine>& engines, const StudyWork& work, Results& results,
               const RunHooks& hooks) {
  return Runner(work, results, hooks).run(engines);
}

}  // namespace coppice::study

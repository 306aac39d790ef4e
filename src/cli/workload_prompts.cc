#include "cli/workload_prompts.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/start_thread.h"
#include "cli/generation_text.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/workload_output.h"
#include "engine/access.h"
#include "engine/loading.h"
#include "models/config.h"
#include "workload/shared_prompts.h"

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;
using workload::SharedPrompts;

struct Answers {
  std::size_t texts = 0, cut = 0;  ///< cut: ended early, as memory was short
  std::int64_t tokens = 0, prompt_tokens = 0, cached_tokens = 0, cached_draft_tokens = 0;
  std::int32_t preemptions = 0;
  double prefill = 0.0, total = 0.0;
  bool finished = true;
  workload::Accepted accepted;

  std::int64_t computed() const { return prompt_tokens - cached_tokens; }
};

std::int64_t longest_of(const SharedPrompts& set) {
  std::size_t longest = 0;
  for (const auto& prompt : set.prompts) longest = std::max(longest, prompt.size());
  return static_cast<std::int64_t>(longest);
}

/// Each in a call of its own, `calls` side by side: who has written one goes on with the next one.
std::vector<Outcome> write_by_calls(Engine& engine, std::span<const Request> requests,
                                    std::int32_t calls, const OutcomeCallback& finished,
                                    const std::stop_token& stop) {
  std::vector<Outcome> outcomes(requests.size());
  std::mutex mutex;  // of what follows, and of `finished`
  std::size_t next = 0;
  const auto write = [&] {
    std::unique_lock lock(mutex);
    while (next < requests.size()) {
      const std::size_t index = next++;
      Outcome& outcome = outcomes[index];
      lock.unlock();
      try {
        outcome = std::move(engine.generate(requests.subspan(index, 1), {}, stop).front());
      } catch (...) {
        outcome.error = std::current_exception();
      }
      lock.lock();
      finished(index, outcome);
    }
  };
  std::vector<std::jthread> threads;  // last: joined before what they use goes
  threads.reserve(static_cast<std::size_t>(calls));
  for (std::int32_t i = 0; i < calls; ++i) threads.push_back(start_thread<std::jthread>(write));
  threads.clear();
  return outcomes;
}

Answers answer(Engine& engine, const SharedPrompts& set, const GenerateOptions& options,
               std::int32_t calls) {
  std::vector<Request> requests(set.prompts.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].tokens = set.prompts[i];
    requests[i].options = options;
    requests[i].options.stream += i;
  }
  const InterruptWatch interrupts;
  ProgressLine progress;
  std::size_t ended = 0;
  const double start = working_seconds(engine);
  const auto finished = [&](std::size_t, Outcome&) {
    progress.show("answering", static_cast<double>(++ended) / static_cast<double>(requests.size()));
  };
  const auto outcomes = calls == 0
                            ? engine.generate(requests, finished, interrupts.token())
                            : write_by_calls(engine, requests, calls, finished, interrupts.token());
  Answers answers;
  answers.total = working_seconds(engine) - start;
  for (const Outcome& outcome : outcomes) {
    if (outcome.error) std::rethrow_exception(outcome.error);
    const Generation& text = outcome.samples.front();
    if (text.finish_reason == FinishReason::cancelled) {
      answers.finished = false;
      continue;
    }
    const Statistics& s = text.statistics;
    ++answers.texts;
    answers.cut += text.finish_reason == FinishReason::memory ? 1 : 0;
    answers.tokens += std::ssize(text.tokens);
    answers.prompt_tokens += s.prompt_tokens;
    answers.cached_tokens += s.cached_tokens;
    answers.cached_draft_tokens += s.cached_draft_tokens;
    answers.accepted.add(text);
    answers.preemptions += s.preemptions;
    answers.prefill += s.seconds.prefill;
  }
  return answers;
}

std::string as_batch(const SharedPrompts& set, const GenerateOptions& options) {
  std::string lines;
  for (const auto& prompt : set.prompts) {
    lines += json_line(
        {{"tokens", prompt}, {"max_new_tokens", options.max_new_tokens}, {"ignore_eos", true}});
  }
  return lines;
}

double ratio(std::int64_t of, std::int64_t to) {
  return static_cast<double>(of) / static_cast<double>(std::max<std::int64_t>(1, to));
}

std::string prompts_as_text(const std::string& kind, const SharedPrompts& set,
                            const std::optional<Answers>& answers, std::int64_t kv_tokens) {
  const auto line = [](const char* name, const char* format, auto... values) {
    char value[160];
    std::snprintf(value, sizeof value, format, values...);
    return table_line(name, value);
  };
  std::string text = cat(kind, ": ", set.prompts.size(), " prompts, shuffled\n");
  text += line("prompt tokens", "%lld, %.1f a prompt", static_cast<long long>(set.prompt_tokens),
               ratio(set.prompt_tokens, std::ssize(set.prompts)));
  text += line("distinct tokens", "%lld", static_cast<long long>(set.distinct_tokens));
  if (!answers) return text;
  text += cat("engine", answers->finished ? "" : ", stopped before the end", "\n");
  text += line("answers", "%zu, of %lld tokens in all", answers->texts,
               static_cast<long long>(answers->tokens));
  text += line("computed", "%lld of the prompts' tokens, %.3f of the distinct ones",
               static_cast<long long>(answers->computed()),
               ratio(answers->computed(), set.distinct_tokens));
  if (const std::string accepted = accepted_line(answers->accepted); !accepted.empty()) {
    text += line("kept", "%lld by the target, %lld by the draft",
                 static_cast<long long>(answers->cached_tokens),
                 static_cast<long long>(answers->cached_draft_tokens));
    text += accepted;
  }
  text += line("KV slots", "%lld", static_cast<long long>(kv_tokens));
  if (answers->preemptions > 0) text += line("preemptions", "%d", answers->preemptions);
  return text +
         line("seconds", "%.3f, of passes over prompts %.3f", answers->total, answers->prefill);
}

std::string prompts_as_json(const std::string& kind, const SharedPrompts& set,
                            const std::optional<Answers>& answers, std::int64_t kv_tokens) {
  Json json = {{"kind", kind},
               {"prompts", set.prompts.size()},
               {"prompt_tokens", set.prompt_tokens},
               {"distinct_tokens", set.distinct_tokens}};
  if (answers) {
    json["engine"] = {{"finished", answers->finished},
                      {"texts", answers->texts},
                      {"cut", answers->cut},
                      {"tokens", answers->tokens},
                      {"prompt_tokens", answers->prompt_tokens},
                      {"cached_tokens", answers->cached_tokens},
                      {"computed_tokens", answers->computed()},
                      {"computed_over_distinct", ratio(answers->computed(), set.distinct_tokens)},
                      {"cached_draft_tokens", answers->cached_draft_tokens},
                      {"policy", answers->accepted.policy},
                      {"accepted_length", answers->accepted.length()},
                      {"kv_tokens", kv_tokens},
                      {"preemptions", answers->preemptions},
                      {"seconds", {{"prefill", answers->prefill}, {"total", answers->total}}}};
  }
  return json_line(json);
}

}  // namespace

po::options_description shared_prompt_options() {
  po::options_description d("Prompts (toolbench, loogle)");
  d.add_options()("groups", po::value<std::int32_t>()->default_value(8)->value_name("N"),
                  "tools, or documents")(
      "group-prompts", po::value<std::int32_t>()->default_value(8)->value_name("N"),
      "prompts of each")("parallel", po::value<std::int32_t>()->default_value(16)->value_name("N"),
                         "prompts that are answered side by side at most")(
      "calls", po::value<std::int32_t>()->value_name("N"),
      "each prompt comes by a call of its own, N of them side by side in shuffled order; else all "
      "come by one call, which puts them in order")(
      "output", po::value<std::string>()->value_name("FILE"),
      "write the prompts as token ids, too, as generate --batch takes them");
  return d;
}

int answer_shared_prompts(const po::variables_map& values, const std::string& kind) {
  const bool json = wants_json(values), count_only = values.count("count-only") != 0;
  const std::string output = written_file_in(values, "output");
  if (!output.empty()) require_writable(output);
  GenerateOptions options = generate_options(values);
  options.max_new_tokens = count_or(values, "new-tokens", 16);
  options.ignore_eos = true;
  options.validate();
  workload::SharingStatistics statistics =
      kind == "toolbench" ? workload::toolbench() : workload::loogle();
  statistics.mean_tokens = count_or(values, "prompt-tokens", statistics.mean_tokens);
  EngineOptions engine_request = engine_options(values, options.speculation);
  const std::int64_t vocab_size = read_config(engine_request.target).vocab_size;
  const std::int32_t calls =
      values.count("calls") == 0
          ? 0
          : static_cast<std::int32_t>(count_in(values, "calls", 1, most_sequences));
  const SharedPrompts set =
      workload::shared_prompts(statistics, count_in(values, "groups", 1),
                               count_in(values, "group-prompts", 1), vocab_size, options.seed);
  if (!output.empty()) write_file(output, as_batch(set, options));
  std::optional<Answers> answers;
  if (!count_only) {
    tell_of_plain(values, engine_request);
    const auto texts = static_cast<std::int32_t>(std::min<std::int64_t>(
        count_in(values, "parallel", 1, most_sequences), std::ssize(set.prompts)));
    engine_request.max_sequences = texts;
    if (engine_request.kv_tokens == 0) {  // so that all fits
      const std::int64_t answered = std::ssize(set.prompts) * options.max_new_tokens;
      const std::int64_t all = set.distinct_tokens + answered + longest_of(set);
      engine_request.kv_tokens = static_cast<std::int32_t>(
          std::min<std::int64_t>(all + all / 20 + 64 * texts, std::int64_t{1} << 30) / 16 * 16 +
          16);
    }
    ProgressLine loading;
    engine_request.progress = [&](const LoadEvent& event) { loading.show(event); };
    Engine engine = Engine::load(engine_request);
    loading.clear();
    if (const std::int64_t longest = longest_of(set) + options.max_new_tokens;
        longest > engine.context_length()) {
      throw_usage(cat("workload ", kind, ": the longest prompt and its answer have ", longest,
                      " tokens, more than the target's context of ", engine.context_length(),
                      "; ask for shorter ones with --prompt-tokens"));
    }
    answers = answer(engine, set, options, calls);
    engine_request.kv_tokens = EngineAccess(engine).target().pool->layout().slots();
  }
  write_out(
      (json ? prompts_as_json : prompts_as_text)(kind, set, answers, engine_request.kv_tokens));
  if (!answers) return 0;
  if (!answers->finished) return interrupted_exit;
  if (answers->cut == 0) return 0;
  tell(cat(answers->cut, answers->cut == 1 ? " answer" : " answers",
           " ended early, for KV memory was short; give more --kv-tokens"));
  return 1;
}

}  // namespace coppice::cli

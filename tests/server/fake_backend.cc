#include "fake_backend.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace coppice::testing {

using server::TokenText;

class FakeBackend::FakeJob final : public server::Job {
 public:
  explicit FakeJob(FakeBackend& owner) : owner_(owner) {}
  ~FakeJob() override {
    cancel();
    thread.join();
  }
  void cancel() override {
    const std::lock_guard lock(owner_.mutex_);
    stopped = true;
    owner_.changed_.notify_all();
  }

  std::atomic<bool> stopped = false;
  std::thread thread;

 private:
  FakeBackend& owner_;
};

FakeBackend::FakeBackend() {
  facts_.target = "fake";
  facts_.chat_template = "{{ messages }} {{ tools }} {{ enable_thinking }} <tool_call>";
  facts_.fingerprint = "fp_fake";
  facts_.context_length = 4096;
  facts_.vocab_size = 256;
  facts_.parallel = 4;
  facts_.max_tree_size = 64;
}

FakeBackend::~FakeBackend() = default;

std::shared_ptr<server::Job> FakeBackend::submit(Request request, server::TextEvents events) {
  auto job = std::make_shared<FakeJob>(*this);
  {
    const std::lock_guard lock(mutex_);
    options_ = request.options;
    tokens_ = request.tokens;
    ++running_;
    changed_.notify_all();
  }
  job->thread = std::thread(
      [this, job = job.get(), request = std::move(request),
       finished = std::move(events.finished)]() mutable { write(*job, request, finished); });
  return job;
}

void FakeBackend::write(FakeJob& job, Request& request,
                        const std::function<void(Outcome&)>& finished) {
  Outcome outcome;
  const bool fails = !fails_with.empty();
  if (fails) outcome.error = std::make_exception_ptr(Error(ErrorKind::usage, fails_with));
  for (std::int32_t i = 0; i < request.n; ++i) {
    Generation text;
    text.finish_reason = fails ? FinishReason::failed : finish;
    text.statistics.prompt_tokens = static_cast<std::int32_t>(request.tokens.size());
    text.statistics.steps = 2;
    text.statistics.accepted_length = 3.0;
    for (std::size_t at = 0; at < answer.size() && !fails; at += piece) {
      const std::string part = answer.substr(at, piece);
      if (std::cmp_greater_equal(text.tokens.size(), request.options.max_new_tokens)) {
        text.finish_reason = FinishReason::length;
        break;
      }
      std::vector<TokenId> tokens;
      std::vector<TokenLogprob> logprobs;
      for (const char byte : part) {
        tokens.push_back(static_cast<unsigned char>(byte));
        if (request.options.logprobs)
          logprobs.push_back({tokens.back(), -0.5, {{tokens.back(), -0.5}}});
      }
      text.text += part;
      text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
      text.logprobs.insert(text.logprobs.end(), logprobs.begin(), logprobs.end());
      Piece shown;
      shown.text = part;
      shown.tokens = tokens;
      shown.logprobs = logprobs;
      const bool goes_on = !request.callback || request.callback(i, shown);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !held_ || job.stopped; });
      if (!goes_on || job.stopped) {
        text.finish_reason = FinishReason::cancelled;
        break;
      }
    }
    outcome.samples.push_back(std::move(text));
  }
  {
    const std::lock_guard lock(mutex_);
    --running_;
    for (const Generation& text : outcome.samples) {
      statistics_.steps += text.statistics.steps;
      statistics_.accepted += 2 * text.statistics.steps;
    }
    cancelled_ +=
        !outcome.samples.empty() && outcome.samples.back().finish_reason == FinishReason::cancelled;
    changed_.notify_all();
  }
  finished(outcome);
}

std::vector<TokenId> FakeBackend::tokenize(std::string_view text, bool) const {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

std::string FakeBackend::detokenize(std::span<const TokenId> tokens) const {
  std::string text;
  for (const TokenId token : tokens) text += static_cast<char>(token);
  return to_valid_utf8(text);
}

TokenText FakeBackend::token(TokenId token) const {
  return {std::string(1, static_cast<char>(token)), false};
}

std::vector<TokenId> FakeBackend::chat_tokens(const server::ChatPrompt& prompt) const {
  const std::lock_guard lock(mutex_);
  prompt_ = prompt;
  if (chat_fails) std::rethrow_exception(chat_fails);
  return tokenize(prompt.messages, false);
}

std::vector<TokenLogprob> FakeBackend::prompt_logprobs(std::span<const TokenId> prompt,
                                                       std::int32_t top) {
  std::vector<TokenLogprob> entries;
  for (const TokenId token : prompt) entries.push_back({token, entries.empty() ? 0.0 : -1.0, {}});
  for (std::size_t i = 1; i < entries.size() && top > 0; ++i) {
    entries[i].top.emplace_back(entries[i].token, -1.0);
  }
  return entries;
}

bool FakeBackend::template_reads(std::string_view name) const {
  return facts_.chat_template.find(name) != std::string::npos;
}

Constraint FakeBackend::constraint(const constraints::ConstraintSource& source) {
  constraints::compile(source);
  const std::lock_guard lock(mutex_);
  constraint_ = source;
  return {};
}

void FakeBackend::hold(bool held) {
  const std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

EngineStatistics FakeBackend::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

int FakeBackend::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}
int FakeBackend::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}
GenerateOptions FakeBackend::last_options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}
std::vector<TokenId> FakeBackend::last_tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}
server::ChatPrompt FakeBackend::last_prompt() const {
  const std::lock_guard lock(mutex_);
  return prompt_;
}
constraints::ConstraintSource FakeBackend::last_constraint() const {
  const std::lock_guard lock(mutex_);
  return constraint_;
}
bool FakeBackend::wait_for_running(int count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return running_ == count; });
}

}  // namespace coppice::testing

// A backend that writes what a test tells it to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/backend.h"

namespace coppice::testing {

/// Tokens are bytes: token 65 is "A". Its answer to everything is `answer`, a piece for every
/// `piece` bytes. Held, a text waits after its first piece until it is let go or cancelled.
class FakeBackend final : public server::Backend {
 public:
  FakeBackend();
  ~FakeBackend() override;

  const server::BackendFacts& facts() const override { return facts_; }
  std::shared_ptr<server::Job> submit(Request request, server::TextEvents events) override;
  std::vector<TokenId> tokenize(std::string_view text, bool add_special) const override;
  std::string detokenize(std::span<const TokenId> tokens) const override;
  server::TokenText token(TokenId token) const override;
  std::vector<TokenId> chat_tokens(const server::ChatPrompt& prompt) const override;
  std::vector<TokenLogprob> prompt_logprobs(std::span<const TokenId> prompt,
                                            std::int32_t top) override;
  bool template_reads(std::string_view name) const override;
  Constraint constraint(const constraints::ConstraintSource& source) override;
  EngineStatistics statistics() const override;

  // Set before requests come.
  std::string answer = "Hello, world";
  std::size_t piece = 5;
  std::string fails_with;         ///< an Error of this text, before anything is written
  std::exception_ptr chat_fails;  ///< what chat_tokens() throws
  FinishReason finish = FinishReason::eos;
  server::BackendFacts facts_;

  void hold(bool held);
  // What came.
  int running() const;
  int cancelled() const;
  GenerateOptions last_options() const;
  std::vector<TokenId> last_tokens() const;
  server::ChatPrompt last_prompt() const;
  constraints::ConstraintSource last_constraint() const;
  /// Waits for that many texts to run; false after some seconds.
  bool wait_for_running(int count) const;

 private:
  class FakeJob;
  void write(FakeJob& job, Request& request, const std::function<void(Outcome&)>& finished);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool held_ = false;
  int running_ = 0, cancelled_ = 0;
  EngineStatistics statistics_;
  GenerateOptions options_;
  std::vector<TokenId> tokens_;
  mutable server::ChatPrompt prompt_;
  constraints::ConstraintSource constraint_;
};

}  // namespace coppice::testing

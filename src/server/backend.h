// What the server asks of an engine and its model. Tests of the protocol have one of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/language.h"
#include "coppice.h"

namespace coppice::server {

/// A request under way. Released on the I/O thread.
class Job {
 public:
  virtual ~Job() = default;
  /// Its texts end at the next step. From any thread.
  virtual void cancel() = 0;
};

/// Which model this is, and what it can do. Fixed while the server runs.
struct BackendFacts {
  std::string target, draft;  ///< paths; draft "" without one
  std::string chat_template;  ///< its source; "" if the model has none
  std::string fingerprint;    ///< of the build and the weights: equal ones give equal texts
  std::string device;
  std::string eos_text, bos_text;
  std::int32_t context_length = 0;
  std::int64_t vocab_size = 0;
  std::int32_t parallel = 1;  ///< texts that are written side by side
  std::int32_t max_tree_size = 0;
  std::int32_t kv_tokens = 0;
};

/// A token as answers show it.
struct TokenText {
  std::string bytes;  ///< a special token's name
  bool special = false;
};

/// What a prompt is made of.
struct ChatPrompt {
  std::string messages;  ///< a JSON list
  std::string tools;     ///< a JSON list, or ""
  std::string values;    ///< a JSON object of names for the template, or ""
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

/// What an engine calls while it writes a request, on a thread of its own. All must be quick.
struct TextEvents {
  std::function<void(Outcome&)> finished;  ///< once
  /// Each step's tree; empty if nobody asks for them.
  std::function<void(std::int32_t sample, const JudgedTree&)> judged;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendFacts& facts() const = 0;

  /// Begins a request and returns at once.
  virtual std::shared_ptr<Job> submit(Request request, TextEvents events) = 0;

  // From any thread. What is wrong with what they are given is Error(usage).
  virtual std::vector<TokenId> tokenize(std::string_view text, bool add_special) const = 0;
  virtual std::string detokenize(std::span<const TokenId> tokens) const = 0;
  virtual TokenText token(TokenId token) const = 0;
  virtual std::vector<TokenId> chat_tokens(const ChatPrompt& prompt) const = 0;
  /// prompt_logprobs.h
  virtual std::vector<TokenLogprob> prompt_logprobs(std::span<const TokenId> prompt,
                                                    std::int32_t top) = 0;
  /// Whether the chat template reads this name.
  virtual bool template_reads(std::string_view name) const = 0;
  virtual Constraint constraint(const constraints::ConstraintSource& source) = 0;

  virtual EngineStatistics statistics() const = 0;
};

}  // namespace coppice::server

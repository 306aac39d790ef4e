// From what an engine writes for a request to the answer in an API's words.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coppice.h"
#include "server/http/exchange.h"

namespace coppice::server {

/// What the engine hands out of one text, copied.
struct TextPiece {
  std::int32_t choice = 0;
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
};

/// Everything runs on the I/O thread. Texts are choices 0, 1, ... over all requests in order.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  /// A stream's events for a piece; "" for none.
  virtual std::string piece(TextPiece& piece) = 0;
  /// A stream's events for a step's tree.
  virtual std::string tree(std::int32_t choice, const JudgedTree& tree) = 0;
  /// A request has ended without an error: the events that a stream has then.
  virtual std::string ended(std::int32_t first_choice, Outcome& outcome) = 0;
  /// All requests have ended: a stream's last events.
  virtual std::string close() = 0;
  /// All requests have ended: the answer that is no stream.
  virtual HttpAnswer whole() = 0;
  /// A stream's events for what the engine failed by.
  virtual std::string failed(int status, const std::string& message) = 0;
};

/// A request of an API, ready for the engine.
struct TextsJob {
  std::vector<Request> requests;
  bool stream = false;
  bool trees = false;  ///< judged trees are asked for
  std::unique_ptr<AnswerWriter> writer;

  std::int32_t texts() const {
    std::int32_t count = 0;
    for (const Request& request : requests) count += request.n;
    return count;
  }
};

/// What requests do not say.
struct ApiDefaults {
  GenerateOptions options;
  // Of chats, as a model's generation_config.json recommends them:
  std::vector<std::string> chat_stop;
  std::optional<std::int32_t> chat_max_tokens;  ///< none: as many as the context holds
  std::string model;
};

}  // namespace coppice::server

// Anthropic's Messages API, translated to chat completions and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/talk/request_json.h"

namespace coppice::server {

/// A chat completion's request out of one of /v1/messages, or of /v1/messages/count_tokens if
/// `counts` (then "max_tokens" is not asked for). Throws BadRequest for what is wrong, unknown or
/// not to be had: images and documents, tools that Anthropic runs.
///
/// Thinking becomes "chat_template_kwargs": {"enable_thinking": ...} and "reasoning_effort"; an
/// assistant's message at the end is continued ("continue_final_message").
Json chat_request_of_messages(const Json& request, bool counts = false);

Json messages_error(int status, std::string_view message);
/// {"input_tokens": ...}
Json messages_count(std::int64_t tokens);

/// A stream of chat chunks as one of Messages' events. A last chunk may hold "usage" alone, and
/// "usage" in the first chunk tells the prompt's tokens at once. A choice may say in "stop_reason"
/// which stop text ended it.
class MessagesStream {
 public:
  std::vector<NamedEvent> feed(const Json& chunk);
  /// Behind the last chunk, or behind one with "error", after which nothing comes.
  std::vector<NamedEvent> finish();
  /// The message of a whole chat completion, in place of all that.
  const Json& whole(const Json& completion);
  /// The message as far as it came.
  const Json& message() const { return message_; }

 private:
  void begin(const Json& chunk);
  void read_usage(const Json& usage);
  void add_text(const char* type, const char* member, const std::string& text);
  void add_call(const Json& call);
  void open_block(Json block);
  void close_block();
  void send(const char* name, Json data);

  Json message_;
  std::string arguments_;  ///< of the open block
  std::int64_t open_call_ = -1;
  bool is_begun_ = false, is_open_ = false, is_over_ = false;
  std::vector<NamedEvent> out_;
};

}  // namespace coppice::server

// OpenAI's Responses API, translated to chat completions and back. The server keeps nothing: what
// asks for a kept conversation is refused in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/talk/request_json.h"

namespace coppice::server {

/// A chat completion's request out of one of /v1/responses. Throws BadRequest for what is wrong,
/// unknown or not to be had: previous_response_id, store, background, files and images, tools other
/// than functions.
///
/// "allowed_tools" leaves the other tools out. Reasoning items go to the assistant's next message
/// as "reasoning_content".
Json chat_request_of_responses(const Json& request);

/// A stream of chat chunks as events of one response, with the settings of the request that it
/// answers. A last chunk may hold "usage" alone.
class ResponsesStream {
 public:
  explicit ResponsesStream(Json request) : request_(std::move(request)) {}

  std::vector<NamedEvent> feed(const Json& chunk);
  /// Behind the last chunk, or behind one with "error", after which nothing comes.
  std::vector<NamedEvent> finish();
  /// The response to a whole chat completion, in place of all that.
  const Json& whole(const Json& completion);
  /// The response as far as it came.
  const Json& response() const { return response_; }

 private:
  void begin(const Json& chunk);
  void read_usage(const Json& usage);
  void add_text(bool is_reasoning, const std::string& text, const Json& logprobs);
  void add_call(const Json& call);
  void open_item(Json item);
  void close_item(bool is_last);
  Json place(bool in_content) const;
  void send(const std::string& name, Json data);
  void send_response(const std::string& name);

  Json request_, response_;
  std::string finish_reason_;
  std::int64_t open_call_ = -1;
  std::int64_t sequence_ = 0;
  bool is_begun_ = false, is_open_ = false, is_over_ = false;
  std::vector<NamedEvent> out_;
};

}  // namespace coppice::server

#include "server/api/translated.h"

#include <memory>
#include <utility>

#include "server/api/answers.h"
#include "server/api/api_error.h"
#include "server/talk/messages.h"
#include "server/talk/responses.h"

namespace coppice::server {
namespace {

std::string event_text(const std::vector<NamedEvent>& events) {
  std::string text;
  for (const NamedEvent& one : events) {
    text += "event: " + one.name + "\n" + event(one.data);
  }
  return text;
}

template <typename Stream>
ChatForm form_of(std::shared_ptr<Stream> stream) {
  ChatForm form;
  form.tells_prompt_first = true;
  form.chunk = [stream](const Json& chunk) { return event_text(stream->feed(chunk)); };
  form.close = [stream] { return event_text(stream->finish()); };
  form.whole = [stream](const Json& completion) { return stream->whole(completion); };
  form.failed = [stream](int status, const std::string& message) {
    Json error = error_json(status, message);
    error["error"]["code"] = status;
    return event_text(stream->feed(error)) + event_text(stream->finish());
  };
  return form;
}

template <typename Translate>
Json translated(const Translate& translate) {
  try {
    return translate();
  } catch (const BadRequest& wrong) {
    throw ApiError(400, wrong.what(), wrong.param, "invalid_value");
  }
}

}  // namespace

TextsJob read_response(Json request, Backend& backend, const ApiDefaults& defaults) {
  const Json chat = translated([&] { return chat_request_of_responses(request); });
  return read_chat(chat, backend, defaults,
                   form_of(std::make_shared<ResponsesStream>(std::move(request))));
}

TextsJob read_message(const Json& request, Backend& backend, const ApiDefaults& defaults) {
  const Json chat = translated([&] { return chat_request_of_messages(request); });
  return read_chat(chat, backend, defaults, form_of(std::make_shared<MessagesStream>()));
}

Json count_message_tokens(const Json& request, Backend& backend, const ApiDefaults& defaults) {
  const Json chat = translated([&] { return chat_request_of_messages(request, true); });
  const auto tokens = read_chat_prompt(chat, backend, defaults).size();
  return messages_count(static_cast<std::int64_t>(tokens));
}

}  // namespace coppice::server

// Chat templates.
#include "chat.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "c/handed_over.h"
#include "c/handles.h"
#include "c/options.h"

using namespace coppice;
using namespace coppice::c;

struct coppice_chat {
  Chat chat;
  std::string source;
};

namespace {

coppice_chat* chat_handle_of(Chat chat) {
  std::string source(chat.source());
  return new coppice_chat{std::move(chat), std::move(source)};
}

ChatOptions chat_options_of(const coppice_chat_options* options) {
  if (options == nullptr) return {};
  const coppice_chat_options given = read_struct(options, "options");
  ChatOptions own;
  own.tools = text_of(given.tools);
  own.values = text_of(given.values);
  own.add_generation_prompt = read_flag("add_generation_prompt", given.add_generation_prompt);
  own.continue_final_message = read_flag("continue_final_message", given.continue_final_message);
  return own;
}

}  // namespace

namespace coppice::c {

template <>
coppice_chat_options usual() noexcept {
  const ChatOptions usual;
  coppice_chat_options options{};
  options.add_generation_prompt = usual.add_generation_prompt;
  options.continue_final_message = usual.continue_final_message;
  return options;
}

}  // namespace coppice::c

void coppice_chat_options_init(coppice_chat_options* options, size_t size) {
  init_struct(options, size);
}

coppice_status coppice_chat_of_model(const char* model, const char* template_name,
                                     coppice_chat** chat) {
  return guarded([&] {
    need(model, "model");
    need(chat, "chat");
    *chat = chat_handle_of(Chat::of(model, text_of(template_name)));
  });
}

coppice_status coppice_chat_of_source(const char* jinja, const char* model, coppice_chat** chat) {
  return guarded([&] {
    need(jinja, "jinja");
    need(model, "model");
    need(chat, "chat");
    *chat = chat_handle_of(Chat::from_source(jinja, model));
  });
}

coppice_status coppice_chat_tokens(const coppice_chat* chat, const coppice_engine* engine,
                                   const char* messages, const coppice_chat_options* options,
                                   int32_t** tokens, size_t* count) {
  return guarded([&] {
    need(chat, "chat");
    need(engine, "engine");
    need(messages, "messages");
    need(tokens, "tokens");
    need(count, "count");
    const std::vector<TokenId> ids =
        chat->chat.tokens(engine->engine, messages, chat_options_of(options));
    *tokens = handed_over(std::span(ids));
    *count = ids.size();
  });
}

coppice_status coppice_chat_text(const coppice_chat* chat, const char* messages,
                                 const coppice_chat_options* options, char** text, size_t* bytes) {
  return guarded([&] {
    need(chat, "chat");
    need(messages, "messages");
    need(text, "text");
    const std::string own = chat->chat.text(messages, chat_options_of(options));
    *text = handed_over(std::span(own));
    if (bytes != nullptr) *bytes = own.size();
  });
}

int coppice_chat_takes(const coppice_chat* chat, const char* name) {
  return name != nullptr && chat->chat.takes(name);
}

const char* coppice_chat_source(const coppice_chat* chat) { return chat->source.c_str(); }

void coppice_chat_free(coppice_chat* chat) { delete chat; }

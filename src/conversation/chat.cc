#include "chat.h"

#include <utility>

#include "base/error.h"
#include "chat/json.h"
#include "chat/model_template.h"
#include "conversation/messages.h"
#include "conversation/tokens.h"
#include "engine/open_sequence.h"
#include "models/config.h"
#include "models/settings/template_settings.h"
#include "models/settings/tokenizer_settings.h"

namespace coppice {

struct __attribute__((visibility("hidden"))) Chat::Impl {
  std::string source;
  chat::ModelTemplate form;

  Impl(std::string jinja, const std::string& where,
       const std::vector<std::pair<std::string, std::string>>& tokens)
      : source(std::move(jinja)), form(source, where, tokens) {}

  chat::Text render(std::string_view messages, const ChatOptions& options) const {
    const conversation::Names names = names_of(options);
    std::vector<chat::Value> said =
        conversation::read_messages(chat::parse_json(messages, "messages", true), "messages");
    if (options.continue_final_message) {
      return conversation::text_to_continue(&form, std::move(said), names,
                                            "continue_final_message");
    }
    return form.render(chat::Value::list(std::move(said)), options.add_generation_prompt, names);
  }

 private:
  // The first of a name counts.
  conversation::Names names_of(const ChatOptions& options) const {
    conversation::Names names;
    if (!options.tools.empty()) {
      const chat::Value tools = chat::parse_json(options.tools, "tools", true);
      if (!tools.is_list()) {
        throw_usage("tools: no list; give a JSON list of tools, as OpenAI's API has them");
      }
      if (!form.reads("tools")) {
        throw_usage(
            "tools: the model's chat template knows of none; leave them out, or use a model whose "
            "template does");
      }
      names.emplace_back("tools", tools);
    }
    if (options.values.empty()) return names;
    const chat::Value values = chat::parse_json(options.values, "values", true);
    if (!values.is_dict()) throw_usage("values: no object; give a JSON object of names");
    for (const auto& [name, value] : values.as_dict().items) {
      const std::string text = name.text().bytes();
      if (text == "messages" || text == "add_generation_prompt" || text == "tools") {
        throw_usage(cat("values: ", text, " is given by other options; leave it out"));
      }
      names.emplace_back(text, value);
    }
    return names;
  }
};

Chat::Chat(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Chat Chat::of(const std::filesystem::path& model, std::string_view template_name) {
  return in_words("chat", [&] {
    static_cast<void>(read_config(model));  // says what it is if it is no model
    TemplateSettings found = read_template_settings(model, std::string(template_name));
    return Chat(
        std::make_shared<const Impl>(std::move(found.source), found.where, found.special_tokens));
  });
}

Chat Chat::from_source(std::string_view jinja, const std::filesystem::path& model) {
  return in_words("chat", [&] {
    return Chat(std::make_shared<const Impl>(std::string(jinja), "chat template",
                                             read_tokenizer_settings(model).named));
  });
}

std::vector<TokenId> Chat::tokens(const Engine& engine, std::string_view messages,
                                  const ChatOptions& options) const {
  return in_words("chat", [&] {
    return conversation::tokens_of(engine, impl_->render(messages, options), false, false);
  });
}

std::string Chat::text(std::string_view messages, const ChatOptions& options) const {
  return in_words("chat", [&] { return impl_->render(messages, options).bytes(); });
}

bool Chat::takes(std::string_view name) const { return impl_->form.reads(name); }
std::string_view Chat::source() const { return impl_->source; }

}  // namespace coppice

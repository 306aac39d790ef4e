// A model's chat template: messages to the text that the model was trained on.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "chat/text.h"
#include "chat/value.h"

namespace coppice::chat {

/// The Jinja of published chat templates, in a sandbox: nothing outside the conversation is
/// reached, and steps, text, nesting and recursion are bounded. The settings and functions are
/// those of Hugging Face transformers.
class ChatTemplate {
 public:
  /// `name` is for messages. Throws Error(failure): not UTF-8, larger than 1 MiB, or no template.
  static ChatTemplate parse(std::string_view source, const std::string& name);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// `context` is a mapping of the names that the template reads: messages, tools, bos_token,
  /// eos_token, add_generation_prompt and whatever else. Text in it that is marked foreign stays
  /// so in the result. `now` is for templates that write the date. Throws Error(failure), in one
  /// line: what the template itself refuses, what it computes wrongly, and what takes too much.
  Text render(const Value& context, std::time_t now) const;
  /// Whether an expression of it reads such a name of the context.
  bool reads(std::string_view name) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::chat

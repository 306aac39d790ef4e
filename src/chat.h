// Conversations as a model reads them: its chat template, in the tokens of an engine.
//
//   #include <chat.h>
//   #include <iostream>
//
//   int main() {
//     coppice::EngineOptions options;
//     options.target = "Qwen3-8B";
//     auto engine = coppice::Engine::load(options);
//     const auto chat = coppice::Chat::of(options.target);
//     const auto tokens = chat.tokens(engine, R"([{"role": "user", "content": "Hello"}])");
//     std::cout << engine.generate(tokens, {}).text << '\n';
//   }
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/api.h"
#include "base/token_id.h"
#include "coppice.h"

namespace coppice {

/// What a template is told beside the messages.
struct ChatOptions {
  std::string tools;   ///< a JSON list of tools, as in OpenAI's API; empty: none
  std::string values;  ///< a JSON object of names for the template, such as enable_thinking
  bool add_generation_prompt = true;  ///< the text ends where an answer begins
  /// The text ends with the last message, an assistant's, which the model is to go on with. Nothing
  /// is added to it, whatever add_generation_prompt says.
  bool continue_final_message = false;
};

/// A model's chat template: the Jinja of Hugging Face transformers in a sandbox
/// (src/chat/README.md). Copies share it, and any thread may use it.
///
/// `messages` is a JSON list as in OpenAI's API; a content may be a text or a list of parts. Text
/// of messages, tools and values is foreign: it never becomes a special token, however it is spelt.
/// But what an assistant's message spells is taken for what the model wrote, special tokens among
/// it.
class COPPICE_API Chat {
 public:
  /// The template of a model's folder or GGUF file; of those that have names, the one of this name.
  /// Throws Error(failure) if there is none.
  static Chat of(const std::filesystem::path& model, std::string_view template_name = {});
  /// A template of one's own, with the special tokens of a model. Throws Error(failure) for a text
  /// that is no template.
  static Chat from_source(std::string_view jinja, const std::filesystem::path& model);

  /// The conversation in the engine's tokens, for Request::tokens. Throws Error(usage) for messages
  /// or options that are not as above, and for a text that by its bytes is beyond the context;
  /// Error(failure) for what the template refuses, in its own words.
  std::vector<TokenId> tokens(const Engine& engine, std::string_view messages,
                              const ChatOptions& options = {}) const;
  /// The same as text.
  std::string text(std::string_view messages, const ChatOptions& options = {}) const;

  /// Whether the template reads `tools`.
  bool takes_tools() const { return takes("tools"); }
  /// Whether the template reads such a name.
  bool takes(std::string_view name) const;
  std::string_view source() const;

  struct Impl;

 private:
  explicit Chat(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace coppice

// The chat template of a model folder, and what it needs of the folder's other files.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "chat/chat_template.h"

namespace coppice::chat {

/// One message of {"role": ..., "content": ...}. Its text is foreign.
Value message(const std::string& role, const std::string& content);

class ModelTemplate {
 public:
  /// Reads DIR/chat_template.jinja, else chat_template in DIR/tokenizer_config.json: a text, or a
  /// list of named ones, of which `name` is taken (empty: "default", or the only one). Throws
  /// Error(failure) if there is none: a template is never guessed.
  static ModelTemplate load(const std::filesystem::path& dir, const std::string& name = "");

  /// The messages, a list as message() makes them or as parse_json() reads them, as the model wants
  /// to read them. `more`: names that this template knows, such as enable_thinking.
  Text render(const Value& messages, bool add_generation_prompt,
              const std::vector<std::pair<std::string, Value>>& more = {}) const;

 private:
  explicit ModelTemplate(ChatTemplate parsed) : template_(std::move(parsed)) {}
  ChatTemplate template_;
  std::vector<std::pair<Value, Value>> special_tokens_;  ///< bos_token and the like
};

}  // namespace coppice::chat

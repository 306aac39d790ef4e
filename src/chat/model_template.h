// A model's chat template with the special tokens that it may write.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/chat_template.h"

namespace coppice::chat {

/// One message of {"role": ..., "content": ...}. Its text is foreign.
Value message(const std::string& role, const std::string& content);

class ModelTemplate {
 public:
  /// `where` names the template in messages; `tokens`: "bos_token" and the like, by name. Throws
  /// Error(failure) for a source that is no template.
  ModelTemplate(std::string_view source, const std::string& where,
                const std::vector<std::pair<std::string, std::string>>& tokens);

  /// The messages, a list as message() makes them or as parse_json() reads them, as the model wants
  /// to read them. `more`: names that this template knows, such as enable_thinking.
  Text render(const Value& messages, bool add_generation_prompt,
              const std::vector<std::pair<std::string, Value>>& more = {}) const;

  bool reads(std::string_view name) const { return template_.reads(name); }

 private:
  ChatTemplate template_;
  std::vector<std::pair<Value, Value>> special_tokens_;  ///< bos_token and the like
};

}  // namespace coppice::chat

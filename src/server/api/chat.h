// POST /v1/chat/completions, and what the APIs that are translated to it take from it.
#pragma once

#include <functional>
#include <string>

#include "server/api/json.h"
#include "server/api/writer.h"
#include "server/backend.h"

namespace coppice::server {

/// How an answer leaves: as chat completions have it, or translated.
struct ChatForm {
  std::function<std::string(const Json& chunk)> chunk;  ///< events of a stream
  std::function<std::string()> close;                   ///< a stream's last events
  std::function<Json(const Json& answer)> whole;
  std::function<std::string(int status, const std::string& message)> failed;
  bool tells_prompt_first = false;  ///< a stream's first chunk has the prompt's tokens as usage
};
ChatForm chat_form();

/// `request` is a chat completion's. Throws ApiError, and Error(usage) of the engine.
TextsJob read_chat(const Json& request, Backend& backend, const ApiDefaults& defaults,
                   ChatForm form = chat_form());

/// The prompt's tokens alone, for counting.
std::vector<TokenId> read_chat_prompt(const Json& request, Backend& backend,
                                      const ApiDefaults& defaults);

}  // namespace coppice::server

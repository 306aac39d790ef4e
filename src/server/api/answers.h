// Parts of answers that several APIs share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coppice.h"
#include "server/api/json.h"
#include "server/backend.h"
#include "server/http/exchange.h"

namespace coppice::server {

/// What every object of an answer says of itself.
struct AnswerHead {
  std::string id;
  std::int64_t created = 0;  ///< seconds since 1970
  std::string model, fingerprint;
};
AnswerHead new_head(const char* prefix, const std::string& model, const std::string& fingerprint);
/// "chatcmpl-" and 24 letters and digits that nobody guesses.
std::string new_id(const char* prefix);

/// Tokens of a request, over all its texts. A prompt counts once, however many samples it has.
struct Usage {
  std::int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;

  void add(const Outcome& outcome);
  Json json() const;
};

/// "stop" or "length".
const char* finish_reason(FinishReason reason);

/// Speed and speculation of one text, by llama.cpp's names.
Json timings(const Generation& text);
/// What only coppice has: steps, accepted length, settings as used.
Json statistics(const Generation& text);

/// A judged tree, for drawing. accepted_length counts the bonus token.
Json tree_json(const JudgedTree& tree, const Backend& backend);

/// The body of an error, as OpenAI's API words it.
Json error_json(int status, const std::string& message, const std::string& param = {},
                const std::string& code = {});
/// The status of what an engine threw: 400 for a wrong request, else 500.
int status_of(const std::exception_ptr& error, std::string& message);

/// One event of a stream.
std::string event(const Json& json);
inline constexpr std::string_view last_event = "data: [DONE]\n\n";

/// A token's text for answers, where U+FFFD stands for what is no character by itself.
std::string shown(const TokenText& token);

}  // namespace coppice::server

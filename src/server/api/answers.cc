#include "server/api/answers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <new>
#include <random>

#include "base/error.h"
#include "base/utf8.h"

namespace coppice::server {
namespace {

double per_second(double count, double seconds) { return seconds > 0.0 ? count / seconds : 0.0; }

}  // namespace

std::string new_id(const char* prefix) {
  static std::mutex mutex;
  static std::random_device random;
  constexpr std::string_view letters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::uniform_int_distribution<std::size_t> place(0, letters.size() - 1);
  std::string id = prefix;
  const std::lock_guard lock(mutex);
  for (int i = 0; i < 24; ++i) id += letters[place(random)];
  return id;
}

AnswerHead new_head(const char* prefix, const std::string& model, const std::string& fingerprint) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {new_id(prefix), std::chrono::duration_cast<std::chrono::seconds>(now).count(), model,
          fingerprint};
}

void Usage::add(const Outcome& outcome) {
  std::int32_t prompt_tokens = 0, cached_tokens = 0;
  for (const Generation& text : outcome.samples) {
    prompt_tokens = std::max(prompt_tokens, text.statistics.prompt_tokens);
    // Of the first sample: later ones find what it has computed.
    if (&text == &outcome.samples.front()) cached_tokens = text.statistics.cached_tokens;
    completion += static_cast<std::int64_t>(text.tokens.size());
  }
  prompt += prompt_tokens;
  cached += cached_tokens;
}

Json Usage::json() const {
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

const char* finish_reason(FinishReason reason) {
  return reason == FinishReason::eos || reason == FinishReason::stop ? "stop" : "length";
}

Json timings(const Generation& text) {
  const Statistics& s = text.statistics;
  const auto prompt = static_cast<double>(s.prompt_tokens - s.cached_tokens);
  const auto steps = static_cast<double>(s.steps);
  return {{"cache_n", s.cached_tokens},
          {"prompt_n", s.prompt_tokens - s.cached_tokens},
          {"prompt_ms", s.seconds.prefill * 1e3},
          {"prompt_per_second", per_second(prompt, s.seconds.prefill)},
          {"predicted_n", text.tokens.size()},
          {"predicted_ms", s.decode_seconds() * 1e3},
          {"predicted_per_second", s.decode_tokens_per_second},
          {"draft_n", std::llround(s.tree_size_mean * steps)},
          // A step keeps what was accepted and a token of the target's own.
          {"draft_n_accepted", std::max(0LL, std::llround((s.accepted_length - 1.0) * steps))}};
}

Json statistics(const Generation& text) {
  const Statistics& s = text.statistics;
  Json json = {{"steps", s.steps},
               {"accepted_length", s.accepted_length},
               {"tree_size_mean", s.tree_size_mean},
               {"tokens_per_second", s.decode_tokens_per_second},
               {"queue_seconds", s.queue_seconds},
               {"batch_mean", s.batch_mean},
               {"preemptions", s.preemptions},
               {"policy", text.used.policy},
               {"lookup", name_of(text.used.lookup)},
               {"acceptance", name_of(text.used.acceptance)},
               {"finish_reason", name_of(text.finish_reason)}};
  json["seed"] = text.used.temperature > 0.0 ? Json(text.used.seed) : Json();
  return json;
}

Json tree_json(const JudgedTree& tree, const Backend& backend) {
  Json nodes = Json::array();
  std::int32_t accepted = 0;
  for (const TreeNode& node : tree.nodes) {
    nodes.push_back({{"token", node.token},
                     {"text", shown(backend.token(node.token))},
                     {"parent", node.parent},
                     {"depth", node.depth},
                     {"draft_prob", node.draft_prob},
                     {"target_prob", node.target_prob},
                     {"accepted", node.accepted},
                     {"looked_up", node.looked_up}});
    accepted += node.accepted ? 1 : 0;  // the root for the bonus token
  }
  return {{"nodes", std::move(nodes)},
          {"bonus", {{"token", tree.bonus}, {"text", shown(backend.token(tree.bonus))}}},
          {"accepted_length", accepted}};
}

Json error_json(int status, const std::string& message, const std::string& param,
                const std::string& code) {
  const char* type = "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 403) type = "permission_error";
  if (status == 404) type = "not_found_error";
  if (status == 429) type = "rate_limit_error";
  if (status >= 500) type = "server_error";
  if (status == 503) type = "unavailable_error";
  return {{"error",
           {{"message", message},
            {"type", type},
            {"param", text_or_null(param)},
            {"code", text_or_null(code)}}}};
}

int status_of(const std::exception_ptr& error, std::string& message) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    message = thrown.what();
    return thrown.kind() == ErrorKind::usage ? 400 : 500;
  } catch (const std::bad_alloc&) {
    message = "the host's memory ran out; free memory, or ask for less at once";
  } catch (const std::exception& thrown) {
    message = thrown.what();
  } catch (...) {
    message = "an unknown failure";
  }
  return 500;
}

std::string event(const Json& json) { return "data: " + to_text(json) + "\n\n"; }

std::string shown(const TokenText& token) { return to_valid_utf8(token.bytes); }

}  // namespace coppice::server

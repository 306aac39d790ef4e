#include "cli/generation_text.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;

const std::string none = name_of(Plain{});

}  // namespace

nlohmann::ordered_json to_json(const Generation& generation, bool with_logprobs) {
  const Statistics& s = generation.statistics;
  const Used& used = generation.used;
  Json json;
  json["text"] = generation.text;
  json["tokens"] = generation.tokens;
  json["new_tokens"] = generation.tokens.size();
  json["prompt_tokens"] = s.prompt_tokens;
  json["finish_reason"] = name_of(generation.finish_reason);
  json["prefill_tokens"] = s.prefill_tokens;
  json["steps"] = s.steps;
  json["accepted_length"] = s.accepted_length;
  json["emitted_per_step"] = s.emitted_per_step;
  if (used.tree_size > 0 || used.policy == none) {
    json["tree_size"] = used.tree_size;
  } else {
    json["tree_size"] = "auto";
  }
  json["tree_size_mean"] = s.tree_size_mean;
  json["draft_passes"] = s.draft_passes;
  json["batch_mean"] = s.batch_mean;
  json["queue_seconds"] = s.queue_seconds;
  json["preemptions"] = s.preemptions;
  json["seconds"] = {{"load", s.seconds.load},         {"prefill", s.seconds.prefill},
                     {"draft", s.seconds.draft},       {"verify", s.seconds.verify},
                     {"sampling", s.seconds.sampling}, {"other", s.seconds.other},
                     {"total", s.seconds.total}};
  json["tokens_per_second"] = s.tokens_per_second;
  json["decode_tokens_per_second"] = s.decode_tokens_per_second;
  if (with_logprobs) {
    Json list = Json::array();
    for (const TokenLogprob& entry : generation.logprobs) {
      Json top = Json::array();
      for (const auto& [token, logprob] : entry.top) {
        top.push_back({{"token", token}, {"logprob", logprob}});
      }
      list.push_back({{"token", entry.token}, {"logprob", entry.logprob}, {"top", top}});
    }
    json["logprobs"] = std::move(list);
  }
  json["policy"] = used.policy;
  if (!used.planned_for.empty()) json["planned_for"] = used.planned_for;
  json["acceptance"] = name_of(used.acceptance);
  json["temperature"] = used.temperature;
  json["draft_temperature"] = used.draft_temperature;
  json["seed"] = used.seed;
  json["device"] = used.device;
  json["dtype"] = used.dtype;
  json["kv_dtype"] = used.kv_dtype;
  json["version"] = version();
  return json;
}

std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_table(const Generation& generation) {
  const Statistics& s = generation.statistics;
  const Used& used = generation.used;
  std::string text;
  char line[200];
  const auto add = [&](const char* name, const char* format, auto... values) {
    char value[160];
    std::snprintf(value, sizeof value, format, values...);
    std::snprintf(line, sizeof line, "  %-16s %s\n", name, value);
    text += line;
  };
  add("tokens", "%zu new after %d of prompt, ended by %s", generation.tokens.size(),
      s.prompt_tokens, name_of(generation.finish_reason));
  if (s.steps > 0) {
    add("speed", "%.1f tokens/s, %.1f without prefill", s.tokens_per_second,
        s.decode_tokens_per_second);
    add("accepted length", "%.2f tokens per target pass, the bonus token included (%lld passes)",
        s.accepted_length, static_cast<long long>(s.steps));
  } else {
    add("speed", "%.1f tokens/s, all prefill", s.tokens_per_second);
  }
  if (used.policy != none) {
    char requested[16] = "auto";
    if (used.tree_size > 0) std::snprintf(requested, sizeof requested, "%d", used.tree_size);
    add("tree size", "%.1f on average (%s), %lld draft passes", s.tree_size_mean, requested,
        static_cast<long long>(s.draft_passes));
  }
  add("seconds", "load %.3f, prefill %.3f, draft %.3f, verify %.3f, sampling %.3f, other %.3f",
      s.seconds.load, s.seconds.prefill, s.seconds.draft, s.seconds.verify, s.seconds.sampling,
      s.seconds.other);
  if (!used.planned_for.empty()) add("tree planned for", "%s", used.planned_for.c_str());
  const std::string kv = used.kv_dtype == used.dtype ? "" : ", KV " + used.kv_dtype;
  add("as used", "%s, %s, temperature %g (draft %g), seed %llu, %s %s%s", used.policy.c_str(),
      name_of(used.acceptance), used.temperature, used.draft_temperature,
      static_cast<unsigned long long>(used.seed), used.device.c_str(), used.dtype.c_str(),
      kv.c_str());
  return text;
}

}  // namespace coppice::cli

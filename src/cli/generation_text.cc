#include "cli/generation_text.h"

#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/access.h"
#include "engine/layer_plan.h"

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;

const std::string none = name_of(Plain{});

/// "text", or "bytes" if the token is no text of its own; a special token by its name.
Json token_json(const Tokenizer* tokenizer, TokenId token, double logprob) {
  Json json = {{"token", token}};
  if (tokenizer != nullptr) {
    const std::string bytes = tokenizer->bytes_of(token);
    if (bytes.empty() && !tokenizer->piece(token).empty()) {
      json["text"] = tokenizer->piece(token);
      json["special"] = true;
    } else if (is_valid_utf8(bytes)) {
      json["text"] = bytes;
    } else {
      Json list = Json::array();
      for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
      json["bytes"] = std::move(list);
    }
  }
  json["logprob"] = logprob;
  return json;
}

Json logprobs_json(Engine& engine, const std::vector<TokenLogprob>& logprobs) {
  const Tokenizer* tokenizer = nullptr;
  if (engine.has_tokenizer()) tokenizer = &EngineAccess(engine).tokenizer();
  Json list = Json::array();
  for (const TokenLogprob& entry : logprobs) {
    Json top = Json::array();
    for (const auto& [token, logprob] : entry.top) {
      top.push_back(token_json(tokenizer, token, logprob));
    }
    list.push_back(token_json(tokenizer, entry.token, entry.logprob));
    list.back()["top"] = std::move(top);
  }
  return list;
}

}  // namespace

nlohmann::ordered_json to_json(const LayerPlacement& placement) {
  return {{"layers", placement.layers},
          {"resident", placement.resident},
          {"streamed_bytes", placement.streamed_bytes},
          {"streamed_from", placement.streamed_from}};
}

nlohmann::ordered_json to_json(Engine& engine, const Generation& generation, bool with_logprobs) {
  const Statistics& s = generation.statistics;
  const Used& used = generation.used;
  Json json;
  json["text"] = generation.text;
  json["tokens"] = generation.tokens;
  json["new_tokens"] = generation.tokens.size();
  json["prompt_tokens"] = s.prompt_tokens;
  json["cached_tokens"] = s.cached_tokens;
  json["cached_draft_tokens"] = s.cached_draft_tokens;
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
  if (used.lookup != Lookup::none || used.constrained) {
    json["looked_up"] = s.looked_up;
    json["looked_up_accepted"] = s.looked_up_accepted;
  }
  json["draft_passes"] = s.draft_passes;
  json["batch_mean"] = s.batch_mean;
  json["queue_seconds"] = s.queue_seconds;
  json["preemptions"] = s.preemptions;
  json["seconds"] = {{"load", s.seconds.load},         {"prefill", s.seconds.prefill},
                     {"draft", s.seconds.draft},       {"verify", s.seconds.verify},
                     {"sampling", s.seconds.sampling}, {"other", s.seconds.other},
                     {"total", s.seconds.total}};
  json["preparing_seconds"] = s.preparing_seconds;
  json["tokens_per_second"] = s.tokens_per_second;
  json["decode_tokens_per_second"] = s.decode_tokens_per_second;
  if (with_logprobs) json["logprobs"] = logprobs_json(engine, generation.logprobs);
  json["policy"] = used.policy;
  json["lookup"] = name_of(used.lookup);
  if (used.constrained) json["constrained"] = true;
  if (!used.planned_for.empty()) json["planned_for"] = used.planned_for;
  json["acceptance"] = name_of(used.acceptance);
  json["temperature"] = used.temperature;
  if (used.presence_penalty != 0.0) json["presence_penalty"] = used.presence_penalty;
  if (used.frequency_penalty != 0.0) json["frequency_penalty"] = used.frequency_penalty;
  if (used.biased_tokens > 0) json["biased_tokens"] = used.biased_tokens;
  if (used.min_new_tokens > 0) json["min_new_tokens"] = used.min_new_tokens;
  if (used.policy != none) json["draft_temperature"] = used.draft_temperature;
  json["seed"] = used.temperature > 0.0 ? Json(used.seed) : Json();  // else no text follows it
  json["device"] = used.device;
  json["dtype"] = used.dtype;
  json["kv_dtype"] = used.kv_dtype;
  if (!used.target_weights.empty()) json["target_weights"] = used.target_weights;
  if (!used.draft_weights.empty()) json["draft_weights"] = used.draft_weights;
  if (used.target_layers.streamed_bytes > 0) json["target_layers"] = to_json(used.target_layers);
  if (used.draft_layers.streamed_bytes > 0) json["draft_layers"] = to_json(used.draft_layers);
  if (used.target_devices > 1) json["target_devices"] = used.target_devices;
  if (used.draft_devices > 1) json["draft_devices"] = used.draft_devices;
  json["version"] = version();
  return json;
}

std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string table_line(const char* name, const std::string& value) {
  std::string text = cat("  ", name);
  text.resize(19, ' ');
  return text + value + "\n";
}

std::string fixed(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return text;
}

std::string accepted_of_texts(double length) {
  return cat(fixed(length, 2), " tokens per text and target pass, the bonus token included");
}

std::string as_used(const Used& used) {
  const bool plain = used.policy == none;
  // Nothing is accepted or drafted then, but noise may be that of coupled texts.
  const bool names_rule = !plain || used.acceptance == Acceptance::coupled;
  return cat(used.policy, used.lookup == Lookup::none ? "" : cat(", lookup ", name_of(used.lookup)),
             used.constrained ? ", constrained" : "",
             names_rule ? cat(", ", name_of(used.acceptance)) : "", ", temperature ",
             used.temperature, plain ? "" : cat(" (draft ", used.draft_temperature, ")"),
             used.temperature > 0.0 ? cat(", seed ", used.seed) : "", ", ", machine_of(used));
}

std::string machine_of(const Used& used) {
  return cat(used.device, " ", used.dtype,
             used.kv_dtype == used.dtype ? "" : ", KV " + used.kv_dtype,
             used.target_weights.empty() ? "" : ", weights " + used.target_weights,
             used.draft_weights.empty() ? "" : ", the draft's " + used.draft_weights);
}

std::string id_list(std::span<const TokenId> tokens) {
  std::string ids;
  for (const TokenId token : tokens) ids += (ids.empty() ? "" : ",") + std::to_string(token);
  return ids;
}

std::string full_context(Engine& engine) {
  const std::int32_t here = engine.context_length(),
                     most = EngineAccess(engine).target().model->config().context_length;
  return cat("the context of ", here, " tokens is full",
             here < most ? cat("; --kv-tokens makes room (the model allows ", most, ")") : "");
}

std::string cut_short(const Generation& text) {
  if (!text.used.constrained || text.finish_reason != FinishReason::length) return "";
  return cat("the text was cut off after ", text.tokens.size(),
             text.tokens.size() == 1 ? " token" : " tokens",
             ", before its constraint ended it; raise --max-new-tokens");
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory; use a smaller --parallel, --kv-tokens or --tree-size";
  } catch (const std::exception& known) {
    return known.what();
  }
}

std::string to_table(const Generation& generation) {
  const Statistics& s = generation.statistics;
  const Used& used = generation.used;
  std::string text;
  const auto add = [&](const char* name, const char* format, auto... values) {
    char value[160];
    std::snprintf(value, sizeof value, format, values...);
    text += table_line(name, value);
  };
  const std::string cached = s.cached_tokens > 0 ? cat(" (", s.cached_tokens, " cached)") : "";
  add("tokens", "%zu new after %d of prompt%s, ended by %s", generation.tokens.size(),
      s.prompt_tokens, cached.c_str(), name_of(generation.finish_reason));
  if (s.steps > 0) {
    add("speed", "%.1f tokens/s, %.1f without prefill", s.tokens_per_second,
        s.decode_tokens_per_second);
    add("accepted length", "%.2f tokens per target pass, the bonus token included (%lld passes)",
        s.accepted_length, static_cast<long long>(s.steps));
  } else {
    add("speed", "%.1f tokens/s, all prefill", s.tokens_per_second);
  }
  if (used.policy != none) {
    const std::string requested = used.tree_size > 0 ? cat(used.tree_size) : "auto";
    add("tree size", "%.1f on average (%s), %lld draft passes", s.tree_size_mean, requested.c_str(),
        static_cast<long long>(s.draft_passes));
  }
  add("seconds", "load %.3f, prefill %.3f, draft %.3f, verify %.3f, sampling %.3f, other %.3f",
      s.seconds.load, s.seconds.prefill, s.seconds.draft, s.seconds.verify, s.seconds.sampling,
      s.seconds.other);
  if (!used.planned_for.empty()) text += table_line("tree planned for", used.planned_for);
  if (const std::string layers = describe(used.target_layers); !layers.empty()) {
    text += table_line("target", layers);
  }
  if (const std::string layers = describe(used.draft_layers); !layers.empty()) {
    text += table_line("draft", layers);
  }
  if (used.target_devices > 1) {
    text += table_line("target", cat("split over ", used.target_devices, " devices"));
  }
  if (used.draft_devices > 1) {
    text += table_line("draft", cat("split over ", used.draft_devices, " devices"));
  }
  return text + table_line("as used", as_used(used));
}

}  // namespace coppice::cli

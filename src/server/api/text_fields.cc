#include "server/api/text_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <random>
#include <utility>

#include "base/error.h"
#include "engine/joined_names.h"
#include "engine/policy_options.h"
#include "server/api/api_error.h"

namespace coppice::server {
namespace {

using constraints::ConstraintSource;

constexpr std::int64_t most_samples = 128;
constexpr std::size_t most_stops = 16;

template <typename Value>
Value named(const std::string& path, const std::string& text, std::initializer_list<Value> all) {
  for (const Value value : all) {
    if (text == name_of(value)) return value;
  }
  throw bad_field(path, cat(quote(text), " is none of ", joined_names(all)));
}

template <typename Number, typename Value>
void set(const std::optional<Number>& given, Value& value) {
  if (given) value = static_cast<Value>(*given);
}

void read_sampling(Fields& fields, SamplingParams& params) {
  set(fields.number("temperature", 0.0, 100.0), params.temperature);
  if (const auto top_p = fields.number("top_p", 0.0, 1.0)) {
    // OpenAI's 0 is the most probable token alone, which has more than this in any vocabulary.
    constexpr double least = 1e-7;
    params.top_p = std::max(*top_p, least);
  }
  if (const auto top_k = fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max())) {
    params.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(*top_k, 0));  // vLLM: -1 is off
  }
  set(fields.number("min_p", 0.0, 1.0), params.min_p);
  set(fields.number("repetition_penalty", 0.0), params.repetition_penalty);
  set(fields.number("repeat_penalty", 0.0), params.repetition_penalty);
  set(fields.number("presence_penalty", -2.0, 2.0), params.presence_penalty);
  set(fields.number("frequency_penalty", -2.0, 2.0), params.frequency_penalty);
}

std::vector<std::string> read_stop(Fields& fields, std::vector<std::string> usual) {
  const Json* const stop = fields.find("stop");
  if (stop == nullptr) return usual;
  if (stop->is_string()) return {stop->get<std::string>()};
  if (!stop->is_array() || stop->size() > most_stops) {
    throw bad_field("stop", cat("give a string, or a list of up to ", most_stops));
  }
  std::vector<std::string> texts;
  for (const Json& text : *stop) {
    if (!text.is_string()) throw bad_field("stop", "give strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

// {"1234": -100}: biases by token id.
void read_logit_bias(Fields& fields, std::int64_t vocab_size, GenerateOptions& options) {
  const Json* const given = fields.object("logit_bias");
  if (given == nullptr) return;
  for (const auto& [name, bias] : given->items()) {
    std::int64_t token = -1;
    const auto end = name.data() + name.size();
    const auto [read, failure] = std::from_chars(name.data(), end, token);
    if (failure != std::errc() || read != end || token < 0 || token >= vocab_size) {
      throw bad_field("logit_bias", cat(quote(name), " is no token id"));
    }
    if (!bias.is_number() || std::abs(bias.get<double>()) > 100.0) {
      throw bad_field("logit_bias", "give numbers between -100 and 100");
    }
    options.logit_bias.emplace_back(static_cast<TokenId>(token), bias.get<double>());
  }
}

void read_stop_tokens(Fields& fields, std::int64_t vocab_size, GenerateOptions& options) {
  const Json* const given = fields.list("stop_token_ids");
  if (given == nullptr) return;
  for (const Json& id : *given) {
    const std::int64_t token = id.is_number_integer() ? id.get<std::int64_t>() : -1;
    if (token < 0 || token >= vocab_size) throw bad_field("stop_token_ids", "give token ids");
    options.stop_tokens.push_back(static_cast<TokenId>(token));
  }
}

// {"policy": ..., "size": ..., "acceptance": ..., "lookup": ..., "draft": ..., "trees": ...}
void read_speculation(Fields& fields, TextFields& text) {
  const Json* const given = fields.object("speculation");
  if (given == nullptr) return;
  Fields own(*given, "speculation.");
  const std::optional<std::string> name = own.text("policy");
  const std::optional<std::int64_t> size = own.integer("size", 1, 2048);
  if (name || size) {
    PolicyOptions policy;
    policy.policy = Policy::dyspec;
    if (name) {
      policy.policy =
          named(own.path("policy"), *name,
                {Policy::dyspec, Policy::dyspec_threshold, Policy::chain, Policy::specinfer,
                 Policy::sequoia, Policy::expand_rerank, Policy::none});
    }
    set(size, policy.tree_size);
    try {
      text.options.speculation = speculation_of(policy);
    } catch (const Error& error) {
      throw bad_field("speculation", error.what());
    }
  }
  if (const auto acceptance = own.text("acceptance")) {
    text.options.acceptance =
        named(own.path("acceptance"), *acceptance,
              {Acceptance::automatic, Acceptance::rejection, Acceptance::coupled});
  }
  if (const auto lookup = own.text("lookup")) {
    text.options.lookup = named(own.path("lookup"), *lookup,
                                {Lookup::automatic, Lookup::none, Lookup::text, Lookup::engine});
  }
  set(own.boolean("draft"), text.options.use_draft);
  set(own.boolean("trees"), text.trees);
  own.refuse_others();
}

ConstraintSource schema_of(const std::string& path, const Json& schema) {
  if (!schema.is_object() && !schema.is_boolean()) throw bad_field(path, "give a JSON schema");
  return {ConstraintSource::Kind::json_schema, {to_text(schema)}};
}

void read_response_format(Fields& fields, std::optional<ConstraintSource>& constraint) {
  const Json* const format = fields.object("response_format");
  if (format == nullptr) return;
  Fields own(*format, "response_format.");
  const std::string type = own.text("type").value_or("");
  if (type == "json_object") {
    // llama.cpp's and older clients' form has the schema here.
    const Json* const schema = own.find("schema");
    constraint = schema != nullptr ? schema_of(own.path("schema"), *schema)
                                   : ConstraintSource{ConstraintSource::Kind::json, {}};
  } else if (type == "json_schema") {
    const Json* const wrapped = own.object("json_schema");
    if (wrapped == nullptr) throw bad_field(own.path("json_schema"), "it is missing");
    Fields inner(*wrapped, "response_format.json_schema.");
    inner.ignore({"name", "description", "strict"});
    const Json* const schema = inner.find("schema");
    if (schema == nullptr) throw bad_field(inner.path("schema"), "it is missing");
    constraint = schema_of(inner.path("schema"), *schema);
    inner.refuse_others();
  } else if (type != "text") {
    throw bad_field(own.path("type"), "use text, json_object or json_schema");
  }
  own.refuse_others();
}

// vLLM's structured_outputs, llama.cpp's grammar and json_schema.
void read_other_constraints(Fields& fields, std::optional<ConstraintSource>& constraint) {
  using Kind = ConstraintSource::Kind;
  std::string given;
  if (constraint) given = "response_format";
  const auto take = [&](const std::string& path, ConstraintSource source) {
    if (!given.empty()) throw bad_field(path, "a text has one constraint; leave out " + given);
    given = path;
    constraint = std::move(source);
  };
  const auto take_texts = [&](Fields& own, const char* name, Kind kind) {
    if (const auto text = own.text(name)) take(own.path(name), {kind, {*text}});
  };
  take_texts(fields, "grammar", Kind::grammar);
  if (const Json* const schema = fields.find("json_schema")) {
    take("json_schema", schema_of("json_schema", *schema));
  }
  const Json* const structured = fields.object("structured_outputs");
  if (structured == nullptr) return;
  Fields own(*structured, "structured_outputs.");
  take_texts(own, "grammar", Kind::grammar);
  take_texts(own, "regex", Kind::regex);
  if (const Json* const schema = own.find("json")) {
    take(own.path("json"), schema->is_string()
                               ? ConstraintSource{Kind::json_schema, {schema->get<std::string>()}}
                               : schema_of(own.path("json"), *schema));
  }
  if (own.boolean("json_object").value_or(false)) take(own.path("json_object"), {Kind::json, {}});
  if (const Json* const choices = own.list("choice")) {
    ConstraintSource source{Kind::choice, {}};
    for (const Json& choice : *choices) {
      if (!choice.is_string()) throw bad_field(own.path("choice"), "give strings");
      source.texts.push_back(choice.get<std::string>());
    }
    take(own.path("choice"), std::move(source));
  }
  own.refuse_others();
}

}  // namespace

std::uint64_t random_seed() {
  static std::mutex mutex;
  static std::mt19937_64 random{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return random() >> 11;  // a number that JavaScript holds exactly
}

void TextFields::set_most(std::int32_t tokens) {
  options.max_new_tokens = tokens;
  if (!says_least) options.min_new_tokens = std::min(options.min_new_tokens, tokens);
}

TextFields read_text_fields(Fields& fields, const GenerateOptions& defaults,
                            std::int64_t vocab_size) {
  TextFields text;
  text.options = defaults;
  GenerateOptions& options = text.options;
  read_sampling(fields, options.sampling);
  options.stop = read_stop(fields, options.stop);
  set(fields.boolean("ignore_eos"), options.ignore_eos);
  const auto least = fields.integer("min_tokens", 0, std::numeric_limits<std::int32_t>::max());
  text.says_least = least.has_value();
  set(least, options.min_new_tokens);
  read_logit_bias(fields, vocab_size, options);
  read_stop_tokens(fields, vocab_size, options);
  set(fields.integer("n", 1, most_samples), text.n);
  set(fields.boolean("stream"), text.stream);
  if (const Json* const stream_options = fields.object("stream_options")) {
    if (!text.stream) throw bad_field("stream_options", "it is for \"stream\": true");
    Fields own(*stream_options, "stream_options.");
    set(own.boolean("include_usage"), text.include_usage);
    own.ignore({"include_obfuscation"});
    own.refuse_others();
  }
  // A text of the same seed is the same text, which sizes that follow the clock would undo under
  // rejection.
  const auto seed = fields.integer("seed");
  options.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  if (seed && options.acceptance == Acceptance::automatic) {
    options.acceptance = Acceptance::coupled;
  }
  read_speculation(fields, text);
  read_response_format(fields, text.constraint);
  read_other_constraints(fields, text.constraint);
  if (text.constraint && options.ignore_eos) {
    throw bad_field("ignore_eos", "a constrained text ends where it is whole; leave one out");
  }
  fields.ignore({"user", "metadata", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention", "service_tier"});
  return text;
}

std::optional<std::int32_t> read_max_tokens(Fields& fields, std::int32_t least) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  std::optional<std::int64_t> count = fields.integer("max_completion_tokens", least, most);
  const std::optional<std::int64_t> older = fields.integer("max_tokens", least, most);
  if (!count) count = older;
  if (!count) return std::nullopt;
  return static_cast<std::int32_t>(*count);
}

void validate(const GenerateOptions& options) {
  try {
    options.validate();
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
}

}  // namespace coppice::server

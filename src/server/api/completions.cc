#include "server/api/completions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "server/api/answers.h"
#include "server/api/api_error.h"
#include "server/api/common.h"
#include "server/api/fields.h"
#include "server/api/text_fields.h"

namespace coppice::server {
namespace {

constexpr std::int32_t usual_max_tokens = 16;  // OpenAI's
constexpr std::size_t most_prompts = 256;

struct CompletionShape {
  AnswerHead head;
  bool echo = false, include_usage = false, stream = false;
  std::int32_t n = 1;
  std::optional<std::int32_t> logprobs;  ///< how many alternatives
  // With echo, by prompt:
  std::vector<std::string> prompts;
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;  ///< where logprobs are asked for
};

class CompletionWriter final : public AnswerWriter {
 public:
  CompletionWriter(CompletionShape shape, const Backend& backend)
      : shape_(std::move(shape)), backend_(backend) {}

  std::string piece(TextPiece& piece) override {
    const std::string echoed = echo(piece.choice);
    if (piece.text.empty() && piece.logprobs.empty()) return echoed;
    Json json = chunk();
    json["choices"].push_back(choice(piece.choice, piece.text, piece.logprobs));
    return echoed + event(json);
  }

  std::string tree(std::int32_t index, const JudgedTree& tree) override {
    const std::string echoed = echo(index);
    Json json = chunk();
    json["choices"].push_back(choice(index, "", {}));
    json["coppice"] = {{"tree", tree_json(tree, backend_)}};
    return echoed + event(json);
  }

  std::string ended(std::int32_t first_choice, Outcome& outcome) override {
    usage_.add(outcome);
    std::string events;
    for (std::size_t i = 0; i < outcome.samples.size(); ++i) {
      Generation& text = outcome.samples[i];
      const auto index = first_choice + static_cast<std::int32_t>(i);
      if (shape_.stream) {
        events += echo(index);
        Json json = chunk();
        json["choices"].push_back(choice(index, "", {}));
        json["choices"].back()["finish_reason"] = finish_reason(text.finish_reason);
        json["timings"] = timings(text);
        json["coppice"] = statistics(text);
        events += event(json);
      }
      texts_.emplace_back(index, std::move(text));
    }
    return events;
  }

  std::string close() override {
    std::string events;
    if (shape_.include_usage) {
      Json json = chunk();
      json["usage"] = usage_.json();
      events = event(json);
    }
    return events.append(last_event);
  }

  HttpAnswer whole() override {
    std::sort(texts_.begin(), texts_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    Json json = chunk();
    for (auto& [index, text] : texts_) {
      std::vector<TokenLogprob> logprobs;
      if (const auto* const of_prompt = prompt_logprobs(index)) logprobs = *of_prompt;
      std::move(text.logprobs.begin(), text.logprobs.end(), std::back_inserter(logprobs));
      json["choices"].push_back(choice(index, prompt(index) + text.text, logprobs));
      json["choices"].back()["finish_reason"] = finish_reason(text.finish_reason);
    }
    json["usage"] = usage_.json();
    if (!texts_.empty()) {
      json["timings"] = timings(texts_.front().second);
      json["coppice"] = statistics(texts_.front().second);
    }
    return {200, to_text(json)};
  }

  std::string failed(int status, const std::string& message) override {
    return event(error_json(status, message)).append(last_event);
  }

 private:
  Json chunk() const {
    return {{"id", shape_.head.id},
            {"object", "text_completion"},
            {"created", shape_.head.created},
            {"model", shape_.head.model},
            {"system_fingerprint", shape_.head.fingerprint},
            {"choices", Json::array()}};
  }

  std::string prompt(std::int32_t index) const {
    return shape_.echo ? shape_.prompts[static_cast<std::size_t>(index / shape_.n)] : "";
  }
  /// Null where they are not asked for.
  const std::vector<TokenLogprob>* prompt_logprobs(std::int32_t index) const {
    if (shape_.prompt_logprobs.empty()) return nullptr;
    return &shape_.prompt_logprobs[static_cast<std::size_t>(index / shape_.n)];
  }

  /// The event that comes before a text's first.
  std::string echo(std::int32_t index) {
    if (!shape_.echo || !begun_.insert(index).second) return "";
    const auto* const logprobs = prompt_logprobs(index);
    Json json = chunk();
    json["choices"].push_back(choice(
        index, prompt(index), logprobs != nullptr ? *logprobs : std::vector<TokenLogprob>()));
    return event(json);
  }

  Json choice(std::int32_t index, const std::string& text,
              const std::vector<TokenLogprob>& logprobs) {
    return {{"index", index},
            {"text", text},
            {"logprobs", shape_.logprobs ? logprobs_json(index, logprobs) : Json()},
            {"finish_reason", Json()}};
  }

  Json logprobs_json(std::int32_t index, const std::vector<TokenLogprob>& logprobs) {
    std::size_t& offset = offsets_[index];
    Json tokens = Json::array(), values = Json::array(), tops = Json::array(),
         places = Json::array();
    // Nothing stands before a prompt's first token.
    const auto* const of_prompt = offset == 0 ? prompt_logprobs(index) : nullptr;
    const bool begins = of_prompt != nullptr && !logprobs.empty();
    for (const TokenLogprob& entry : logprobs) {
      const std::string text = shown(backend_.token(entry.token));
      tokens.push_back(text);
      const bool first = begins && &entry == &logprobs.front();
      values.push_back(first ? Json() : Json(entry.logprob));
      places.push_back(offset);
      offset += text.size();
      Json top = Json::object();
      for (std::size_t i = 0;
           i < std::min(entry.top.size(), static_cast<std::size_t>(*shape_.logprobs)); ++i) {
        top[shown(backend_.token(entry.top[i].first))] = entry.top[i].second;
      }
      tops.push_back(first ? Json() : std::move(top));
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(places)}};
  }

  CompletionShape shape_;
  const Backend& backend_;
  Usage usage_;
  std::set<std::int32_t> begun_;
  std::map<std::int32_t, std::size_t> offsets_;  ///< bytes of a choice's tokens so far
  std::vector<std::pair<std::int32_t, Generation>> texts_;
};

// A text, token ids, or a list of either.
std::vector<std::vector<TokenId>> read_prompts(Fields& fields, const Backend& backend,
                                               bool add_special) {
  const Json* const prompt = fields.find("prompt");
  if (prompt == nullptr) throw ApiError(400, "prompt: it is missing", "prompt", "missing_field");
  const auto text_of = [&](const Json& text) {
    return backend.tokenize(text.get_ref<const std::string&>(), add_special);
  };
  if (prompt->is_string()) return {text_of(*prompt)};
  if (!prompt->is_array() || prompt->empty()) {
    throw bad_field("prompt", "give a string, token ids, or a list of them");
  }
  if (prompt->front().is_number()) return {token_ids("prompt", *prompt, backend)};
  if (prompt->size() > most_prompts) {
    throw bad_field("prompt", cat("a request has at most ", most_prompts));
  }
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& one : *prompt) {
    if (one.is_string()) {
      prompts.push_back(text_of(one));
    } else {
      prompts.push_back(token_ids("prompt", one, backend));
    }
  }
  return prompts;
}

}  // namespace

TextsJob read_completion(std::string_view body, Backend& backend, const ApiDefaults& defaults) {
  const Json json = parse_object(body);
  Fields fields(json);
  CompletionShape shape;
  read_model(fields, defaults.model);
  TextFields text = read_text_fields(fields, defaults.options, backend.facts().vocab_size);
  text.set_most(read_max_tokens(fields, 1).value_or(usual_max_tokens));
  shape.n = text.n;
  shape.include_usage = text.include_usage;
  shape.stream = text.stream;
  shape.echo = fields.boolean("echo").value_or(false);
  if (const auto best_of = fields.integer("best_of", 1); best_of && *best_of != text.n) {
    throw bad_field("best_of", "it must equal n: every text that is written is returned");
  }
  if (fields.text("suffix").value_or("") != "") {
    throw bad_field("suffix", "this model continues texts and fills no gaps");
  }
  if (const auto logprobs = fields.integer("logprobs", 0, 20)) {
    shape.logprobs = static_cast<std::int32_t>(*logprobs);
    text.options.logprobs = true;
    text.options.top_logprobs = *shape.logprobs;
  }
  const bool add_special = fields.boolean("add_special_tokens").value_or(defaults.options.add_bos);
  const std::vector<std::vector<TokenId>> prompts = read_prompts(fields, backend, add_special);
  fields.refuse_others();
  text.options.constraint = build_constraint(backend, text.constraint);
  validate(text.options);

  TextsJob job;
  job.stream = text.stream;
  job.trees = text.trees;
  std::uint64_t stream = 0;
  for (const std::vector<TokenId>& prompt : prompts) {
    check_length("prompt", prompt.size(), backend);
    if (shape.echo) {
      shape.prompts.push_back(backend.detokenize(prompt));
      if (shape.logprobs) {
        shape.prompt_logprobs.push_back(backend.prompt_logprobs(prompt, *shape.logprobs));
      }
    }
    Request request;
    request.tokens = prompt;
    request.options = text.options;
    request.options.stream = stream;
    request.n = text.n;
    stream += static_cast<std::uint64_t>(text.n);
    job.requests.push_back(std::move(request));
  }
  shape.head = new_head("cmpl-", defaults.model, backend.facts().fingerprint);
  job.writer = std::make_unique<CompletionWriter>(std::move(shape), backend);
  return job;
}

}  // namespace coppice::server

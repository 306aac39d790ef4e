#include "server/api/chat.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "server/api/answers.h"
#include "server/api/api_error.h"
#include "server/api/chat_choice.h"
#include "server/api/chat_messages.h"
#include "server/api/chat_tools.h"
#include "server/api/common.h"
#include "server/api/fields.h"
#include "server/api/text_fields.h"
#include "server/talk/tool_grammar.h"

namespace coppice::server {
namespace {

struct ChatShape {
  AnswerHead head;
  AnswerOptions answer;  ///< how its text is read
  std::int64_t prompt_tokens = 0;
  std::string stop;  ///< the only stop text, which is then known to be the one that ended a text
  bool include_usage = false;
  bool logprobs = false;
  std::int32_t top_logprobs = 0;
};

class ChatWriter final : public AnswerWriter {
 public:
  ChatWriter(ChatShape shape, ChatForm form, const Backend& backend, bool stream)
      : shape_(std::move(shape)), form_(std::move(form)), backend_(backend), stream_(stream) {}

  std::string piece(TextPiece& piece) override {
    std::string events = begin(piece.choice);
    Choice& choice = choices_.at(piece.choice);
    choice.unsaid.insert(choice.unsaid.end(), piece.logprobs.begin(), piece.logprobs.end());
    return events + say(piece.choice, choice.reader.feed(piece.text, piece.tokens));
  }

  std::string tree(std::int32_t index, const JudgedTree& tree) override {
    std::string events = begin(index);
    Json json = chunk(index, Json::object());
    json["coppice"] = {{"tree", tree_json(tree, backend_)}};
    return events + form_.chunk(json);
  }

  std::string ended(std::int32_t first_choice, Outcome& outcome) override {
    usage_.add(outcome);
    std::string events;
    for (std::size_t i = 0; i < outcome.samples.size(); ++i) {
      Generation& text = outcome.samples[i];
      const auto index = first_choice + static_cast<std::int32_t>(i);
      events += begin(index);
      Choice& choice = choices_.at(index);
      if (!stream_) {
        choice.unsaid = std::move(text.logprobs);
        add(choice, choice.reader.feed(text.text, text.tokens));
        add(choice, choice.reader.finish());
      } else {
        events += say(index, choice.reader.finish());
        Json json = chunk(index, Json::object());
        if (!choice.unsaid.empty()) json["choices"][0]["logprobs"] = logprobs_json(choice.unsaid);
        add_reason(json["choices"][0], choice, text.finish_reason);
        json["timings"] = timings(text);
        json["coppice"] = statistics(text);
        events += form_.chunk(json);
      }
      usage_.reasoning += choice.reader.reasoning_tokens();
      texts_.emplace(index, std::move(text));
    }
    return stream_ ? events : "";
  }

  std::string close() override {
    std::string events;
    if (shape_.include_usage) {
      Json json = head("chat.completion.chunk");
      json["choices"] = Json::array();
      json["usage"] = usage_.json();
      events = form_.chunk(json);
    }
    return events + form_.close();
  }

  HttpAnswer whole() override {
    Json json = head("chat.completion");
    json["choices"] = Json::array();
    for (const auto& [index, text] : texts_) {
      const Choice& choice = choices_.at(index);
      Json message = {
          {"role", "assistant"},
          {"content",
           choice.content.empty() && choice.reader.calls_tools() ? Json() : Json(choice.content)},
          {"refusal", Json()}};
      if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
      if (choice.reader.calls_tools()) message["tool_calls"] = choice.calls;
      json["choices"].push_back(
          {{"index", index},
           {"message", std::move(message)},
           {"logprobs", shape_.logprobs ? logprobs_json(choice.unsaid) : Json()}});
      add_reason(json["choices"].back(), choice, text.finish_reason);
    }
    json["usage"] = usage_.json();
    if (!texts_.empty()) {
      json["timings"] = timings(texts_.begin()->second);
      json["coppice"] = statistics(texts_.begin()->second);
    }
    return {200, to_text(form_.whole(json))};
  }

  std::string failed(int status, const std::string& message) override {
    return form_.failed(status, message);
  }

 private:
  Json head(const char* object) const {
    return {{"id", shape_.head.id},
            {"object", object},
            {"created", shape_.head.created},
            {"model", shape_.head.model},
            {"system_fingerprint", shape_.head.fingerprint}};
  }
  Json chunk(std::int32_t index, Json delta) const {
    Json json = head("chat.completion.chunk");
    json["choices"] = Json::array({{{"index", index},
                                    {"delta", std::move(delta)},
                                    {"logprobs", Json()},
                                    {"finish_reason", Json()}}});
    return json;
  }

  struct Choice {
    ChatChoice reader;
    std::vector<TokenLogprob> unsaid;  ///< of tokens whose text is held back
    std::string content, reasoning;
    Json calls = Json::array();
  };

  // A choice's first chunk names the role.
  std::string begin(std::int32_t index) {
    if (choices_.contains(index)) return "";
    choices_.emplace(index, Choice{ChatChoice(backend_, shape_.answer), {}, "", ""});
    if (!stream_) return "";
    Json json = chunk(index, {{"role", "assistant"}, {"content", ""}});
    if (form_.tells_prompt_first) {
      Usage prompt;
      prompt.prompt = shape_.prompt_tokens;
      json["usage"] = prompt.json();
    }
    return form_.chunk(json);
  }

  // A call that is cut short by its length is no reason to go and make it.
  void add_reason(Json& json, const Choice& choice, FinishReason finish) const {
    const std::string said = finish_reason(finish);
    json["finish_reason"] = choice.reader.calls_tools() && said == "stop" ? "tool_calls" : said;
    // vLLM's name for it.
    json["stop_reason"] =
        finish == FinishReason::stop && !shape_.stop.empty() ? Json(shape_.stop) : Json();
  }

  static void add(Choice& choice, const std::vector<AnswerDelta>& deltas) {
    for (const AnswerDelta& delta : deltas) {
      switch (delta.kind) {
        case AnswerDelta::Kind::content:
          choice.content += delta.text;
          break;
        case AnswerDelta::Kind::reasoning:
          choice.reasoning += delta.text;
          break;
        case AnswerDelta::Kind::call:
          choice.calls.push_back({{"id", delta.id},
                                  {"type", "function"},
                                  {"function", {{"name", delta.name}, {"arguments", ""}}}});
          break;
        case AnswerDelta::Kind::arguments:
          choice.calls.back()["function"]["arguments"].get_ref<std::string&>() += delta.text;
          break;
      }
    }
  }

  static Json delta_json(const AnswerDelta& delta) {
    switch (delta.kind) {
      case AnswerDelta::Kind::content:
        return {{"content", delta.text}};
      case AnswerDelta::Kind::reasoning:
        return {{"reasoning_content", delta.text}};
      case AnswerDelta::Kind::call:
        return {{"tool_calls",
                 Json::array({{{"index", delta.call},
                               {"id", delta.id},
                               {"type", "function"},
                               {"function", {{"name", delta.name}, {"arguments", ""}}}}})}};
      case AnswerDelta::Kind::arguments:
        break;
    }
    return {{"tool_calls",
             Json::array({{{"index", delta.call}, {"function", {{"arguments", delta.text}}}}})}};
  }

  std::string say(std::int32_t index, const std::vector<AnswerDelta>& deltas) {
    Choice& choice = choices_.at(index);
    add(choice, deltas);
    std::string events;
    for (const AnswerDelta& delta : deltas) {
      Json json = chunk(index, delta_json(delta));
      if (!choice.unsaid.empty()) {
        json["choices"][0]["logprobs"] = logprobs_json(choice.unsaid);
        choice.unsaid.clear();
      }
      events += form_.chunk(json);
    }
    return events;
  }

  Json token_json(TokenId token, double logprob) const {
    const TokenText text = backend_.token(token);
    Json bytes = Json::array();
    for (const char byte : text.bytes) bytes.push_back(static_cast<unsigned char>(byte));
    return {{"token", shown(text)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
  }
  Json logprobs_json(const std::vector<TokenLogprob>& logprobs) const {
    Json content = Json::array();
    for (const TokenLogprob& entry : logprobs) {
      Json top = Json::array();
      const auto count = std::min(entry.top.size(), static_cast<std::size_t>(shape_.top_logprobs));
      for (std::size_t i = 0; i < count; ++i) {
        top.push_back(token_json(entry.top[i].first, entry.top[i].second));
      }
      content.push_back(token_json(entry.token, entry.logprob));
      content.back()["top_logprobs"] = std::move(top);
    }
    return {{"content", std::move(content)}, {"refusal", Json()}};
  }

  ChatShape shape_;
  ChatForm form_;
  const Backend& backend_;
  const bool stream_;
  Usage usage_;
  std::map<std::int32_t, Choice> choices_;
  std::map<std::int32_t, Generation> texts_;
};

// Names for the template: chat_template_kwargs, and reasoning_effort where it reads that. What asks
// for no reasoning is obeyed by every model that has none.
Json read_template_values(Fields& fields, const Backend& backend) {
  Json values = Json::object();
  constexpr const char* thinking = "enable_thinking";
  if (const Json* const given = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : given->items()) {
      if (backend.template_reads(name)) {
        values[name] = value;
      } else if (name != thinking || value != false) {
        throw ApiError(
            400, cat("chat_template_kwargs: this model's chat template reads no ", quote(name)),
            "chat_template_kwargs", "unsupported_parameter");
      }
    }
  }
  const std::optional<std::string> effort = fields.text("reasoning_effort");
  if (!effort) return values;
  const bool reasons = *effort != "none" && *effort != "minimal";
  if (backend.template_reads("reasoning_effort")) {
    values["reasoning_effort"] = *effort;
  } else if (backend.template_reads(thinking)) {
    values[thinking] = reasons;
  } else if (reasons) {
    throw ApiError(400, "reasoning_effort: this model's chat template has no such setting",
                   "reasoning_effort", "unsupported_parameter");
  }
  return values;
}

void refuse_what_is_not_text(Fields& fields) {
  if (const Json* const modalities = fields.list("modalities")) {
    for (const Json& one : *modalities) {
      if (one != "text") throw bad_field("modalities", "this model writes text alone");
    }
  }
  if (fields.boolean("store").value_or(false)) {
    throw bad_field("store", "this server keeps no answers; leave it out");
  }
  for (const char* const name : {"functions", "function_call"}) {
    if (fields.find(name) != nullptr) throw bad_field(name, "use tools and tool_choice");
  }
}

std::vector<TokenId> prompt_tokens(Fields& fields, Backend& backend, const ChatTools& tools) {
  const std::string& source = backend.facts().chat_template;
  if (source.empty()) {
    throw ApiError(400,
                   "messages: this model has no chat template; use /v1/completions, or start the "
                   "server with --chat-template FILE",
                   "messages", "unsupported_parameter");
  }
  const Json* const messages = fields.find("messages");
  if (messages == nullptr) {
    throw ApiError(400, "messages: it is missing", "messages", "missing_field");
  }
  ChatPrompt prompt;
  prompt.messages = to_text(template_messages(*messages, source));
  if (!tools.offered.empty()) prompt.tools = to_text(tools.offered);
  prompt.values = to_text(read_template_values(fields, backend));
  prompt.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  prompt.add_generation_prompt =
      fields.boolean("add_generation_prompt").value_or(!prompt.continue_final_message);
  if (prompt.add_generation_prompt && prompt.continue_final_message) {
    throw bad_field("add_generation_prompt",
                    "continue_final_message begins no answer; leave one out");
  }
  std::vector<TokenId> tokens;
  try {
    tokens = backend.chat_tokens(prompt);
  } catch (const HostMemoryError&) {
    throw;  // the messages are not to blame
  } catch (const Error& error) {
    throw ApiError(400, cat("messages: ", error.what()), "messages", "invalid_value");
  }
  check_length("messages", tokens.size(), backend);
  return tokens;
}

// How the text is read that the model writes behind this prompt.
AnswerOptions answer_options(const std::vector<TokenId>& prompt, const ChatTools& tools,
                             const Backend& backend) {
  AnswerOptions options;
  options.form = answer_form(backend.facts().chat_template);
  // What must be a call needs no mark: plain JSON does where the model's own form is not known.
  if (tools.is_required && options.form.tools == ToolForm::none) {
    options.form.tools = ToolForm::llama;
  }
  std::string end;
  constexpr std::size_t enough = 32;
  for (std::size_t i = prompt.size() - std::min(prompt.size(), enough); i < prompt.size(); ++i) {
    end += backend.token(prompt[i]).bytes;
  }
  options.in_reasoning = begins_with_reasoning(options.form, end);
  options.tools = tools.names;
  options.types = ArgumentTypes(tools.offered);
  const bool mistral =
      options.form.tools == ToolForm::mistral_list || options.form.tools == ToolForm::mistral_args;
  options.new_id = [mistral] { return mistral ? new_id("").substr(0, 9) : new_id("call_"); };
  return options;
}

// Sets what a text may be, by its tools and by the form that it was asked for: behind reasoning,
// where the model reasons.
void set_constraint(const ChatTools& tools, Backend& backend, AnswerOptions& answer,
                    std::optional<constraints::ConstraintSource>& constraint) {
  using Kind = constraints::ConstraintSource::Kind;
  std::optional of_tools = tool_constraint(tools, answer.form, answer.in_reasoning, backend);
  if (of_tools) {
    if (constraint) {
      throw bad_field("tool_choice", "a text has one constraint; leave out response_format");
    }
    constraint = std::move(of_tools);
    answer.stream_arguments = true;
    return;
  }
  const bool reasons = !answer.form.reasoning.open.empty();
  if (!constraint || !reasons) return;
  if (constraint->kind != Kind::json && constraint->kind != Kind::json_schema) return;
  const std::string schema = constraint->kind == Kind::json ? "true" : constraint->texts[0];
  constraint = {Kind::grammar, {json_grammar(answer.form, answer.in_reasoning, schema)}};
}

}  // namespace

ChatForm chat_form() {
  return {[](const Json& chunk) { return event(chunk); }, [] { return std::string(last_event); },
          [](const Json& answer) { return answer; },
          [](int status, const std::string& message) {
            return event(error_json(status, message)).append(last_event);
          }};
}

TextsJob read_chat(const Json& json, Backend& backend, const ApiDefaults& defaults, ChatForm form) {
  Fields fields(json);
  ChatShape shape;
  read_model(fields, defaults.model);
  refuse_what_is_not_text(fields);
  GenerateOptions usual = defaults.options;
  usual.stop = defaults.chat_stop;
  usual.max_new_tokens = defaults.chat_max_tokens.value_or(backend.facts().context_length);
  TextFields text = read_text_fields(fields, usual, backend.facts().vocab_size);
  shape.include_usage = text.include_usage;
  shape.logprobs = fields.boolean("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs", 0, 20)) {
    if (!shape.logprobs) throw bad_field("top_logprobs", "it needs \"logprobs\": true");
    shape.top_logprobs = static_cast<std::int32_t>(*top);
  }
  text.options.logprobs = shape.logprobs;
  text.options.top_logprobs = shape.top_logprobs;
  const std::optional<std::int32_t> max_tokens = read_max_tokens(fields, 1);
  const ChatTools tools = read_tools(fields, backend);
  std::vector<TokenId> tokens = prompt_tokens(fields, backend, tools);
  fields.refuse_others();
  shape.answer = answer_options(tokens, tools, backend);
  set_constraint(tools, backend, shape.answer, text.constraint);
  text.set_most(max_tokens.value_or(text.options.max_new_tokens));
  // A constrained text ends where it is whole: what is recommended for others may cut it short.
  if (text.constraint && fields.find("stop") == nullptr) text.options.stop.clear();
  text.options.constraint = build_constraint(backend, text.constraint);
  validate(text.options);

  TextsJob job;
  job.stream = text.stream;
  job.trees = text.trees;
  shape.prompt_tokens = static_cast<std::int64_t>(tokens.size());
  if (text.options.stop.size() == 1) shape.stop = text.options.stop.front();
  Request request;
  request.tokens = std::move(tokens);
  request.options = text.options;
  request.n = text.n;
  job.requests.push_back(std::move(request));
  shape.head = new_head("chatcmpl-", defaults.model, backend.facts().fingerprint);
  job.writer =
      std::make_unique<ChatWriter>(std::move(shape), std::move(form), backend, text.stream);
  return job;
}

std::vector<TokenId> read_chat_prompt(const Json& request, Backend& backend,
                                      const ApiDefaults& defaults) {
  Fields fields(request);
  read_model(fields, defaults.model);
  return prompt_tokens(fields, backend, read_tools(fields, backend));
}

}  // namespace coppice::server

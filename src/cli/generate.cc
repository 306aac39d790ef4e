#include <csignal>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "cli/acceptance_vector.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/generation_text.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace coppice::cli {
int generate(const std::vector<std::string>& arguments) {
  po::options_description options = prompt_options();
  options.add_options()("chat", "put the prompt, as one message, into the target's chat template")(
      "messages", po::value<std::string>()->value_name("FILE"),
      "the same with a JSON list of messages: [{\"role\": \"user\", \"content\": \"Hello\"}]");
  po::options_description output("Length and output");
  output.add_options()("max-new-tokens",
                       po::value<std::int32_t>()->default_value(128)->value_name("N"),
                       "most new tokens")(
      "stop", po::value<std::vector<std::string>>()->composing()->value_name("TEXT"),
      "end before this text (may be given several times)")("ignore-eos",
                                                           "go on after an end token")(
      "logprobs", "with --format json: log-probabilities of each token and the top 5")(
      "format", po::value<std::string>()->default_value("text")->value_name("F"),
      "text (streams) or json (one object at the end)")(
      "stats", "print the table of statistics to standard error (on a terminal always)");
  po::options_description all;
  all.add(options)
      .add(conversation_options())
      .add(output)
      .add(sampling_options())
      .add(drafting_options())
      .add(model_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice generate: continue a text with a target model, helped by a draft model\n\n"
             "  coppice generate --prompt 'Once upon a time'\n"
             "  coppice generate --target DIR --draft DIR --temperature 0.8 < prompt.txt\n"
             "  coppice generate --target DIR --chat --prompt 'Who wrote Emma?'\n",
             values)) {
    return 0;
  }
  const bool json = wants_json(values);
  GenerateOptions request = generate_options(values);
  request.max_new_tokens = values["max-new-tokens"].as<std::int32_t>();
  if (values.count("stop") != 0) request.stop = values["stop"].as<std::vector<std::string>>();
  request.ignore_eos = values.count("ignore-eos") != 0;
  request.logprobs = values.count("logprobs") != 0;
  if (request.logprobs && !json) throw_usage("--logprobs needs --format json");
  const bool messages = values.count("messages") != 0,
             chats = messages || values.count("chat") != 0;
  if (!chats) {
    for (const char* name : {"system", "no-template", "template-name", "template-value"}) {
      if (values.count(name) != 0) throw_usage(cat("--", name, " needs --chat or --messages"));
    }
  }
  if (messages && values.count("prompt") + values.count("prompt-file") > 0) {
    throw_usage("give only one of --messages, --prompt and --prompt-file");
  }
  if (chats && values.count("prompt-ids") != 0) {
    throw_usage("--prompt-ids are no message; give a text, or leave out --chat");
  }
  Prompt prompt;
  if (!messages) prompt = read_prompt(values);
  request.validate();

  ProgressLine progress(true);
  EngineOptions engine_request = engine_options(values, request.speculation);
  std::optional<Conversation> conversation;
  chat::Text chat_text;
  if (chats) {
    conversation.emplace(engine_request.target, values);
    if (messages) {
      const std::string& file = values["messages"].as<std::string>();
      conversation->add_json(read_file(file, "messages", std::uintmax_t{64} << 20), file);
    } else {
      conversation->add("user", prompt.text);
    }
    chat_text = conversation->text();
    const std::string recommended = take_recommended(engine_request.target, values, request);
    if (!recommended.empty()) tell(cat("generation_config.json: ", recommended));
    request.validate();
  }
  read_acceptance_vector(values, engine_request, request);
  engine_request.progress = [&](const LoadEvent& event) { progress.show(event); };
  Engine engine = Engine::load(engine_request);
  progress.clear();
  if (values.count("target") != 0 && values.count("draft") == 0 &&
      !std::holds_alternative<Plain>(request.speculation)) {
    tell("no draft model was given: plain decoding (--draft DIR speeds it up)");
  }

  if (conversation) {
    prompt.tokens = tokens_of(engine, chat_text, conversation->raw(), request.add_bos);
    prompt.ids = true;
  }

  const InterruptWatch interrupts;
  bool reader_gone = false;
  std::size_t produced = 0;
  std::size_t shown = 0;  // bytes of the text
  const bool shows_tokens = !json && !engine.has_tokenizer();
  const PieceCallback callback = [&](const Piece& piece) {
    try {
      produced += piece.tokens.size();
      if (json) {
        progress.show("generating", static_cast<double>(produced) / request.max_new_tokens);
      } else if (shows_tokens) {
        std::string ids;
        for (const TokenId token : piece.tokens) {
          ids +=
              (produced > piece.tokens.size() || !ids.empty() ? "," : "") + std::to_string(token);
        }
        write_out(ids);
      } else {
        write_generated(piece.text);
        shown += piece.text.size();
      }
    } catch (const ClosedPipe&) {
      reader_gone = true;
      return false;
    }
    return !InterruptWatch::interrupted();
  };
  const Generation result = prompt.ids ? engine.generate(prompt.tokens, request, callback)
                                       : engine.generate(prompt.text, request, callback);
  progress.clear();
  if (reader_gone) return 0;
  if (json) {
    write_out(to_json(result, request.logprobs));
  } else {
    // What was held back when the text was cut short.
    if (!shows_tokens) write_generated(std::string_view(result.text).substr(shown));
    write_out("\n");
  }
  if (result.finish_reason == FinishReason::context) {
    tell(cat("the context of ", engine.context_length(), " tokens is full"));
  } else if (result.finish_reason == FinishReason::memory) {
    tell("the KV memory is full; raise --kv-tokens for longer texts");
  }
  if (values.count("stats") != 0 || (stderr_is_terminal() && !json)) {
    std::cerr << '\n' << to_table(result);
  } else if (!json && values.count("seed") == 0 && request.sampling.temperature > 0.0) {
    std::cerr << "seed " << request.seed << '\n';
  }
  return InterruptWatch::interrupted() ? interrupted_exit : 0;
}

}  // namespace coppice::cli

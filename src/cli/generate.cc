#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "cli/acceptance_vector.h"
#include "cli/batch.h"
#include "cli/command.h"
#include "cli/constraint_options.h"
#include "cli/conversation.h"
#include "cli/generation_text.h"
#include "cli/length_options.h"
#include "cli/one_request.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/samples.h"
#include "cli/streamed_text.h"
#include "cli/terminal.h"
#include "cli/token_options.h"
#include "conversation/tokens.h"

namespace coppice::cli {
namespace {

/// Writes one text, as it comes or as JSON, until `stop` is asked for.
Generation write_text(Engine& engine, Request request, bool json, ProgressLine& progress,
                      const std::stop_token& stop) {
  StreamedText shown;
  std::size_t produced = 0;
  const bool shows_ids = !json && !engine.has_tokenizer();
  request.callback = [&](std::int32_t, const Piece& piece) {
    const bool first = produced == 0;
    produced += piece.tokens.size();
    // On a terminal the text itself shows how far it is.
    if (json || !stderr_is_terminal()) {
      progress.show("generating", static_cast<double>(produced) / request.options.max_new_tokens);
    }
    if (shows_ids) return shown.put((first ? "" : ",") + id_list(piece.tokens));
    return json || shown.put(piece.text);
  };
  Generation result = std::move(write_request(engine, request, stop).samples.front());
  progress.clear();
  if (json) {
    write_out(json_line(to_json(engine, result, request.options.logprobs)));
  } else {
    shown.finish(shows_ids ? id_list(result.tokens) : result.text);
  }
  if (result.finish_reason == FinishReason::context) {
    tell(full_context(engine));
  } else if (result.finish_reason == FinishReason::memory) {
    tell("the KV memory is full; raise --kv-tokens for longer texts");
  } else if (const std::string cut = cut_short(result); !json && !cut.empty()) {
    tell(cut);
  }
  return result;
}

void check_prompt_options(const po::variables_map& values) {
  const bool messages = values.count("messages") != 0,
             chats = messages || values.count("chat") != 0;
  if (!chats) {
    for (const char* name : {"system", "no-template", "template-name", "template-value"}) {
      if (values.count(name) != 0) throw_usage(cat("--", name, " needs --chat or --messages"));
    }
  }
  if (values.count("continue-message") != 0 && !messages) {
    throw_usage("--continue-message needs --messages, whose last one it continues");
  }
  const bool prompted = values.count("prompt") + values.count("prompt-file") > 0;
  const char* const escapes = values.count("no-escape") != 0 ? "no-escape" : "escape";
  if (values.count(escapes) != 0 && !prompted && (messages || values.count("batch") != 0)) {
    throw_usage(
        cat("--", escapes, " is for a prompt; --messages and --batch are taken as they are"));
  }
  if (messages && prompted) {
    throw_usage("give only one of --messages, --prompt and --prompt-file");
  }
  if (chats && values.count("prompt-ids") != 0) {
    throw_usage("--prompt-ids are no message; give a text, or leave out --chat");
  }
}

}  // namespace

int generate(const std::vector<std::string>& arguments) {
  po::options_description options = prompt_options();
  options.add_options()(
      "chat",
      "put the prompt, as one message, into the target's chat template. Sampling, "
      "max-new-tokens and stop are then as the target's "
      "generation_config.json says, unless options say otherwise")(
      "messages", po::value<std::string>()->value_name("FILE|-"),
      "the same with a JSON list of messages: [{\"role\": \"user\", \"content\": \"Hello\"}]. "
      "Special tokens that an assistant's message spells are tokens, in all others they are text")(
      "continue-message",
      "with --messages: continue the last message, which is an assistant's, instead of answering "
      "it");
  po::options_description output("Output");
  output.add_options()("format",
                       po::value<std::string>()->default_value("text")->value_name("text|json"),
                       "text streams, json is one object at the end")(
      "stats", "print the table of statistics to standard error (on a terminal always)");
  po::options_description all;
  all.add(options)
      .add(length_options())
      .add(output)
      .add(model_options())
      .add(sampling_options())
      .add(token_options())
      .add(drafting_options())
      .add(constraint_options())
      .add(conversation_options())
      .add(batch_options());
  po::variables_map values;
  if (!parse(arguments, all,
             "coppice generate: continue a text with a target model, helped by a draft model\n\n"
             "  coppice generate --prompt 'Once upon a time'\n"
             "  coppice generate --target MODEL --draft MODEL --temperature 0.8 < prompt.txt\n"
             "  coppice generate --target FILE.gguf --chat --prompt 'Who wrote Emma?'\n"
             "  coppice generate --prompt 'The captain' --n 4 --temperature 0.8\n"
             "  coppice generate --batch prompts.jsonl --output texts.jsonl --temperature 0.8\n",
             values)) {
    return 0;
  }
  check_prompt_options(values);
  if (values.count("batch") != 0) return generate_batch(values);
  const bool json = wants_json(values);
  GenerateOptions request = generate_options(values);
  read_length_options(values, request);
  read_token_options(values, request);
  const auto constraint = ConstraintReader().read(values);
  const std::int32_t samples = sample_count(values);
  if (request.logprobs && !json) throw_usage("--logprobs needs --format json");
  if (values.count("output") != 0) throw_usage("--output needs --batch; redirect other output");
  if (samples == 1 && !values["parallel"].defaulted()) {
    throw_usage("--parallel needs --batch or --n");
  }
  const bool messages = values.count("messages") != 0,
             chats = messages || values.count("chat") != 0;
  Prompt prompt;
  if (!messages) prompt = read_prompt(values);
  request.validate();

  ProgressLine progress;
  EngineOptions engine_request = engine_options(values, request.speculation);
  engine_request.max_sequences = parallel_texts(values, samples);
  std::optional<Conversation> conversation;
  chat::Text chat_text;
  if (chats) {
    conversation.emplace(engine_request.target, values);
    if (messages) {
      constexpr std::size_t most_mib = 64;
      const std::string file = text_in(values, "messages");
      const bool piped = file == "-";
      conversation->add_json(piped ? read_all(std::cin, "standard input", most_mib)
                                   : read_file(file, "messages", most_mib << 20),
                             piped ? "standard input" : file);
    } else {
      conversation->add("user", prompt.text);
    }
    const bool continues = values.count("continue-message") != 0;
    chat_text = continues ? conversation->text_to_continue() : conversation->text();
    for (const std::string& line : take_recommended(engine_request.target, values, request)) {
      tell(line);
    }
    request.validate();
  }
  read_acceptance_vector(values, engine_request, request);
  engine_request.progress = [&](const LoadEvent& event) { progress.show(event); };
  Engine engine = Engine::load(engine_request);
  progress.clear();
  tell_of_plain(values, engine_request);
  request.constraint = Constraints().build(engine, constraint);

  if (conversation) {
    prompt.tokens =
        conversation::tokens_of(engine, chat_text, conversation->raw(), request.add_bos);
    prompt.ids = true;
  }

  const InterruptWatch interrupts;
  std::string table, stopped;
  Request asked;
  if (!prompt.ids) asked.prompt = prompt.text;
  asked.tokens = prompt.tokens;
  asked.options = request;
  asked.n = samples;
  if (samples > 1) {
    if (request.sampling.temperature == 0.0) {
      tell(cat("at temperature 0 all ", samples,
               " samples are the same text; --temperature 0.8 "
               "makes them differ"));
    }
    Samples written = write_samples(engine, std::move(asked), json, progress, interrupts.token());
    table = std::move(written.table);
    stopped = std::move(written.stopped);
  } else {
    table = to_table(write_text(engine, std::move(asked), json, progress, interrupts.token()));
  }
  const bool tells = values.count("stats") != 0 || (stderr_is_terminal() && !json);
  if (tells) std::cerr << '\n' << table;
  if (!stopped.empty()) tell(stopped);
  if (!json && !tells && values.count("seed") == 0 && request.sampling.temperature > 0.0) {
    std::cerr << "seed " << request.seed << '\n';
  }
  return InterruptWatch::interrupted() ? interrupted_exit : 0;
}

}  // namespace coppice::cli

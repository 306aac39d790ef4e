#include <filesystem>
#include <iostream>
#include <optional>
#include <stop_token>

#include "base/error.h"
#include "base/files.h"
#include "base/lost_model.h"
#include "base/utf8.h"
#include "cli/acceptance_vector.h"
#include "cli/chat_session.h"
#include "cli/command.h"
#include "cli/constraint_options.h"
#include "cli/generation_text.h"
#include "cli/line_reader.h"
#include "cli/options.h"
#include "cli/quiet_keys.h"
#include "cli/streamed_text.h"
#include "cli/terminal.h"
#include "cli/token_options.h"

namespace coppice::cli {
namespace {

constexpr const char* chat_commands =
    "  /retry      answer the last message again\n"
    "  /undo       take the last message and its answer back\n"
    "  /reset      forget what was said\n"
    "  /stats      the last answer's statistics\n"
    "  /save FILE  write the conversation as a JSON list, which generate --messages reads\n"
    "  /help       this list\n"
    "  /exit       end (or Ctrl-D)\n"
    "Ctrl-C stops an answer. A message that begins with a slash is typed with two.\n";

/// What a line of the person asks for.
class Chat {
 public:
  Chat(Engine& engine, Conversation conversation, const GenerateOptions& request)
      : engine_(engine), session_(engine, std::move(conversation), request) {}

  /// Whether some message was not answered.
  bool refused() const { return refused_; }

  /// False: the end.
  bool take(std::string line) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) return true;
    if (line[0] != '/' || line.substr(0, 2) == "//") {
      answer(line[0] == '/' ? line.substr(1) : line);
      return true;
    }
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    argument.erase(0, argument.find_first_not_of(' '));
    if (name == "/exit" || name == "/quit") return false;
    if (name == "/retry") {
      if (session_.conversation().has_turn()) {
        show([&](const PieceCallback& callback, const std::stop_token& stop) {
          return session_.retry(callback, stop);
        });
      } else {
        tell("nothing was said yet");
      }
    } else if (name == "/undo") {
      const std::optional<std::string> message = session_.undo();
      tell(message ? cat("taken back: ", quote(*message)) : "nothing was said yet");
    } else if (name == "/reset") {
      session_.reset();
      tell("everything said is forgotten");
    } else if (name == "/stats") {
      if (statistics_.empty()) {
        tell("no answer yet");
      } else {
        std::cerr << statistics_ << std::flush;
      }
    } else if (name == "/save") {
      save(argument);
    } else if (name == "/help") {
      std::cerr << chat_commands << std::flush;
    } else {
      tell(cat(quote(name), " is no command; /help lists them"));
    }
    return true;
  }

 private:
  void save(const std::string& file) {
    if (file.empty()) {
      tell("/save: name a file");
      return;
    }
    try {
      write_file(file, session_.conversation().to_json());
      tell(cat("saved in ", quote(file)));
    } catch (const Error& error) {
      tell(error.what());
    }
  }

  void answer(const std::string& text) {
    if (!is_valid_utf8(text)) {
      refused_ = true;
      tell("the message is not valid UTF-8; it was left out");
      return;
    }
    show([&](const PieceCallback& callback, const std::stop_token& stop) {
      return session_.answer(text, callback, stop);
    });
  }

  /// What `answer` writes, as it comes.
  template <typename Answer>
  void show(const Answer& answer) {
    const InterruptWatch interrupts;
    const QuietKeys quiet;
    StreamedText shown;
    Generation result;
    try {
      result =
          answer([&](const Piece& piece) { return shown.put(piece.text); }, interrupts.token());
    } catch (const LostModel&) {
      shown.abandon();
      throw;  // no message would be answered any more
    } catch (const Error& error) {
      shown.abandon();
      refused_ = true;
      // A message that is too long for what is left.
      const bool room = error.kind() == ErrorKind::usage && session_.length() > 0;
      return tell(cat(error.what(), room ? ", or make room with /undo or /reset" : ""));
    }
    shown.finish(result.text);
    after(result);
  }

  void after(const Generation& result) {
    statistics_ = to_table(result) + cat("  context          ", session_.length(), " of ",
                                         engine_.context_length(), " tokens\n");
    if (session_.computed_again() > 0) {
      tell(
          cat("what was said before reads otherwise now (its template or a stop text changed it): ",
              session_.computed_again(), " tokens were computed again"));
    }
    if (result.finish_reason == FinishReason::context) {
      tell(cat(full_context(engine_), "; /undo or /reset makes room"));
    } else if (result.finish_reason == FinishReason::memory) {
      tell("the KV memory is full; /reset begins anew, --kv-tokens makes room");
    } else if (result.finish_reason == FinishReason::cancelled) {
      tell("stopped");
    } else if (const std::string cut = cut_short(result); !cut.empty()) {
      tell(cut);
    }
  }

  Engine& engine_;
  ChatSession session_;
  std::string statistics_;
  bool refused_ = false;
};

}  // namespace

int chat(const std::vector<std::string>& arguments) {
  po::options_description all;
  po::options_description answers("Answers");
  answers.add_options()("max-new-tokens",
                        po::value<std::int32_t>()->default_value(512)->value_name("N"),
                        "most tokens of an answer")(
      "stop", po::value<std::vector<std::string>>()->composing()->value_name("TEXT"),
      "end an answer before this text, which may spell special tokens (may be given several "
      "times)")("no-bos", "with --no-template: put no beginning-of-sequence token before the text");
  all.add(conversation_options())
      .add(answers)
      .add(model_options())
      .add(token_options())
      .add(sampling_options())
      .add(drafting_options())
      .add(constraint_options());
  po::variables_map values;
  if (!parse(arguments, all,
             cat("coppice chat: talk with a model, in its chat template\n\n"
                 "  coppice chat\n"
                 "  coppice chat --target MODEL --draft MODEL --system 'Be brief.'\n"
                 "  echo 'Hello' | coppice chat --target FILE.gguf\n\n"
                 "Sampling is as generation_config.json of the target says, unless options say "
                 "otherwise.\nLines are messages, but for:\n",
                 chat_commands),
             values)) {
    return 0;
  }
  GenerateOptions request = generate_options(values);
  read_token_options(values, request);
  request.max_new_tokens = values["max-new-tokens"].as<std::int32_t>();
  if (values.count("stop") != 0) request.stop = values["stop"].as<std::vector<std::string>>();
  const auto constraint = ConstraintReader().read(values);
  request.validate();
  EngineOptions engine_request = engine_options(values, request.speculation);
  Conversation conversation(engine_request.target, values);
  const std::vector<std::string> recommended =
      take_recommended(engine_request.target, values, request);
  request.validate();
  read_acceptance_vector(values, engine_request, request);

  ProgressLine progress;
  engine_request.progress = [&](const LoadEvent& event) { progress.show(event); };
  Engine engine = Engine::load(engine_request);
  progress.clear();
  if (!engine.has_tokenizer()) engine.detokenize({});  // throws, and says why there is none
  tell_of_plain(values, engine_request);
  request.constraint = Constraints().build(engine, constraint);
  for (const std::string& line : recommended) tell(line);
  if (stderr_is_terminal()) std::cerr << chat_commands << std::flush;

  Chat talk(engine, std::move(conversation), request);
  LineReader lines("> ");
  std::optional<std::string> line;
  while ((line = lines.read()) && talk.take(*line)) {
  }
  if (!line && stdout_is_terminal()) write_out("\n");
  // A person has seen it.
  return talk.refused() && !stdin_is_terminal() ? 1 : 0;
}

}  // namespace coppice::cli

#include <sys/resource.h>

#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/start_thread.h"
#include "base/tcp.h"
#include "cli/acceptance_vector.h"
#include "cli/batch.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/keys.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "server/engine_backend.h"
#include "server/http/http_server.h"
#include "server/service.h"

namespace coppice::cli {
namespace {

using server::LogLevel;

constexpr std::int32_t largest_port = 65535, most_waiting = 1 << 20, largest_body_mib = 1024;
/// What no option and no file says.
constexpr std::int32_t open_length = std::numeric_limits<std::int32_t>::max();

po::options_description server_options() {
  po::options_description d("Server");
  d.add_options()("host", po::value<std::string>()->default_value("127.0.0.1")->value_name("ADDR"),
                  "address to listen on; 0.0.0.0: every one of this machine")(
      "port", po::value<std::int32_t>()->default_value(8080)->value_name("N"),
      "0: any that is free, which the first line names")(
      "api-key", po::value<std::string>()->value_name("FILE|env:NAME"),
      "let in requests with one of the keys in this file, a key a line, or in this variable of the "
      "environment; if not given, everybody")(
      "model-name", po::value<std::string>()->value_name("NAME"),
      "the model's name for clients; if not given, its folder's or file's")(
      "chat-template", po::value<std::string>()->value_name("FILE"),
      "a Jinja file in place of the model's own chat template")(
      "parallel", po::value<std::int32_t>()->default_value(64)->value_name("N"),
      "texts that are written side by side at most; memory for keys and values may allow fewer")(
      "max-queue", po::value<std::int32_t>()->default_value(256)->value_name("N"),
      "texts that may wait beside those; further requests are refused with 429")(
      "max-tree-size", po::value<std::int32_t>()->default_value(64)->value_name("N"),
      "the largest tree that a request may ask for")(
      "max-body", po::value<std::int32_t>()->default_value(16)->value_name("MIB"),
      "the largest body of a request")(
      "allow-origin", po::value<std::string>()->value_name("ORIGIN"),
      "let pages of this origin ask, such as https://example.org, or * for all; if not given, only "
      "the server's own page")(
      "log",
      po::value<std::string>()->default_value("requests")->value_name("none|requests|prompts"),
      "JSON lines on standard error: a line for each answer and text; prompts: with what was asked "
      "and written");
  return d;
}

LogLevel log_level(const std::string& text) {
  if (text == "none") return LogLevel::none;
  if (text == "requests") return LogLevel::requests;
  if (text == "prompts") return LogLevel::prompts;
  throw_usage(cat("--log ", quote(text), ": use none, requests or prompts"));
}

std::string model_name(const po::variables_map& values, const EngineOptions& engine) {
  if (values.count("model-name") != 0) return text_in(values, "model-name");
  if (values.count("target") == 0) return "stories";
  std::filesystem::path path = std::filesystem::absolute(engine.target).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

/// Lets the process have as many connections as the system allows it.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));  // else fewer are accepted
}

/// Measures costs and prepares passes, for which the first request would wait.
void warm_up(Engine& engine, GenerateOptions request) {
  request.max_new_tokens = 8;
  request.min_new_tokens = 0;
  request.ignore_eos = true;
  engine.generate("Hello", request);
  engine.drop_cache();
}

/// The thread that answers, until the server is drained or stopped.
class Running {
 public:
  explicit Running(server::HttpServer& server)
      : server_(server), thread_(start_thread([&server] { server.run(); })) {}
  ~Running() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }
  void wait() { thread_.join(); }

 private:
  server::HttpServer& server_;
  std::thread thread_;
};

/// Why the server ends by itself: the first reason that is given.
class Loss {
 public:
  void note(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (why_.empty()) why_ = why;
    }
    source_.request_stop();
  }
  std::string why() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }
  std::stop_token token() const { return source_.get_token(); }

 private:
  mutable std::mutex mutex_;
  std::string why_;
  std::stop_source source_;
};

}  // namespace

int serve(const std::vector<std::string>& arguments) {
  UsualValues usual;
  usual.temperature = 1.0;
  usual.seed = "random for each request";
  po::options_description all;
  all.add(server_options())
      .add(model_options())
      .add(sampling_options(usual))
      .add(drafting_options(usual));
  po::variables_map values;
  if (!parse(
          arguments, all,
          "coppice serve: answer OpenAI's and Anthropic's APIs over HTTP\n\n"
          "  coppice serve\n"
          "  coppice serve --target MODEL --draft MODEL --port 8000 --api-key keys.txt\n"
          "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\"}'\n\n"
          "Options of sampling and speculation are for requests that say nothing of them. "
          "Sampling\nis as generation_config.json of the target says, unless options say "
          "otherwise.\n",
          values)) {
    return 0;
  }
  if (values.count("seed") != 0) {
    throw_usage("--seed: every request has a seed of its own; send it as \"seed\"");
  }
  GenerateOptions request = generate_options(values);
  const std::int32_t usual_length = std::exchange(request.max_new_tokens, open_length);
  server::HttpLimits limits;
  limits.body_bytes = static_cast<std::size_t>(count_in(values, "max-body", 1, largest_body_mib))
                      << 20;
  const std::string host = text_in(values, "host");
  const auto port = static_cast<std::uint16_t>(count_in(values, "port", 0, largest_port));
  server::ServiceOptions options;
  options.keys = keys_in("api-key", text_in(values, "api-key"));
  options.max_queue = count_in(values, "max-queue", 0, most_waiting);
  options.allow_origin = text_in(values, "allow-origin");
  if (TcpAddress{host, port}.is_loopback() && options.keys.empty()) options.local_host = host;
  const LogLevel level = log_level(text_in(values, "log"));

  EngineOptions engine_request = engine_options(values, request.speculation);
  engine_request.max_tree_size =
      std::max(engine_request.max_tree_size, count_in(values, "max-tree-size", 1, 2048));
  engine_request.max_sequences = parallel_texts(values, most_waiting);
  for (const std::string& line : take_recommended(engine_request.target, values, request)) {
    tell(line);
  }
  request.validate();
  read_acceptance_vector(values, engine_request, request);
  options.defaults.chat_stop = std::exchange(request.stop, {});
  if (request.max_new_tokens != open_length) {
    options.defaults.chat_max_tokens = request.max_new_tokens;
  }
  request.max_new_tokens = usual_length;
  options.defaults.options = request;
  options.defaults.model = model_name(values, engine_request);

  raise_file_limit();
  // What answers by these ends before them.
  ProgressLine progress;
  Loss loss;
  std::optional<Engine> engine;
  std::unique_ptr<server::Backend> backend;
  server::Log log(level, [](const std::string& line) { std::cerr << line << std::flush; });
  server::Service service(options, log);
  server::HttpServer http(host, port, limits, service);
  Running running(http);  // says that the model is being loaded

  engine_request.progress = [&](const LoadEvent& event) { progress.show(event); };
  engine.emplace(Engine::load(engine_request));
  progress.clear();
  if (!engine->has_tokenizer()) engine->detokenize({});  // throws, and says why there is none
  tell_of_plain(values, engine_request);
  warm_up(*engine, request);
  // Made last, so that what the warm-up did does not count as traffic.
  backend = server::make_engine_backend(*engine, text_in(values, "chat-template"),
                                        [&loss](const std::string& why) { loss.note(why); });
  service.open(*backend);
  http.watch_signals([](bool first) {
    tell(first ? "no more requests are taken; texts under way are finished (a second signal stops "
                 "them)"
               : "stopped");
  });
  const bool is_v6 = host.find(':') != host.npos;
  write_out(cat("coppice: listening on http://", is_v6 ? "[" : "", host, is_v6 ? "]" : "", ":",
                http.port(), " (model ", printable(options.defaults.model), ")\n"));
  const std::stop_callback on_loss(loss.token(), [&http] { http.drain(); });
  running.wait();
  if (const std::string why = loss.why(); !why.empty()) {
    throw_failure(cat("the server ends, as no more texts can be written: ", why));
  }
  return 0;
}

}  // namespace coppice::cli

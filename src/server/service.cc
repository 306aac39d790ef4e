#include "server/service.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/hex.h"
#include "base/secret.h"
#include "server/api/answers.h"
#include "server/api/api_error.h"
#include "server/api/chat.h"
#include "server/api/common.h"
#include "server/api/completions.h"
#include "server/api/fields.h"
#include "server/api/translated.h"
#include "server/page.h"
#include "server/talk/messages.h"
#include "server/texts.h"

namespace coppice::server {
namespace {

namespace asio = boost::asio;

constexpr std::size_t parsing_threads = 4;
constexpr std::string_view models_path = "/v1/models/", messages_path = "/v1/messages";

/// The name in a Host header, or in an origin, without the port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

/// Whether a route of this path serves `path`. Of models' paths the rest is a name.
bool serves(std::string_view route, std::string_view path) {
  return route == models_path ? path.starts_with(route) : path == route;
}

std::string url_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
                         hex_digit(text[i + 2]) >= 0;
    if (escaped) {
      decoded += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

Service::Service(ServiceOptions options, Log& log)
    : options_(std::move(options)),
      log_(log),
      since_(std::chrono::duration_cast<std::chrono::seconds>(
                 std::chrono::system_clock::now().time_since_epoch())
                 .count()),
      workers_(std::make_unique<asio::thread_pool>(parsing_threads)) {}

Service::~Service() { workers_->join(); }

void Service::open(Backend& backend) { backend_ = &backend; }

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> all = {
      {"GET", "/", &Service::page_of_chats, true, false},
      {"GET", "/health", &Service::health, true, false},
      {"GET", "/metrics", &Service::metrics, false, false},
      {"GET", "/props", &Service::props, false, false},
      {"GET", "/v1/models", &Service::models, false, false},
      {"GET", models_path, &Service::model, false, false},
      {"GET", "/tokenizer_info", &Service::tokenizer_info, false, false},
      {"POST", "/tokenize", &Service::tokenize, false, false},
      {"POST", "/detokenize", &Service::detokenize, false, false},
      {"POST", "/v1/completions", &Service::completions, false, true},
      {"POST", "/v1/chat/completions", &Service::chat_completions, false, true},
      {"POST", "/v1/responses", &Service::responses, false, true},
      {"POST", messages_path, &Service::messages, false, true},
      {"POST", "/v1/messages/count_tokens", &Service::count_tokens, false, false},
  };
  return all;
}

// Clients that are given an address without /v1 ask for the rest, as llama.cpp's server lets them.
std::string Service::full_path(std::string_view path) {
  const std::string full = cat("/v1", path);
  const bool is_short =
      std::ranges::any_of(routes(), [&](const Route& route) { return serves(route.path, full); });
  return is_short ? full : std::string(path);
}

// Null: no such path. Of a path with another method any of its routes.
const Service::Route* Service::route_of(const HttpRequest& request) {
  const Route* found = nullptr;
  const std::string path = full_path(request.path);
  const std::string_view method =
      request.method == "HEAD" ? "GET" : std::string_view(request.method);
  for (const Route& route : routes()) {
    if (!serves(route.path, path)) continue;
    found = &route;
    if (route.method == method) break;
  }
  return found;
}

std::optional<HttpAnswer> Service::screen(const HttpRequest& request) {
  if (!is_own_host(request)) {
    return error(request.path, 403,
                 "the Host header names another machine; use this one's address");
  }
  if (!takes_origin(request)) {
    return error(request.path, 403,
                 "pages of this origin may not ask; start the server with --allow-origin");
  }
  const Route* const route = route_of(request);
  if (route == nullptr) {
    return error(request.path, 404, cat("there is no ", quote(request.path), " here"));
  }
  if (request.method == "OPTIONS" && !options_.allow_origin.empty()) return std::nullopt;
  if (route->method != (request.method == "HEAD" ? "GET" : request.method)) {
    HttpAnswer answer = error(request.path, 405, cat("use ", route->method, " for ", request.path));
    answer.headers.emplace_back("Allow", std::string(route->method));
    return answer;
  }
  if (!route->open_to_all && !knows_key(request)) {
    HttpAnswer answer = error(
        request.path, 401, "a valid API key is missing; send it as \"Authorization: Bearer KEY\"",
        "", "invalid_api_key");
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    return answer;
  }
  if (backend_ == nullptr && request.path != "/metrics") {
    HttpAnswer answer = error(request.path, 503, "the model is being loaded");
    answer.headers.emplace_back("Retry-After", "2");
    return answer;
  }
  if (route->writes && texts_ >= most_texts()) return queue_is_full(request.path);
  return std::nullopt;
}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  if (request.method == "OPTIONS") {
    HttpAnswer answer{204, "", "text/plain"};
    answer.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    answer.headers.emplace_back(
        "Access-Control-Allow-Headers",
        "Authorization, Content-Type, X-Api-Key, X-Request-Id, Anthropic-Version");
    answer.headers.emplace_back("Access-Control-Max-Age", "600");
    return exchange->answer(std::move(answer));
  }
  const Route* const route = route_of(request);
  request.path = full_path(request.path);
  if (request.method != "POST") return run(*route, request, exchange);
  asio::post(*workers_, [this, route, asked = std::make_shared<HttpRequest>(std::move(request)),
                         exchange = std::move(exchange)] { run(*route, *asked, exchange); });
}

void Service::run(const Route& route, const HttpRequest& request, const Answer& exchange) {
  HttpAnswer answer;
  try {
    return (this->*route.run)(request, exchange);
  } catch (const ApiError& wrong) {
    answer = error(request.path, wrong.status(), wrong.what(), wrong.param(), wrong.code());
  } catch (...) {
    std::string message;
    const int status = status_of(std::current_exception(), message);
    answer = error(request.path, status, message);
  }
  exchange->answer(std::move(answer));
}

HttpAnswer Service::refusal(int status, std::string_view message) {
  return error("", status, std::string(message));
}

void Service::answered(const HttpRequest& request, int status, double seconds, bool whole) {
  const Route* const route = route_of(request);
  metrics_.answered(route != nullptr ? std::string(route->path) : "other", status);
  if (!log_.requests()) return;
  nlohmann::ordered_json line = {{"id", request.id},         {"peer", request.peer},
                                 {"method", request.method}, {"path", request.path},
                                 {"status", status},         {"seconds", seconds}};
  if (!whole) line["client_left"] = true;
  log_.write("request", line);
}

bool Service::knows_key(const HttpRequest& request) const {
  if (options_.keys.empty()) return true;
  std::string_view given = request.header("x-api-key").value_or("");
  const std::string_view authorization = request.header("authorization").value_or("");
  constexpr std::string_view scheme = "bearer ";
  const bool bearer = authorization.size() > scheme.size() &&
                      std::equal(scheme.begin(), scheme.end(), authorization.begin(),
                                 [](char a, char b) { return a == (b | 0x20) || a == b; });
  if (bearer) given = authorization.substr(scheme.size());
  bool known = false;
  for (const std::string& key : options_.keys) known = is_secret(given, key) || known;
  return known;
}

// A page elsewhere whose name was made to lead here (DNS rebinding) says its own name.
bool Service::is_own_host(const HttpRequest& request) const {
  if (options_.local_host.empty()) return true;
  const std::optional<std::string_view> host = request.header("host");
  if (!host) return true;  // no browser
  const std::string_view name = host_name(*host);
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]" || name.empty() ||
         name == options_.local_host;
}

bool Service::takes_origin(const HttpRequest& request) const {
  const std::optional<std::string_view> origin = request.header("origin");
  if (!origin || options_.allow_origin == "*" || *origin == options_.allow_origin) return true;
  const std::size_t scheme = origin->find("://");
  return scheme != origin->npos &&
         origin->substr(scheme + 3) == request.header("host").value_or("");
}

void Service::complete(const HttpRequest& request, HttpAnswer& answer) const {
  if (options_.allow_origin.empty() || !request.header("origin")) return;
  answer.headers.emplace_back("Access-Control-Allow-Origin", options_.allow_origin);
  answer.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  answer.headers.emplace_back("Vary", "Origin");
}

HttpAnswer Service::error(std::string_view path, int status, const std::string& message,
                          const std::string& param, const std::string& code) const {
  if (full_path(path).starts_with(messages_path))
    return {status, to_text(messages_error(status, message))};
  return {status, to_text(error_json(status, message, param, code))};
}

HttpAnswer Service::queue_is_full(std::string_view path) const {
  HttpAnswer answer = error(path, 429, "too many texts wait; ask again later", "", "queue_full");
  answer.headers.emplace_back("Retry-After", "1");
  return answer;
}

std::int32_t Service::most_texts() const {
  const Backend* const backend = backend_;
  return (backend != nullptr ? backend->facts().parallel : 0) + options_.max_queue;
}

void Service::page_of_chats(const HttpRequest&, const Answer& exchange) {
  exchange->answer({200,
                    std::string(page()),
                    "text/html; charset=utf-8",
                    {{"Cache-Control", "no-cache"},
                     {"Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                      "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'"}}});
}

void Service::health(const HttpRequest&, const Answer& exchange) {
  exchange->answer({200, to_text({{"status", "ok"}})});
}

void Service::metrics(const HttpRequest&, const Answer& exchange) {
  EngineStatistics statistics;
  if (const Backend* const backend = backend_) statistics = backend->statistics();
  exchange->answer({200, metrics_.text(statistics), "text/plain; version=0.0.4; charset=utf-8"});
}

void Service::props(const HttpRequest&, const Answer& exchange) {
  const BackendFacts& facts = backend_.load()->facts();
  const GenerateOptions& options = options_.defaults.options;
  const Json json = {{"default_generation_settings",
                      {{"n_ctx", facts.context_length},
                       {"params",
                        {{"temperature", options.sampling.temperature},
                         {"top_k", options.sampling.top_k},
                         {"top_p", options.sampling.top_p},
                         {"min_p", options.sampling.min_p},
                         {"repeat_penalty", options.sampling.repetition_penalty},
                         {"stop", options.stop}}}}},
                     {"total_slots", facts.parallel},
                     {"model_alias", options_.defaults.model},
                     {"model_path", facts.target},
                     {"draft_path", text_or_null(facts.draft)},
                     {"chat_template", facts.chat_template},
                     {"bos_token", facts.bos_text},
                     {"eos_token", facts.eos_text},
                     {"modalities", {{"vision", false}, {"audio", false}}},
                     {"device", facts.device},
                     {"kv_tokens", facts.kv_tokens},
                     {"max_tree_size", facts.max_tree_size},
                     {"policy", name_of(options.speculation)},
                     {"system_fingerprint", facts.fingerprint},
                     {"build_info", cat("coppice ", version())}};
  exchange->answer({200, to_text(json)});
}

namespace {

Json model_json(const std::string& name, std::int64_t created, const BackendFacts& facts) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "coppice"},
          {"max_model_len", facts.context_length},
          {"meta", {{"n_ctx_train", facts.context_length}, {"n_vocab", facts.vocab_size}}}};
}

}  // namespace

void Service::models(const HttpRequest&, const Answer& exchange) {
  const Json model = model_json(options_.defaults.model, since_, backend_.load()->facts());
  exchange->answer({200, to_text({{"object", "list"}, {"data", Json::array({model})}})});
}

void Service::model(const HttpRequest& request, const Answer& exchange) {
  const std::string name = url_decoded(std::string_view(request.path).substr(models_path.size()));
  if (name != options_.defaults.model) {
    throw ApiError(404, cat("The model ", quote(name), " does not exist"), "model",
                   "model_not_found");
  }
  exchange->answer(
      {200, to_text(model_json(options_.defaults.model, since_, backend_.load()->facts()))});
}

// As vLLM has it, for clients that have no tokenizer of their own.
void Service::tokenizer_info(const HttpRequest&, const Answer& exchange) {
  const BackendFacts& facts = backend_.load()->facts();
  exchange->answer({200, to_text({{"bos_token", text_or_null(facts.bos_text)},
                                  {"eos_token", text_or_null(facts.eos_text)},
                                  {"pad_token", Json()},
                                  {"model_max_length", facts.context_length},
                                  {"chat_template", text_or_null(facts.chat_template)}})});
}

// llama.cpp's fields and vLLM's.
void Service::tokenize(const HttpRequest& request, const Answer& exchange) {
  const Json json = parse_object(request.body);
  Backend& backend = *backend_.load();
  Fields fields(json);
  read_model(fields, options_.defaults.model);
  std::vector<TokenId> tokens;
  if (fields.find("messages") != nullptr) {
    tokens = read_chat_prompt(json, backend, options_.defaults);
    fields.ignore({"tools", "add_generation_prompt", "chat_template_kwargs"});
  } else {
    std::optional<std::string> text = fields.text("content");
    if (!text) text = fields.text("prompt");
    if (!text) throw ApiError(400, "content: it is missing", "content", "missing_field");
    const bool vllm = fields.find("prompt") != nullptr;
    std::optional<bool> special = fields.boolean("add_special");
    if (!special) special = fields.boolean("add_special_tokens");
    tokens = backend.tokenize(*text, special.value_or(vllm));
  }
  const bool pieces = fields.boolean("with_pieces").value_or(false);
  fields.refuse_others();
  Json list = Json::array();
  for (const TokenId token : tokens) {
    if (pieces) {
      list.push_back({{"id", token}, {"piece", shown(backend.token(token))}});
    } else {
      list.push_back(token);
    }
  }
  exchange->answer({200, to_text({{"tokens", std::move(list)},
                                  {"count", tokens.size()},
                                  {"max_model_len", backend.facts().context_length}})});
}

void Service::detokenize(const HttpRequest& request, const Answer& exchange) {
  const Json json = parse_object(request.body);
  Backend& backend = *backend_.load();
  Fields fields(json);
  read_model(fields, options_.defaults.model);
  const Json* const tokens = fields.list("tokens");
  if (tokens == nullptr) throw ApiError(400, "tokens: it is missing", "tokens", "missing_field");
  fields.refuse_others();
  const std::string text =
      tokens->empty() ? "" : backend.detokenize(token_ids("tokens", *tokens, backend));
  exchange->answer({200, to_text({{"content", text}, {"prompt", text}})});
}

void Service::completions(const HttpRequest& request, const Answer& exchange) {
  write(request, exchange, read_completion(request.body, *backend_.load(), options_.defaults));
}

void Service::chat_completions(const HttpRequest& request, const Answer& exchange) {
  write(request, exchange,
        read_chat(parse_object(request.body), *backend_.load(), options_.defaults));
}

void Service::responses(const HttpRequest& request, const Answer& exchange) {
  write(request, exchange,
        read_response(parse_object(request.body), *backend_.load(), options_.defaults));
}

void Service::messages(const HttpRequest& request, const Answer& exchange) {
  write(request, exchange,
        read_message(parse_object(request.body), *backend_.load(), options_.defaults));
}

void Service::count_tokens(const HttpRequest& request, const Answer& exchange) {
  exchange->answer({200, to_text(count_message_tokens(parse_object(request.body), *backend_.load(),
                                                      options_.defaults))});
}

void Service::write(const HttpRequest& request, const Answer& exchange, TextsJob job) {
  const std::int32_t texts = job.texts();
  std::int32_t before = texts_;
  do {
    // One that asks for more than there may ever be has its turn when nobody else is here.
    if (before > 0 && before + texts > most_texts()) {
      return exchange->answer(queue_is_full(request.path));
    }
  } while (!texts_.compare_exchange_weak(before, before + texts));
  if (log_.prompts()) log_.write("prompt", {{"id", request.id}, {"body", request.body}});
  TextsHooks hooks{metrics_,
                   log_,
                   request.id,
                   request.since,
                   [this, texts] { texts_ -= texts; },
                   [this, path = request.path](int status, const std::string& message) {
                     return error(path, status, message);
                   }};
  write_texts(*backend_.load(), std::move(job), exchange, std::move(hooks));
}

}  // namespace coppice::server

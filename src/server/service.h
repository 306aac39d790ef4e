// The APIs: which request goes where, who may ask, and how much at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/writer.h"
#include "server/backend.h"
#include "server/http/exchange.h"
#include "server/log.h"
#include "server/metrics.h"

namespace boost::asio {
class thread_pool;
}

namespace coppice::server {

struct ServiceOptions {
  ApiDefaults defaults;
  std::vector<std::string> keys;  ///< any of them is let in; none: everybody
  std::int32_t max_queue = 256;   ///< texts that may wait beside those that are written
  std::string allow_origin;       ///< a page of this origin may ask; "*": of any; "": its own alone
  std::string local_host;         ///< if not empty, only it and names of this machine are taken
};

class Service final : public HttpHandler {
 public:
  Service(ServiceOptions options, Log& log);
  /// Waits for requests that are being read.
  ~Service() override;

  /// From now on requests are answered; before, with 503. `backend` outlives what is answered.
  void open(Backend& backend);

  std::optional<HttpAnswer> screen(const HttpRequest& request) override;
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  void complete(const HttpRequest& request, HttpAnswer& answer) const override;
  HttpAnswer refusal(int status, std::string_view message) override;
  void answered(const HttpRequest& request, int status, double seconds, bool whole) override;

 private:
  using Answer = std::shared_ptr<Exchange>;
  struct Route {
    std::string_view method, path;
    void (Service::*run)(const HttpRequest& request, const Answer& exchange);
    bool open_to_all;  ///< needs no key
    bool writes;       ///< texts
  };
  static const std::vector<Route>& routes();
  static std::string full_path(std::string_view path);
  static const Route* route_of(const HttpRequest& request);

  void page_of_chats(const HttpRequest& request, const Answer& exchange);
  void health(const HttpRequest& request, const Answer& exchange);
  void metrics(const HttpRequest& request, const Answer& exchange);
  void props(const HttpRequest& request, const Answer& exchange);
  void models(const HttpRequest& request, const Answer& exchange);
  void model(const HttpRequest& request, const Answer& exchange);
  void tokenizer_info(const HttpRequest& request, const Answer& exchange);
  void tokenize(const HttpRequest& request, const Answer& exchange);
  void detokenize(const HttpRequest& request, const Answer& exchange);
  void completions(const HttpRequest& request, const Answer& exchange);
  void chat_completions(const HttpRequest& request, const Answer& exchange);
  void responses(const HttpRequest& request, const Answer& exchange);
  void messages(const HttpRequest& request, const Answer& exchange);
  void count_tokens(const HttpRequest& request, const Answer& exchange);

  bool knows_key(const HttpRequest& request) const;
  bool is_own_host(const HttpRequest& request) const;
  bool takes_origin(const HttpRequest& request) const;
  HttpAnswer error(std::string_view path, int status, const std::string& message,
                   const std::string& param = {}, const std::string& code = {}) const;
  HttpAnswer queue_is_full(std::string_view path) const;
  std::int32_t most_texts() const;
  void write(const HttpRequest& request, const Answer& exchange, TextsJob job);
  void run(const Route& route, const HttpRequest& request, const Answer& exchange);

  const ServiceOptions options_;
  Log& log_;
  Metrics metrics_;
  std::int64_t since_;  ///< seconds since 1970
  std::atomic<Backend*> backend_ = nullptr;
  std::atomic<std::int32_t> texts_ = 0;  ///< that are asked for and have not ended
  /// For what would hold up the I/O thread: parsing, templates, tokens, constraints.
  std::unique_ptr<boost::asio::thread_pool> workers_;
};

}  // namespace coppice::server

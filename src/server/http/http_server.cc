#include "server/http/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <list>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <unordered_set>

#include "base/error.h"
#include "base/stopwatch.h"

namespace coppice::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Failure = boost::system::error_code;

constexpr std::size_t most_pipelined = std::size_t{64} << 10;
constexpr double linger_seconds = 2.0;
constexpr double accept_pause_seconds = 0.1;
constexpr double memory_pause_seconds = 0.01;

std::chrono::steady_clock::duration seconds(double count) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(count));
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[40];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

std::string small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small;
}

// Log lines and answers repeat it, so that only harmless ones are taken.
bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == ':';
  });
}

std::string new_id() {
  static std::mt19937_64 random{std::random_device{}()};  // of the I/O thread
  char text[40];
  std::snprintf(text, sizeof text, "req_%016llx", static_cast<unsigned long long>(random()));
  return text;
}

/// What was asked for, without the body.
HttpRequest head_of(const http::request<http::string_body>& head, const std::string& peer) {
  HttpRequest request;
  request.method = std::string(head.method_string());
  request.peer = peer;
  std::string_view target(head.target().data(), head.target().size());
  if (const std::size_t scheme = target.find("://");
      scheme != target.npos && !target.starts_with('/')) {
    const std::size_t path = target.find('/', scheme + 3);
    target = path == target.npos ? "/" : target.substr(path);
  }
  request.path = std::string(target.substr(0, target.find('?')));
  for (const auto& field : head) {
    request.headers.emplace_back(
        small_letters({field.name_string().data(), field.name_string().size()}),
        std::string(field.value()));
  }
  const std::optional<std::string_view> id = request.header("x-request-id");
  request.id = id && is_id(*id) ? std::string(*id) : new_id();
  return request;
}

std::string chunk(std::string_view bytes) {
  char length[24];
  std::snprintf(length, sizeof length, "%zx\r\n", bytes.size());
  return std::string(length).append(bytes).append("\r\n");
}

}  // namespace

/// Accepts clients and knows who is connected. For the I/O thread, unless said otherwise.
class HttpServer::Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(const std::string& host, std::uint16_t port, const HttpLimits& most, HttpHandler& with)
      : limits(most), handler(with), acceptor_(io), pause_(io), signals_(io) {
    Failure failure;
    tcp::resolver resolver(io);
    const auto found =
        resolver.resolve(host, std::to_string(port), tcp::resolver::passive, failure);
    if (failure || found.empty()) {
      throw_usage(cat("--host ", quote(host),
                      ": no such address; use 127.0.0.1 for this machine alone, 0.0.0.0 for all"));
    }
    const tcp::endpoint place = found.begin()->endpoint();
    const auto tried = [&](auto what) {
      if (failure) return;
      what();
    };
    tried([&] { acceptor_.open(place.protocol(), failure); });
    tried([&] { acceptor_.set_option(tcp::acceptor::reuse_address(true), failure); });
    tried([&] { acceptor_.bind(place, failure); });
    tried([&] { acceptor_.listen(asio::socket_base::max_listen_connections, failure); });
    if (failure) {
      throw_failure(cat("cannot listen on ", host, " port ", port, ": ", failure.message(),
                        "; choose another --port or --host"));
    }
    port_ = acceptor_.local_endpoint().port();
  }

  std::uint16_t port() const { return port_; }
  bool draining() const { return draining_; }

  void run() {
    for (;;) {
      try {
        release_left();
        accept();
        if (told_) await_signal();
        return void(io.run());
      } catch (const std::bad_alloc&) {
        // Who lacked it is left: his connection ends, if nothing else waits for it. The others go
        // on.
        std::this_thread::sleep_for(seconds(memory_pause_seconds));
        if (!draining_) io.restart();  // nobody was waited for
      }
    }
  }
  void watch_signals(std::function<void(bool first)> told) {
    for (const int signal : {SIGTERM, SIGINT}) signals_.add(signal);
    told_ = std::move(told);
    await_signal();
  }
  void drain();
  void stop();

  void add(Connection& connection) { connections_.insert(&connection); }
  void remove(Connection& connection) {
    connections_.erase(&connection);
    if (waiting_ && connections_.size() < limits.connections) accept();
    end_if_drained();
  }

  /// A connection that a released Answer had.
  struct Left {
    std::shared_ptr<Connection> connection;
    std::uint64_t number = 0;
    bool answered = false;
  };
  /// Has the I/O thread release it, so that a connection never dies on another one. From any
  /// thread; takes a list of one, as there may be no memory for another.
  void leave(std::list<Left>&& one) noexcept {
    {
      const std::lock_guard lock(left_mutex_);
      left_.splice(left_.end(), one);
    }
    try {
      asio::post(io, [self = shared_from_this()] { self->release_left(); });
    } catch (const std::bad_alloc&) {
      // The next one, or the next client, brings it about.
    }
  }
  void release_left();

  asio::io_context io{1};
  const HttpLimits limits;
  HttpHandler& handler;

 private:
  void accept();
  void accept_later();
  void await_signal();
  void end_if_drained() {
    if (draining_ && connections_.empty()) io.stop();
  }

  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::signal_set signals_;
  std::function<void(bool)> told_;
  std::unordered_set<Connection*> connections_;
  std::uint16_t port_ = 0;
  bool waiting_ = false;  ///< for somebody to leave
  bool awaiting_signal_ = false;
  /// Of the handler that waits for a client; asio may drop it for want of memory.
  std::weak_ptr<void> accepting_;
  std::mutex left_mutex_;
  std::list<Left> left_;
  bool draining_ = false;
};

/// A client. Its states: reads a header, reads a body, is answered, lingers until the client has
/// seen an answer that came before its request was whole. Lives as long as something of it is
/// pending. For the I/O thread.
class HttpServer::Connection : public std::enable_shared_from_this<Connection> {
  using Shared = std::shared_ptr<Connection>;

  /// Does it. Without memory for it the connection ends.
  template <typename Body>
  void or_close(const Body& body) {
    try {
      body();
    } catch (const std::bad_alloc&) {
      close();
    }
  }
  /// The same, when asio has done what it was asked for.
  template <typename Body>
  auto then(Body body) {
    return [self = shared_from_this(), body](const Failure& failure, std::size_t bytes) {
      self->or_close([&] { body(self, failure, bytes); });
    };
  }

 public:
  Connection(std::shared_ptr<Listener> listener, tcp::socket socket)
      : listener_(std::move(listener)), socket_(std::move(socket)), deadline_(listener_->io) {
    Failure ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    const tcp::endpoint peer = socket_.remote_endpoint(ignored);
    if (!ignored) peer_ = peer.address().to_string();
    listener_->add(*this);
  }
  ~Connection() { listener_->remove(*this); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void read_header() {
    state_ = State::header;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(listener_->limits.header_bytes));
    parser_->body_limit(listener_->limits.body_bytes);
    expire_after(first_ || buffer_.size() > 0 ? listener_->limits.header_seconds
                                              : listener_->limits.idle_seconds);
    // What is read first is waited for as long as a connection may idle, the rest no longer.
    if (buffer_.size() > 0) return parse_header();
    socket_.async_read_some(buffer_.prepare(4096),
                            then([](const Shared& self, const Failure& failure, std::size_t bytes) {
                              if (failure) return self->close();
                              self->buffer_.commit(bytes);
                              self->expire_after(self->listener_->limits.header_seconds);
                              self->parse_header();
                            }));
  }

  /// While no request is being answered: closes.
  void leave_if_idle() {
    if (state_ == State::header && !parser_->is_header_done() && buffer_.size() == 0) close();
  }
  void drop() { close(); }

  // The answer of the request at hand; `number` says which one, as answers may come late.
  void send(std::uint64_t number, HttpAnswer answer, bool stream);
  void send_more(std::uint64_t number, std::string_view bytes);
  void send_end(std::uint64_t number);
  void when_gone(std::uint64_t number, std::function<void()> gone) {
    if (!answers(number) || closed_) return gone();
    gone_.push_back(std::move(gone));
  }
  /// Does a part of an answer. Without memory for it the connection ends: no answer has a hole.
  template <typename Task>
  void or_break_off(std::uint64_t number, Task&& task) {
    try {
      task(*this);
    } catch (const std::bad_alloc&) {
      break_off(number);
    }
  }
  /// Closes, so that the client sees that something is missing.
  void break_off(std::uint64_t number) {
    if (answers(number)) close();
  }
  void abandon(std::uint64_t number) {
    if (!answers(number)) return;
    if (!begun_) {
      send(number, listener_->handler.refusal(500, "the request was dropped"), false);
    } else if (!ended_) {
      break_off(number);
    }
  }

 private:
  enum class State { header, body, answer, linger };

  bool answers(std::uint64_t number) const { return number == number_ && state_ == State::answer; }

  void expire_after(double count) {
    deadline_.expires_after(seconds(count));
    deadline_.async_wait([weak = weak_from_this(), number = ++deadlines_](const Failure& failure) {
      const auto self = weak.lock();
      if (failure || !self || number != self->deadlines_) return;
      self->or_close([&] { self->expire(); });
    });
  }
  // It may be on its way already.
  void expire_never() {
    ++deadlines_;
    deadline_.cancel();
  }
  void expire() {
    const bool partial = (state_ == State::header && buffer_.size() > 0) || state_ == State::body;
    if (!partial) return close();
    // The read under way is given up; its handler finds another state.
    refuse(408, state_ == State::body ? "the request's body came too slowly"
                                      : "the request's header came too slowly");
  }

  void parse_header() {
    since_ = now_seconds();
    http::async_read_header(socket_, buffer_, *parser_,
                            then([](const Shared& self, const Failure& failure, std::size_t) {
                              if (self->state_ == State::header) self->take_header(failure);
                            }));
  }

  void take_header(const Failure& failure) {
    if (failure) return refuse(failure);
    first_ = false;
    request_ = head_of(parser_->get(), peer_);
    keep_ = parser_->get().keep_alive();
    chunked_ = parser_->get().version() >= 11;
    head_only_ = request_.method == "HEAD";
    if (listener_->draining()) {
      return refuse(503, "the server is shutting down; ask another, or later");
    }
    if (std::optional<HttpAnswer> answer = listener_->handler.screen(request_)) {
      return refuse(std::move(*answer));
    }
    state_ = State::body;
    expire_after(listener_->limits.body_seconds);
    const auto expect = request_.header("expect");
    if (!expect || parser_->is_done()) return read_body();
    asio::async_write(socket_, asio::buffer(continue_line.data(), continue_line.size()),
                      then([](const Shared& self, const Failure& write_failure, std::size_t) {
                        if (write_failure) return self->close();
                        if (self->state_ == State::body) self->read_body();
                      }));
  }

  void read_body() {
    http::async_read(socket_, buffer_, *parser_,
                     then([](const Shared& self, const Failure& failure, std::size_t) {
                       if (self->state_ == State::body) self->take_body(failure);
                     }));
  }

  void take_body(const Failure& failure);

  void refuse(const Failure& failure) {
    using Error = http::error;
    if (failure == Error::header_limit) {
      return refuse(431, cat("the request's header has more than ", listener_->limits.header_bytes,
                             " bytes; shorten it"));
    }
    if (failure == Error::body_limit) {
      return refuse(413, cat("the request's body has more than ", listener_->limits.body_bytes,
                             " bytes; shorten it, or raise --max-body"));
    }
    const bool parser_says = failure.category() == make_error_code(Error::bad_method).category();
    const bool ended = failure == Error::end_of_stream || failure == Error::partial_message;
    if (!parser_says || ended) return close();
    refuse(400, cat("the request is no HTTP that is understood: ", failure.message()));
  }
  void refuse(int status, std::string_view message) {
    if (request_.id.empty()) request_.id = new_id();
    refuse(listener_->handler.refusal(status, message));
  }
  /// Answers a request that is not whole, and closes.
  void refuse(HttpAnswer answer) {
    const bool whole = parser_->is_done();
    begin_answer();
    if (!whole) keep_ = false;
    lingers_ = !whole;
    send(number_, std::move(answer), false);
  }

  void begin_answer() {
    state_ = State::answer;
    ++number_;
    begun_ = ended_ = lingers_ = told_ = false;
    expire_never();
  }

  // Sees a client leave, and keeps what it sends meanwhile.
  void watch() {
    if (watching_ || buffer_.size() >= most_pipelined) return;
    watching_ = true;
    socket_.async_read_some(buffer_.prepare(4096),
                            then([](const Shared& self, const Failure& failure, std::size_t bytes) {
                              self->watching_ = false;
                              self->buffer_.commit(bytes);
                              if (failure && failure != asio::error::operation_aborted)
                                return self->close();
                              if (self->state_ == State::answer && !self->done_)
                                return self->watch();
                              self->go_on();
                            }));
  }

  void queue(std::string bytes) {
    unsent_ += bytes;
    if (unsent_.size() > listener_->limits.unsent_bytes && begun_ && chunked_stream_) {
      return close();
    }
    flush();
  }
  void flush() {
    if (writing_ || closed_) return;
    if (sent_ == sending_.size()) {
      sending_ = std::exchange(unsent_, {});
      sent_ = 0;
    }
    if (sending_.empty()) {
      if (ended_) finish();
      return;
    }
    writing_ = true;
    expire_after(listener_->limits.write_seconds);
    socket_.async_write_some(
        asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
        then([](const Shared& self, const Failure& failure, std::size_t bytes) {
          self->writing_ = false;
          self->expire_never();
          if (failure) return self->close();
          self->sent_ += bytes;
          self->flush();
        }));
  }

  /// All has been sent.
  void finish() {
    listener_->handler.answered(request_, status_, now_seconds() - since_, true);
    told_ = true;
    request_ = {};
    gone_.clear();
    done_ = true;
    if (!watching_) return go_on();
    Failure ignored;
    socket_.cancel(ignored);  // then watch() goes on
  }
  void go_on() {
    if (closed_ || !std::exchange(done_, false)) return;
    if (keep_ && !listener_->draining()) return read_header();
    if (lingers_) return linger();
    close();
  }

  // A reset would take the answer from a client that is still sending.
  void linger() {
    state_ = State::linger;
    Failure ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    expire_after(linger_seconds);
    discard();
  }
  void discard() {
    socket_.async_read_some(asio::buffer(discarded_),
                            then([](const Shared& self, const Failure& failure, std::size_t) {
                              if (failure || self->closed_) return self->close();
                              self->discard();
                            }));
  }

  void close() {
    if (std::exchange(closed_, true)) return;
    const bool answering = state_ == State::answer && !told_;
    expire_never();
    Failure ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    if (answering) {
      listener_->handler.answered(request_, begun_ ? status_ : 499, now_seconds() - since_, false);
    }
    const std::vector<std::function<void()>> gone = std::exchange(gone_, {});
    for (const auto& tell : gone) tell();
  }

  static constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";

  const std::shared_ptr<Listener> listener_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::string peer_;
  State state_ = State::header;
  bool first_ = true, closed_ = false;
  // Of the request at hand.
  HttpRequest request_;
  std::uint64_t number_ = 0, deadlines_ = 0;
  double since_ = 0.0;
  bool keep_ = false, chunked_ = false, head_only_ = false;
  bool told_ = false;  ///< its handler was told of the answer
  // Of its answer.
  int status_ = 0;
  bool begun_ = false, ended_ = false, lingers_ = false, done_ = false, chunked_stream_ = false;
  bool watching_ = false, writing_ = false;
  std::string unsent_, sending_;
  std::size_t sent_ = 0;
  std::vector<std::function<void()>> gone_;
  std::array<char, 4096> discarded_{};
};

/// The exchange of one request of a connection.
class HttpServer::Answer final : public Exchange {
  template <typename Task>
  auto of_answer(Task task) {
    return [connection = connection_, number = number_, task = std::move(task)]() mutable {
      connection->or_break_off(number, task);
    };
  }

 public:
  Answer(std::shared_ptr<Listener> listener, std::shared_ptr<Connection> connection,
         std::uint64_t number)
      : listener_(std::move(listener)), connection_(std::move(connection)), number_(number) {}
  ~Answer() override {
    left_.front() = {std::move(connection_), number_, answered_.load()};
    listener_->leave(std::move(left_));
  }

  void answer(HttpAnswer answer) override {
    answered_ = true;
    on_thread([number = number_, answer = std::move(answer)](Connection& connection) mutable {
      connection.send(number, std::move(answer), false);
    });
  }
  void begin(HttpAnswer answer) override {
    on_thread([number = number_, answer = std::move(answer)](Connection& connection) mutable {
      connection.send(number, std::move(answer), true);
    });
  }
  void write(std::string bytes) override {
    on_thread([number = number_, bytes = std::move(bytes)](Connection& connection) {
      connection.send_more(number, bytes);
    });
  }
  void end() override {
    answered_ = true;
    on_thread([number = number_](Connection& connection) { connection.send_end(number); });
  }
  void when_gone(std::function<void()> gone) override {
    on_thread([number = number_, gone = std::move(gone)](Connection& connection) mutable {
      connection.when_gone(number, std::move(gone));
    });
  }
  void post(std::function<void()> task) override {
    asio::post(listener_->io, of_answer([task = std::move(task)](Connection&) { task(); }));
  }

 private:
  template <typename Task>
  void on_thread(Task task) {
    asio::dispatch(listener_->io, of_answer(std::move(task)));
  }

  const std::shared_ptr<Listener> listener_;
  std::shared_ptr<Connection> connection_;
  const std::uint64_t number_;
  std::atomic<bool> answered_ = false;
  std::list<Listener::Left> left_{1};
};

void HttpServer::Connection::take_body(const Failure& failure) {
  if (failure) return refuse(failure);
  std::string body = std::move(parser_->get().body());
  begin_answer();
  watch();
  HttpRequest handled = request_;
  handled.since = now_seconds();
  handled.body = std::move(body);
  listener_->handler.handle(std::move(handled),
                            std::make_shared<Answer>(listener_, shared_from_this(), number_));
}

void HttpServer::Connection::send(std::uint64_t number, HttpAnswer answer, bool stream) {
  if (!answers(number) || begun_ || closed_) return;
  begun_ = true;
  listener_->handler.complete(request_, answer);
  status_ = answer.status;
  chunked_stream_ = stream;
  if (stream && !chunked_) keep_ = false;
  if (listener_->draining()) keep_ = false;
  const auto reason = http::obsolete_reason(http::int_to_status(answer.status));
  std::string text =
      cat("HTTP/1.1 ", answer.status, ' ', std::string_view(reason.data(), reason.size()),
          "\r\nDate: ", date(), "\r\nServer: coppice\r\nContent-Type: ", answer.content_type,
          "\r\nX-Request-Id: ", request_.id, "\r\nX-Content-Type-Options: nosniff\r\n");
  for (const auto& [name, value] : answer.headers) text += cat(name, ": ", value, "\r\n");
  if (!stream) text += cat("Content-Length: ", answer.body.size(), "\r\n");
  if (stream && chunked_) text += "Transfer-Encoding: chunked\r\n";
  text += keep_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  if (!head_only_ && !answer.body.empty()) {
    text += stream && chunked_ ? chunk(answer.body) : answer.body;
  }
  ended_ = !stream;
  queue(std::move(text));
}

void HttpServer::Connection::send_more(std::uint64_t number, std::string_view bytes) {
  if (!answers(number) || !begun_ || ended_ || closed_ || bytes.empty()) return;
  queue(chunked_ ? chunk(bytes) : std::string(bytes));
}

void HttpServer::Connection::send_end(std::uint64_t number) {
  if (!answers(number) || !begun_ || ended_ || closed_) return;
  ended_ = true;
  queue(chunked_ ? "0\r\n\r\n" : "");
}

void HttpServer::Listener::release_left() {
  std::list<Left> left;
  {
    const std::lock_guard lock(left_mutex_);
    left.swap(left_);
  }
  for (const Left& one : left) {
    if (one.answered) continue;
    one.connection->or_break_off(one.number,
                                 [&](Connection& connection) { connection.abandon(one.number); });
  }
}

void HttpServer::Listener::accept() {
  if (draining_ || !accepting_.expired()) return;
  waiting_ = connections_.size() >= limits.connections;
  if (waiting_) return;
  auto waits = std::make_shared<bool>(true);
  accepting_ = waits;
  acceptor_.async_accept([self = shared_from_this(), waits = std::move(waits)](
                             const Failure& failure, tcp::socket socket) mutable {
    waits.reset();
    self->release_left();
    if (self->draining_) return;
    if (failure) return self->accept_later();  // no file descriptor is left, say
    std::make_shared<Connection>(self, std::move(socket))->read_header();
    self->accept();
  });
}

void HttpServer::Listener::accept_later() {
  pause_.expires_after(seconds(accept_pause_seconds));
  pause_.async_wait([self = shared_from_this()](const Failure& failure) {
    if (!failure) self->accept();
  });
}

void HttpServer::Listener::await_signal() {
  if (awaiting_signal_) return;
  signals_.async_wait([this](const Failure& failure, int) {
    awaiting_signal_ = false;
    if (failure) return;
    const bool first = !draining_;
    if (told_) told_(first);
    if (first) {
      drain();
    } else {
      stop();
    }
    await_signal();
  });
  awaiting_signal_ = true;
}

void HttpServer::Listener::drain() {
  if (std::exchange(draining_, true)) return;
  Failure ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  std::vector<std::shared_ptr<Connection>> connections;
  for (Connection* const connection : connections_) {
    connections.push_back(connection->shared_from_this());
  }
  for (const auto& connection : connections) connection->leave_if_idle();
  connections.clear();
  end_if_drained();
}

void HttpServer::Listener::stop() {
  drain();
  std::vector<std::shared_ptr<Connection>> connections;
  for (Connection* const connection : connections_) {
    connections.push_back(connection->shared_from_this());
  }
  for (const auto& connection : connections) connection->drop();
  connections.clear();
  end_if_drained();
}

HttpServer::HttpServer(const std::string& host, std::uint16_t port, const HttpLimits& limits,
                       HttpHandler& handler)
    : listener_(std::make_shared<Listener>(host, port, limits, handler)) {}

// Handlers that are pending hold connections, and these the listener.
HttpServer::~HttpServer() {
  listener_->stop();
  listener_->io.restart();
  while (listener_->io.poll() > 0) {
  }
  listener_->release_left();
}

std::uint16_t HttpServer::port() const { return listener_->port(); }
void HttpServer::run() { listener_->run(); }
void HttpServer::watch_signals(std::function<void(bool first)> told) {
  asio::post(listener_->io, [listener = listener_.get(), told = std::move(told)]() mutable {
    listener->watch_signals(std::move(told));
  });
}
void HttpServer::drain() {
  asio::post(listener_->io, [listener = listener_.get()] { listener->drain(); });
}
void HttpServer::stop() {
  asio::post(listener_->io, [listener = listener_.get()] { listener->stop(); });
}

}  // namespace coppice::server

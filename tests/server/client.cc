#include "client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "base/stopwatch.h"

namespace coppice::testing {

std::vector<std::string> Reply::events() const {
  std::vector<std::string> events;
  constexpr std::string_view mark = "data: ";
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    const std::string_view line = std::string_view(body).substr(at, end - at);
    if (line.starts_with(mark)) events.emplace_back(line.substr(mark.size()));
    at = end + 1;
  }
  return events;
}

Client::Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
}

Client::~Client() { close(); }

void Client::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool Client::more(double seconds) {
  if (socket_ < 0) return false;
  pollfd one{socket_, POLLIN, 0};
  if (::poll(&one, 1, std::max(0, static_cast<int>(seconds * 1e3))) <= 0) return false;
  char bytes[16384];
  const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
  if (count <= 0) return false;
  buffer_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

std::string Client::read_some(double seconds) {
  const double end = now_seconds() + seconds;
  std::size_t head = std::string::npos;
  while ((head = buffer_.find("\r\n\r\n")) == std::string::npos || head + 4 == buffer_.size()) {
    if (!more(end - now_seconds())) break;
  }
  return buffer_;
}

bool Client::is_closed(double seconds) {
  const double end = now_seconds() + seconds;
  while (more(end - now_seconds())) {
  }
  if (now_seconds() >= end) return false;
  char byte = 0;
  return ::recv(socket_, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN;
}

Reply Client::read(double seconds) {
  const double end = now_seconds() + seconds;
  Reply reply;
  const auto until = [&](auto there) {
    while (!there()) {
      if (!more(end - now_seconds())) return false;
    }
    return true;
  };
  std::size_t head = 0;
  if (!until([&] { return (head = buffer_.find("\r\n\r\n")) != std::string::npos; })) return reply;
  const std::string text = buffer_.substr(0, head + 2);
  buffer_.erase(0, head + 4);
  reply.status = std::atoi(text.c_str() + text.find(' '));
  for (std::size_t at = text.find("\r\n") + 2; at < text.size();) {
    const std::size_t line = text.find("\r\n", at), colon = text.find(':', at);
    std::string name = text.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    reply.headers[name] = text.substr(colon + 2, line - colon - 2);
    at = line + 2;
  }
  if (reply.status < 200) {  // another answer follows
    reply.whole = true;
    return reply;
  }
  if (reply.headers.contains("content-length")) {
    const std::size_t length = std::stoul(reply.headers["content-length"]);
    reply.whole = until([&] { return buffer_.size() >= length; });
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, reply.body.size());
    return reply;
  }
  if (!reply.headers.contains("transfer-encoding")) {
    until([] { return false; });
    reply.body = std::exchange(buffer_, {});
    reply.whole = true;
    return reply;
  }
  while (true) {
    std::size_t line = 0;
    if (!until([&] { return (line = buffer_.find("\r\n")) != std::string::npos; })) return reply;
    const std::size_t length = std::stoul(buffer_.substr(0, line), nullptr, 16);
    if (!until([&] { return buffer_.size() >= line + 2 + length + 2; })) return reply;
    reply.body += buffer_.substr(line + 2, length);
    buffer_.erase(0, line + 2 + length + 2);
    if (length == 0) break;
  }
  reply.whole = true;
  return reply;
}

std::string request_text(std::string_view method, std::string_view path, std::string_view body,
                         std::string_view headers) {
  std::string text = std::string(method) + " " + std::string(path) +
                     " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers);
  if (!body.empty()) {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return text + "\r\n" + std::string(body);
}

Reply ask(std::uint16_t port, std::string_view method, std::string_view path, std::string_view body,
          std::string_view headers) {
  Client client(port);
  client.send(request_text(method, path, body, headers));
  return client.read();
}

}  // namespace coppice::testing

#include "base/tcp.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;

/// Silence after which the system asks a peer whether it is there, and between and how often.
constexpr int idle_seconds = 10, interval_seconds = 5, probes = 3;

/// Longest that one of a host's addresses is waited for before the next is tried.
constexpr std::chrono::milliseconds longest_turn(60000);

std::string reason() { return std::strerror(errno); }

// Waits for an event of any descriptor; false once the time is over. Asks at least once: what has
// come counts, however late this process looks.
bool wait_for(std::span<pollfd> asked, Deadline deadline) {
  while (true) {
    int milliseconds = -1;
    if (deadline != no_deadline) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      milliseconds = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
    }
    const int ready = poll(asked.data(), asked.size(), milliseconds);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw_failure(cat("waiting for a connection: ", reason()));
    if (Clock::now() >= deadline) return false;
  }
}

bool wait_for(int descriptor, short events, Deadline deadline) {
  pollfd asked{descriptor, events, 0};
  return wait_for(std::span(&asked, 1), deadline);
}

std::vector<pollfd> asked_for_input(std::span<const int> descriptors) {
  std::vector<pollfd> asked;
  for (const int descriptor : descriptors) asked.push_back({descriptor, POLLIN, 0});
  return asked;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolved(const TcpAddress& address, int flags) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int status = getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &list);
  if (status != 0) throw_failure(cat(quote(address.host), ": ", gai_strerror(status)));
  return {list, freeaddrinfo};
}

// Says whether an address is one of loopback's, 127.0.0.0/8 or ::1.
bool reaches_this_machine_only(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& of = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(of.sin_addr.s_addr) >> 24 == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& of = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&of) || (IN6_IS_ADDR_V4MAPPED(&of) && of.s6_addr[12] == 127);
}

void set(int descriptor, int level, int option, int value) {
  static_cast<void>(setsockopt(descriptor, level, option, &value, sizeof(value)));
}

}  // namespace

bool TcpAddress::is_loopback() const {
  if (host == "localhost") return true;
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &list) != 0) return false;
  const Addresses addresses(list, freeaddrinfo);
  return reaches_this_machine_only(*list->ai_addr);
}

TcpAddress tcp_address(const std::string& option, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  TcpAddress address;
  if (colon != text.npos) {
    address.host = text.substr(0, colon);
    const char* const end = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    if (address.host.starts_with('[') && address.host.ends_with(']')) {
      address.host = address.host.substr(1, address.host.size() - 2);
    } else if (address.host.find(':') != text.npos) {
      address.host.clear();
    }
    const bool has_port = error == std::errc() && read == end && address.port != 0;
    if (has_port && !address.host.empty()) return address;
  }
  throw_usage(cat(option, " ", quote(text),
                  ": use HOST:PORT, such as 127.0.0.1:7300, with a port of 1 to 65535"));
}

TcpSocket::TcpSocket(int descriptor) : descriptor_(descriptor) {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, interval_seconds);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, probes);
}

TcpSocket::~TcpSocket() {
  if (descriptor_ >= 0) close(descriptor_);
}

TcpSocket TcpSocket::connect(const TcpAddress& address, Deadline deadline,
                             const std::function<void()>& waiting) {
  const Addresses addresses = resolved(address, 0);
  // A host of which nothing comes back must not keep the others from their turn. One that is far
  // away has more time in later rounds.
  for (std::chrono::milliseconds turn(1000);; turn = std::min(2 * turn, longest_turn)) {
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      const int descriptor =
          socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
      if (descriptor < 0) continue;
      TcpSocket made(descriptor);
      if (::connect(descriptor, at->ai_addr, at->ai_addrlen) == 0) return made;
      if (errno != EINPROGRESS) continue;
      int failure = 0;
      socklen_t size = sizeof(failure);
      if (wait_for(descriptor, POLLOUT, std::min(deadline, deadline_in(turn))) &&
          getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0) {
        return made;
      }
    }
    constexpr auto pause = std::chrono::milliseconds(100);
    if (Clock::now() + pause >= deadline) {
      throw_failure(cat("nobody listens at ", address.host, ":", address.port));
    }
    waiting();
    std::this_thread::sleep_for(pause);
  }
}

void TcpSocket::send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      throw_failure(cat("the connection is lost: ", reason()));
    } else if (!wait_for(descriptor_, POLLOUT, deadline)) {
      throw_failure("it takes nothing any more");
    }
  }
}

std::size_t TcpSocket::receive_some(std::span<std::byte> bytes) {
  const ssize_t read = recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (read > 0) return static_cast<std::size_t>(read);
  if (read == 0) throw_failure("the connection was closed");
  if (errno != EAGAIN && errno != EINTR) throw_failure(cat("the connection is lost: ", reason()));
  return 0;
}

void TcpSocket::receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::size_t come = receive_some(bytes);
    bytes = bytes.subspan(come);
    if (come == 0 && !wait_to_receive(deadline)) throw_failure("it sends nothing");
  }
}

bool TcpSocket::wait_to_receive(Deadline deadline) const {
  return wait_for(descriptor_, POLLIN, deadline);
}

void TcpSocket::shut_down() noexcept { static_cast<void>(shutdown(descriptor_, SHUT_RDWR)); }

TcpListener::TcpListener(const TcpAddress& address) {
  const Addresses addresses = resolved(address, AI_PASSIVE);
  std::string why = "it has no address";
  const auto refuse = [&] {
    for (const int descriptor : descriptors_) close(descriptor);
    throw_failure(cat(address.host, ":", address.port, ": cannot listen there (", why,
                      "); use an address of this machine and a free port"));
  };
  std::vector<std::span<const char>> bound;
  for (addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const std::span<const char> name(reinterpret_cast<const char*>(at->ai_addr), at->ai_addrlen);
    // Names may have an address twice.
    if (std::ranges::any_of(bound, [&](auto of) { return std::ranges::equal(of, name); })) continue;
    const int descriptor =
        socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (descriptor < 0) continue;
    set(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(descriptor, at->ai_addr, at->ai_addrlen) == 0 && listen(descriptor, 64) == 0) {
      bound.push_back(name);
      descriptors_.push_back(descriptor);
      is_loopback_ = is_loopback_ && reaches_this_machine_only(*at->ai_addr);
      continue;
    }
    const int failure = errno;
    why = reason();
    close(descriptor);
    // Nobody can come to an address that this machine lacks, but at one in use to another program.
    if (failure != EADDRNOTAVAIL) refuse();
  }
  if (descriptors_.empty()) refuse();
}

TcpListener::~TcpListener() {
  for (const int descriptor : descriptors_) close(descriptor);
}

std::uint16_t TcpListener::port() const {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(descriptors_.front(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

void TcpListener::wait(std::span<const TcpSocket* const> sockets, Deadline deadline) const {
  std::vector<pollfd> asked = asked_for_input(descriptors_);
  for (const TcpSocket* const socket : sockets) asked.push_back({socket->descriptor_, POLLIN, 0});
  static_cast<void>(wait_for(asked, deadline));
}

std::optional<TcpSocket> TcpListener::accept(Deadline deadline) {
  std::vector<pollfd> asked = asked_for_input(descriptors_);
  while (wait_for(asked, deadline)) {
    for (const pollfd& of : asked) {
      if (of.revents == 0) continue;
      const int descriptor = accept4(of.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (descriptor >= 0) return TcpSocket(descriptor);
      // One that left again is no reason to end.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        throw_failure(cat("taking a connection: ", reason()));
      }
    }
  }
  return std::nullopt;
}

}  // namespace coppice

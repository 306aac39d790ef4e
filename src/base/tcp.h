// TCP connections with time limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coppice {

/// Where a listener waits or a peer is: a name or number of a host, and a port.
struct TcpAddress {
  std::string host;
  std::uint16_t port = 0;

  /// It is a number that only this machine reaches, or "localhost".
  bool is_loopback() const;
};

/// "HOST:PORT" or "[HOST]:PORT", with a port above 0. Throws Error(usage) that names `option`.
TcpAddress tcp_address(const std::string& option, const std::string& text);

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline no_deadline = Deadline::max();
inline Deadline deadline_in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

/// Move-only owner of a connection. One thread may receive while another one sends.
class TcpSocket {
 public:
  explicit TcpSocket(int descriptor);
  TcpSocket(TcpSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  TcpSocket(const TcpSocket&) = delete;
  TcpSocket& operator=(const TcpSocket&) = delete;
  TcpSocket& operator=(TcpSocket&&) = delete;
  ~TcpSocket();

  /// Tries until somebody listens at the address. Throws Error(failure) once the time is over, or
  /// if the host is unknown. Calls waiting() between tries.
  static TcpSocket connect(
      const TcpAddress& address, Deadline deadline, const std::function<void()>& waiting = [] {});

  /// Sends all. Throws Error(failure) if the connection is lost or the time is over, here and
  /// below.
  void send(std::span<const std::byte> bytes, Deadline deadline);
  /// Takes what has come, at most so much; 0: nothing more has.
  std::size_t receive_some(std::span<std::byte> bytes);
  /// Fills `bytes`.
  void receive(std::span<std::byte> bytes, Deadline deadline);
  /// Waits until there is something to receive, or the end of the connection; false once the time
  /// is over.
  bool wait_to_receive(Deadline deadline) const;
  /// Ends what either thread waits for. From any thread.
  void shut_down() noexcept;

 private:
  friend class TcpListener;
  int descriptor_;
};

class TcpListener {
 public:
  /// Listens at all addresses of this machine that the host has. Throws Error(failure) where it
  /// cannot listen there.
  explicit TcpListener(const TcpAddress& address);
  TcpListener(const TcpListener&) = delete;
  TcpListener& operator=(const TcpListener&) = delete;
  ~TcpListener();

  std::uint16_t port() const;
  /// Only this machine reaches it.
  bool is_loopback() const { return is_loopback_; }
  /// Waits until somebody comes or one of the sockets has something to receive, or the time is
  /// over.
  void wait(std::span<const TcpSocket* const> sockets, Deadline deadline) const;
  /// nullopt: nobody came in time.
  std::optional<TcpSocket> accept(Deadline deadline);

 private:
  std::vector<int> descriptors_;
  bool is_loopback_ = true;
};

}  // namespace coppice

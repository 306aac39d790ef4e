#include "kernels/rank_link.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/start_thread.h"
#include "kernels/rank_failure.h"

namespace coppice {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Head {
  std::array<char, 8> magic;
  RankLink::Kind kind;
  std::uint32_t unused = 0;
  std::uint64_t bytes;
};
constexpr std::array<char, 8> magic = {'c', 'o', 'p', 'p', 'i', 'c', 'e', '1'};
/// Far above any pass or sum.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 34;
/// Longest first message of a link: until it has come, the peer may be a stranger.
constexpr std::uint64_t most_first_bytes = std::uint64_t{1} << 16;
/// Bytes that are made room for before any have come.
constexpr std::uint64_t first_piece = std::uint64_t{1} << 20;

std::span<const std::byte> bytes_of(const Head& head) { return std::as_bytes(std::span(&head, 1)); }

void check(const Head& head, std::uint64_t most) {
  if (head.magic != magic) throw_failure("it is no coppice of this kind");
  if (head.bytes > most) throw_failure("it sent a message that is too long");
}

Head receive_head(TcpSocket& socket, Deadline deadline, std::uint64_t most = most_bytes) {
  Head head{};
  socket.receive(std::as_writable_bytes(std::span(&head, 1)), deadline);
  check(head, most);
  return head;
}

// Takes no more memory than twice what has come, whatever the head announces. next_deadline() is
// of one piece.
template <typename NextDeadline>
std::vector<std::byte> receive_body(TcpSocket& socket, std::uint64_t bytes,
                                    const NextDeadline& next_deadline) {
  std::vector<std::byte> body;
  while (body.size() < bytes) {
    const std::size_t come = body.size();
    body.resize(std::min<std::uint64_t>(bytes, std::max<std::uint64_t>(2 * come, first_piece)));
    socket.receive(std::span(body).subspan(come), next_deadline());
  }
  return body;
}

/// Time for telling the other side why this one gives up.
constexpr std::chrono::milliseconds last_words(1000);

}  // namespace

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void RankLink::send(TcpSocket& socket, Kind kind, std::string_view text, Deadline deadline) {
  socket.send(bytes_of(Head{magic, kind, 0, text.size()}), deadline);
  socket.send(coppice::bytes_of(text), deadline);
}

std::optional<std::string> RankLink::take_hello(TcpSocket& socket, std::string& come) {
  while (true) {
    std::size_t wanted = sizeof(Head);
    if (come.size() >= wanted) {
      Head head{};
      std::memcpy(&head, come.data(), sizeof(head));
      check(head, most_bytes);
      if (head.kind != Kind::hello || head.bytes > most_hello_bytes) {
        throw_failure("it says no hello");
      }
      wanted += head.bytes;
      if (come.size() == wanted) return come.substr(sizeof(head));
    }
    const std::size_t before = come.size();
    come.resize(wanted);
    const std::size_t more =
        socket.receive_some(std::as_writable_bytes(std::span(come)).subspan(before));
    come.resize(before + more);
    if (more == 0) return std::nullopt;
  }
}

RankLink::RankLink(TcpSocket socket, std::string other, std::chrono::milliseconds patience,
                   bool beats)
    : socket_(std::move(socket)),
      other_(std::move(other)),
      patience_(patience),
      beats_(beats),
      reader_(start_thread([this] { read_messages(); })) {}

RankLink::~RankLink() {
  {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [&] { return !tells_; });
  }
  socket_.shut_down();
  reader_.join();
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  leaving_.notify_all();
  if (beater_.joinable()) beater_.join();
}

void RankLink::begin_beating(std::chrono::milliseconds others_patience) {
  const auto between = std::max(others_patience / 4, std::chrono::milliseconds(1));
  beater_ = start_thread([this, between] { beat(between); });
}

void RankLink::beat(std::chrono::milliseconds between) {
  try {
    std::unique_lock lock(mutex_);
    while (!leaving_.wait_for(lock, between, [&] { return leaves_; })) {
      lock.unlock();
      send(Kind::beat, "");
      lock.lock();
    }
  } catch (const std::exception&) {
    // The link is lost, and whoever uses it hears why.
  }
}

void RankLink::send(Kind kind, std::initializer_list<std::span<const std::byte>> parts) {
  require_sound();
  std::uint64_t bytes = 0;
  for (const auto part : parts) bytes += part.size();
  try {
    const std::lock_guard lock(sending_);
    const Deadline deadline = deadline_in(patience_);
    socket_.send(bytes_of(Head{magic, kind, 0, bytes}), deadline);
    for (const auto part : parts) socket_.send(part, deadline);
  } catch (const Error& error) {
    {
      // What the other side said last, which is why it ended, may be on its way.
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, last_words, [&] { return !why_.empty() || ended_; });
    }
    lose(cat(other_, ": ", error.what(), "; see why its process ended"));
    require_sound();
  }
}

void RankLink::send(Kind kind, std::string_view text) { send(kind, {coppice::bytes_of(text)}); }

RankLink::Message RankLink::receive(Kind kind) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return !messages_.empty() || !why_.empty() || ended_; };
  if (!news_.wait_for(lock, patience_, has_come)) throw_failure(late());
  if (messages_.empty()) require_hope();
  if (messages_.empty() || messages_.front().kind != kind) {
    throw_failure(cat(rank_subject, other_, " answers something else"));
  }
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

RankLink::Message RankLink::receive_any() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !messages_.empty() || !why_.empty() || ended_; });
  if (messages_.empty()) {
    require_hope();
    return {Kind::end, {}};
  }
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

void RankLink::receive_values(std::span<float> values) {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return !values_.empty() || !why_.empty() || ended_; };
  if (!news_.wait_for(lock, patience_, has_come)) throw_failure(late());
  require_hope();
  if (values_.empty() || values_.front().bytes.size() != values.size_bytes()) {
    throw_failure(cat(rank_subject, other_, " runs another pass"));
  }
  std::memcpy(values.data(), values_.front().bytes.data(), values.size_bytes());
  values_.pop_front();
}

void RankLink::abort(const std::string& why) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!why_.empty() || ended_) return;
      why_ = with_rank_subject(why);
      tells_ = true;
      news_.notify_all();
    }
    const std::unique_lock lock(sending_, last_words);
    if (lock.owns_lock()) {
      send(socket_, Kind::failed, why, deadline_in(last_words));
    } else {
      socket_.shut_down();  // ends what holds up the sender
    }
  } catch (...) {
    // The other side finds out by the end of the connection, or by its patience.
  }
  const std::lock_guard lock(mutex_);
  tells_ = false;
  news_.notify_all();
}

void RankLink::on_failure(std::function<void(const std::string& why)> hear) {
  const std::lock_guard hearing(hearing_);
  hear_ = std::move(hear);
  const std::string why = [&] {
    const std::lock_guard lock(mutex_);
    return why_;
  }();
  if (!why.empty() && hear_) std::exchange(hear_, {})(why);
}

void RankLink::read_messages() {
  try {
    const auto deadline = [&] { return beats_ ? deadline_in(patience_) : no_deadline; };
    for (std::uint64_t most = most_first_bytes;; most = most_bytes) {
      if (!socket_.wait_to_receive(deadline())) {
        abort(late());  // it may go on later, and is to say why it cannot
        return lose(late());
      }
      const Head head = receive_head(socket_, deadline(), most);
      Message message{head.kind, receive_body(socket_, head.bytes, deadline)};
      if (head.kind == Kind::beat) continue;
      if (head.kind == Kind::failed) return lose(std::string(text_of(message.bytes)));
      const std::lock_guard lock(mutex_);
      if (head.kind == Kind::end) {
        ended_ = true;
        news_.notify_all();
        return;
      }
      (head.kind == Kind::values ? values_ : messages_).push_back(std::move(message));
      news_.notify_all();
    }
  } catch (const std::exception& error) {
    lose(cat(other_, ": ", error.what(), "; see why its process ended"));
  }
}

void RankLink::lose(const std::string& why) {
  std::string first;
  {
    const std::lock_guard lock(mutex_);
    if (why_.empty()) why_ = with_rank_subject(why);
    first = why_;
    news_.notify_all();
  }
  const std::lock_guard hearing(hearing_);
  if (hear_) std::exchange(hear_, {})(first);
}

std::string RankLink::late() const {
  return cat(rank_subject, "nothing came from ", other_, " for ", seconds_of(patience_),
             " s; see what holds it up, and start again");
}

void RankLink::require_sound() {
  const std::lock_guard lock(mutex_);
  require_hope();
}

void RankLink::require_hope() const {
  if (!why_.empty()) throw_failure(why_);
}

}  // namespace coppice

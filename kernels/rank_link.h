// A connection between two processes that have ranks of one model.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/tcp.h"

namespace coppice {

/// Sends messages, in order, and takes in the other process's on a thread of its own, so that the
/// other's end is noticed while this process waits for a GPU.
///
/// The two processes trust each other once they have met (models/remote_ranks.h). Numbers are sent
/// as they lie in memory: both are little-endian.
class RankLink {
 public:
  enum class Kind : std::uint32_t {
    hello,    ///< of a process that wants to join
    welcome,  ///< what it is to run on
    ready,    ///< what memory it has
    load,     ///< what of the model it is to load
    loaded,   ///< it has
    pool,     ///< KV memory that it is to take
    pooled,   ///< it has
    pass,     ///< inputs of a pass that it is to run
    values,   ///< numbers of a sum over ranks
    failed,   ///< the sender gives up, and why
    end,      ///< the sender needs the other no more
    beat,     ///< the sender lives
  };
  struct Message {
    Kind kind;
    std::vector<std::byte> bytes;
  };

  /// Longest hello, the one message that a stranger may send.
  static constexpr std::uint64_t most_hello_bytes = 4096;
  static void send(TcpSocket& socket, Kind kind, std::string_view text, Deadline deadline);
  /// Takes in what has come of a hello, from whoever has connected, behind `come`. Returns its text
  /// once all has come, until then nullopt. Throws Error(failure) for anything else.
  static std::optional<std::string> take_hello(TcpSocket& socket, std::string& come);

  /// `other` names the peer in messages, as in "rank 1 of 2". Nothing waits longer for it than
  /// `patience`. A peer that `beats` is lost once it has sent nothing for so long.
  RankLink(TcpSocket socket, std::string other, std::chrono::milliseconds patience,
           bool beats = false);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  /// Throws Error(failure) once either side has given up, here and below. From any thread.
  void send(Kind kind, std::initializer_list<std::span<const std::byte>> parts);
  void send(Kind kind, std::string_view text);
  /// Sends a beat four times in `others_patience`, the patience of a peer that expects beats, for
  /// as long as the link lasts. Called once.
  void begin_beating(std::chrono::milliseconds others_patience);
  /// The next message but values: one of this kind, or, without limit of time, any.
  Message receive(Kind kind);
  Message receive_any();
  /// The next values, which must be as many.
  void receive_values(std::span<float> values);

  /// Gives up, and tells the other side. From any thread.
  void abort(const std::string& why) noexcept;
  /// Calls `hear(why)` once, from any thread, if the other side gives up or is lost; at once if it
  /// has. Replaces a former hear(), which is called no more once this returns. hear() may not call
  /// on_failure().
  void on_failure(std::function<void(const std::string& why)> hear);
  /// Throws Error(failure) if a side has given up. From any thread.
  void require_sound();

  const std::string& other() const { return other_; }
  std::chrono::milliseconds patience() const { return patience_; }

 private:
  void read_messages();
  void beat(std::chrono::milliseconds between);
  void lose(const std::string& why);
  std::string late() const;
  void require_hope() const;

  TcpSocket socket_;
  const std::string other_;
  const std::chrono::milliseconds patience_;
  const bool beats_;  ///< the other side does
  std::timed_mutex sending_;
  std::mutex mutex_;  ///< of what follows
  std::condition_variable news_;
  std::deque<Message> messages_, values_;
  std::string why_;     ///< a side gave up; empty: none did
  bool ended_ = false;  ///< the other side needs this one no more
  bool tells_ = false;  ///< this side gives up, and is about to say why
  bool leaves_ = false;
  std::condition_variable leaving_;
  std::mutex hearing_;  ///< of hear_; taken before mutex_
  std::function<void(const std::string&)> hear_;
  std::thread reader_, beater_;
};

/// Text and bytes of messages.
std::span<const std::byte> bytes_of(std::string_view text);
std::string_view text_of(std::span<const std::byte> bytes);

}  // namespace coppice

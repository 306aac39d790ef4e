// Where ranks that are threads of one process wait for each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace coppice {

/// Longest that a rank waits for the others before all give up. Ranks do the same work, so they are
/// never far apart unless one hangs.
inline constexpr std::chrono::milliseconds usual_patience = std::chrono::minutes(5);

class RankMeeting {
 public:
  RankMeeting(int ranks, std::chrono::milliseconds patience)
      : patience_(patience), shown_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(shown_.size()); }

  /// Returns when all ranks are here. Throws Error(failure) once one has given up, and if one is
  /// late.
  void meet(int rank);
  /// Takes all ranks out of their meetings, for good. From any thread.
  void abort(const std::string& why) noexcept;
  /// What a rank shows the others: set by itself before a meeting, read by all after it.
  float*& shown(int rank) { return shown_[static_cast<std::size_t>(rank)]; }

 private:
  void give_up(const std::string& why);
  void require_hope() const;

  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int arrived_ = 0;
  std::uint64_t meetings_ = 0;
  std::string why_;  ///< the ranks gave up; empty: they did not
  std::vector<float*> shown_;
};

}  // namespace coppice

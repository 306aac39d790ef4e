#include "kernels/rank_meeting.h"

#include "base/error.h"
#include "kernels/rank_failure.h"

namespace coppice {

void RankMeeting::meet(int rank) {
  std::unique_lock lock(mutex_);
  require_hope();
  const std::uint64_t meeting = meetings_;
  if (++arrived_ == ranks()) {
    arrived_ = 0;
    ++meetings_;
    all_here_.notify_all();
    return;
  }
  all_here_.wait_for(lock, patience_, [&] { return meetings_ != meeting || !why_.empty(); });
  if (meetings_ != meeting) return;
  if (why_.empty()) {
    give_up(cat("rank ", rank, " waited ", seconds_of(patience_),
                " s for the others; see what holds them up, and start again"));
  }
  require_hope();
}

void RankMeeting::abort(const std::string& why) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    give_up(why);
  } catch (...) {
    // Without memory for the reason the others find out by their patience.
  }
}

void RankMeeting::give_up(const std::string& why) {
  if (why_.empty()) why_ = why;
  all_here_.notify_all();
}

void RankMeeting::require_hope() const {
  if (!why_.empty()) throw_failure(with_rank_subject(why_));
}

}  // namespace coppice

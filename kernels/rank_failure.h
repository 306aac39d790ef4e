// How failures of models that are split over ranks are told.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/error.h"

namespace coppice {

inline constexpr std::string_view rank_subject = "tensor parallel: ";

/// Begins a line with the subject, which one that has come through another rank has already.
inline std::string with_rank_subject(const std::string& why) {
  return why.starts_with(rank_subject) ? why : cat(rank_subject, why);
}

inline std::string name_of_rank(int rank, int ranks) { return cat("rank ", rank, " of ", ranks); }

/// Says which rank has failed, unless `why` comes from another one.
inline std::string rank_failure(int rank, int ranks, const std::string& why) {
  if (why.starts_with(rank_subject)) return why;
  return cat(rank_subject, name_of_rank(rank, ranks), " failed: ", why);
}

/// As messages have it.
inline double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace coppice

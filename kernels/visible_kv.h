// Which query rows of a pass see which KV token.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace coppice {

/// A token whose KV was never computed: nothing attends to it, and nothing is written to it.
inline constexpr KvSlot no_slot = -1;

/// One KV token of a pass: the slot it lies in and the query rows [q_begin, q_end) that see it.
/// In depth-first order the queries that see a token of a tree are an interval.
struct VisibleKv {
  KvSlot slot = 0;
  std::int32_t q_begin = 0;
  std::int32_t q_end = 0;
};

}  // namespace coppice

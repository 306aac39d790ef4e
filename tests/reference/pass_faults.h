// Faults of the target's passes, for tests that must notice: changes of a pass's rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "verify/planted_faults.h"

namespace coppice::testing {

enum class PassFault {
  none,
  rope_by_index,        ///< rows are rotated by their place in the batch, not by their depth
  prefill_rows_ahead,   ///< a prefill row is seen by the row before it too
  prefill_rows_hidden,  ///< a prefill row is seen by prefill rows alone, not by root and tree
  logits_by_batch,      ///< logits are taken from rows counted from the text's first, of a prefill
                        ///< or not
  // These show where a pass has several texts:
  seen_by_neighbour,      ///< what a text has from before, by the next text's first row too
  shared_by_neighbour,    ///< what several texts share, by the first row behind theirs too
  slots_of_neighbour,     ///< the next text's are read
  position_of_neighbour,  ///< the next text's length says where the root is
  logits_of_neighbour,    ///< the next text's are judged
};

/// Lengthens the intervals of what several texts see by the row after them. `first`: the texts'
/// first rows, and the end of the last.
inline void lengthen_shared(std::span<KvSegment> segments, const std::vector<std::int32_t>& first) {
  for (KvSegment& segment : segments) {
    const auto inside = [&](std::int32_t row) {
      return segment.q_begin < row && row < segment.q_end;
    };
    if (segment.former && segment.q_end < first.back() && std::ranges::any_of(first, inside)) {
      ++segment.q_end;
    }
  }
}

inline void plant_in_prefill(PassFault fault, const PassRows& rows, const PassRows::Text& text) {
  for (std::int32_t row = 0; row < text.prefill; ++row) {
    KvSegment& own = rows.segments[text.own_segment + 1 + static_cast<std::size_t>(row)];
    if (fault == PassFault::prefill_rows_ahead && row > 0) --own.q_begin;
    if (fault == PassFault::prefill_rows_hidden) own.q_end = text.first + text.prefill;
  }
}

/// Plants what a text takes from the one whose rows follow.
inline void plant_neighbour(PassFault fault, const PassRows& rows, const PassRows::Text& text,
                            const PassRows::Text& next) {
  KvSegment &own = rows.segments[text.own_segment], &of_next = rows.segments[next.own_segment];
  if (fault == PassFault::seen_by_neighbour) ++own.q_end;
  if (fault == PassFault::slots_of_neighbour) std::swap(own.slots, of_next.slots);
  if (fault == PassFault::logits_of_neighbour) {
    // As far on as there are rows: what no pass wrote could be any token.
    *text.first_logits = std::min(*next.first_logits,
                                  static_cast<std::int32_t>(rows.logit_rows.size()) - text.nodes());
  }
  if (fault != PassFault::position_of_neighbour) return;
  for (std::int32_t row = text.first + text.prefill; row < text.end(); ++row) {
    rows.positions[static_cast<std::size_t>(row)] += next.state->length() - text.state->length();
  }
}

/// Returns what TargetRunner::change_passes() takes to plant the fault.
inline ChangePass faulty_passes(PassFault fault) {
  if (fault == PassFault::none) return {};
  if (fault == PassFault::rope_by_index) return rotate_by_index;
  return [fault](const PassRows& rows) {
    std::vector<std::int32_t> first;
    for (std::size_t t = 0; t < rows.texts.size(); ++t) {
      const PassRows::Text& text = rows.texts[t];
      first.push_back(text.first);
      plant_in_prefill(fault, rows, text);
      if (t + 1 < rows.texts.size()) plant_neighbour(fault, rows, text, rows.texts[t + 1]);
      if (fault != PassFault::logits_by_batch) continue;
      for (std::int32_t r = 0; r < text.nodes(); ++r) {
        rows.logit_rows[static_cast<std::size_t>(*text.first_logits + r)] = text.first + r;
      }
    }
    if (fault != PassFault::shared_by_neighbour) return;
    first.push_back(rows.texts.back().end());
    lengthen_shared(rows.segments, first);
  };
}

}  // namespace coppice::testing

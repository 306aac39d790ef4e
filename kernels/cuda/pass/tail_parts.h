// How the tail of a pass with several texts gets to the device: not token by token. Slots of long
// segments, which change little from pass to pass, are kept in a table there; what is sent are the
// segments, the slots that the table lacks, and short segments' tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host_device.h"
#include "kernels/visible_kv.h"

namespace coppice {

/// How many slots at the beginning of both lists are equal.
std::size_t equal_slots(const KvSlot* a, const KvSlot* b, std::size_t count);

/// Tokens [begin, end) of the tail: the first `kept` from the table, the others from the list.
struct TailPart {
  std::int32_t begin, end;
  std::int32_t kept;
  std::int32_t table;           ///< place in the table of the first token; -1: none is kept there
  std::int32_t list;            ///< place in the list of the first token that is there
  std::int32_t q_begin, q_end;  ///< of those in the table
  std::int32_t position = 0;    ///< of the first of those in the table

  /// A token of the tail, of this part. Where the table lacks it, it is put there.
  COPPICE_HOST_DEVICE VisibleKv token(std::int32_t at, KvSlot* slots,
                                      const VisibleKv* tokens) const {
    const std::int32_t i = at - begin;
    if (i < kept) return {slots[table + i], q_begin, q_end, position + i};
    const VisibleKv token = tokens[list + i - kept];
    if (table >= 0) slots[table + i] = token.slot;
    return token;
  }
};
static_assert(sizeof(TailPart) == 32);

/// Divides tails into parts, and knows what the table on the device holds. Allocates nothing once
/// it has seen the like of a pass.
class TailParts {
 public:
  /// Segments of fewer tokens are sent as they are.
  static constexpr std::int32_t shortest = 32;
  /// Several segments may begin with the same tokens, if these are at most so many.
  static constexpr std::int32_t longest_common = 64;

  /// `capacity`: slots of the table.
  explicit TailParts(std::int32_t capacity)
      : mirror_(static_cast<std::size_t>(capacity), no_slot) {}
  /// Slots that a table needs for tails of at most this many tokens.
  static std::int32_t table_capacity(std::int32_t tokens) { return 4 * tokens; }
  /// Most parts of a tail of at most this many tokens.
  static std::int32_t most_parts(std::int32_t tokens) { return 2 * (tokens / shortest) + 1; }

  /// Writes the list to `list`, which has room for all of the tail's tokens.
  void divide(std::span<const KvSegment> tail, VisibleKv* list);
  std::span<const TailPart> parts() const { return parts_; }
  /// Tokens of the list.
  std::int32_t listed() const { return listed_; }
  /// The parts are on their way to the device. Without it the table is not known any more.
  void depart() { departed_ = true; }

 private:
  /// A run of the table, found by a slot of its text.
  struct Place {
    std::int32_t begin = -1, capacity = 0;
    std::int32_t known = 0;  ///< slots that the table holds
    std::uint32_t pass = 0;  ///< that last used it: one segment of a pass may
  };
  void forget();
  Place* place_by_slot(std::span<const KvSlot> slots);
  Place* place_of(std::span<const KvSlot> slots);
  void list_tokens(const KvSegment& segment, std::int32_t from, VisibleKv* list);

  std::vector<KvSlot> mirror_;  ///< of the table
  std::vector<Place> places_;   ///< by slot
  std::int32_t used_ = 0;       ///< of the table
  bool full_ = false;
  bool departed_ = true;
  std::vector<TailPart> parts_;
  std::int32_t listed_ = 0;
  std::uint32_t pass_ = 0;
};

}  // namespace coppice

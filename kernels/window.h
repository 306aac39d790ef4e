// Sliding windows: which of a pass's KV tokens rows are too far from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host_device.h"
#include "kernels/visible_kv.h"

namespace coppice {

/// The position from which on rows do not see a key at `key_position` any more: that of the key and
/// `window` (AttentionRule), at least 1, behind it.
COPPICE_HOST_DEVICE constexpr std::int64_t window_end(std::int32_t key_position,
                                                      std::int32_t window) {
  return std::int64_t{key_position} + window;
}

/// Copies a pass's segments without the tokens at their beginnings that no row sees by `window`,
/// 0 for none. Segments stay as many; some may become empty. Tokens that some rows see and others
/// do not are kept, and so are segments of one token. `positions`: of the rows.
void trim_to_window(std::span<const KvSegment> segments, std::span<const std::int32_t> positions,
                    std::int32_t window, std::vector<KvSegment>& trimmed);

}  // namespace coppice

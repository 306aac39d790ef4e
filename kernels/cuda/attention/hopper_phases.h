// What a block of the Hopper attention goes through, for those who look for what bounds it.
#pragma once

namespace coppice::cuda::hopper {

enum class Phase : int {
  began,           ///< the block runs
  planned,         ///< it knows its range
  queries_stored,  ///< the first piece's
  first_keys,      ///< the first KV tile that its rows see has landed
  computed,        ///< the last piece
  handed_over,     ///< its result is stored, or a partial one and its ticket
  all_there,       ///< the last shared unit's partial results are all stored
  joined,
};
inline constexpr int phases = 8;

}  // namespace coppice::cuda::hopper

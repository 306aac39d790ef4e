// Sequoia: the best fixed tree for measured acceptance (Chen et al. 2024, "Sequoia: Scalable,
// Robust, and Hardware-aware Speculative Decoding", its tree construction).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "drafting/policy.h"
#include "drafting/static_tree.h"

namespace coppice {

// An acceptance vector says, by rank, how probable it is that of a node's children the one of
// that rank is accepted, given that the node is. At most one child is, so its sum is at most 1.
// It need not decrease. Sequoia's positional assumption: it is the same at every node. Ranks
// behind its end are never accepted.

/// Throws Error(usage): an entry outside [0, 1], or a sum of more than 1 (by over 1e-6).
void check_acceptance_vector(std::span<const double> acceptance);

/// Bounds of the tree to find.
struct SequoiaLimits {
  std::int32_t size = 64;        ///< most nodes, the root not counted; 0 to TreeShape::most_nodes
  std::int32_t depth = 1 << 20;  ///< most edges below the root; from 0
  std::int32_t branching = 32;   ///< most children of a node; from 1
};

/// A tree and what it was made for.
struct GrowMap {
  std::vector<double> acceptance;  ///< by rank
  double expected_length = 1.0;    ///< expected_accepted_length(shape, acceptance)
  TreeShape shape;
};

/// Expected accepted length of a tree, the bonus token included: the sum over its nodes, the root
/// too, of the product of `acceptance` by rank along the path (Sequoia's F(T)). Throws
/// Error(usage): `acceptance` has an entry outside [0, 1] or sums to more than 1 (by over 1e-6).
double expected_accepted_length(const TreeShape& shape, std::span<const double> acceptance);

/// The tree within `limits` that maximises expected_accepted_length, in double arithmetic.
///
/// Among equal trees the one of fewest nodes, so the limits may not be reached; then the one whose
/// list of the sizes of the root's subtrees, by rank, comes first in lexicographic order (wide
/// before deep); then the same within each subtree. Equal means equal as computed.
///
/// With n, d, B the limits, B no more than the ranks of positive acceptance: O(n^2 B) time where
/// the best tree of any depth happens to fit, O(n^2 B d) otherwise; O(n (B + d)) memory. Throws
/// Error(usage): a limit or the acceptance vector is out of range.
GrowMap plan_sequoia(std::span<const double> acceptance, const SequoiaLimits& limits);

/// Estimates an acceptance vector from judged nodes that all had at least accepted.size()
/// children: accepted[k] of them by `nodes` judged, the relative frequency. 0 where `nodes` is 0.
/// Throws Error(usage): a negative count, or more accepted than judged.
std::vector<double> estimate_acceptance(std::span<const std::int64_t> accepted, std::int64_t nodes);

/// The same from nodes with any numbers of children, as trees that are in use have: `judged`[k]
/// counts the nodes at which the child of rank k was judged, all before it having been rejected,
/// `accepted`[k] those at which it was accepted. With h[k] = accepted[k] / judged[k] (0 where
/// nothing was judged) the estimate is h[k] times the product of 1 - h[j] over j < k: Kaplan and
/// Meier's product-limit estimator, in which a node that runs out of children counts as far as it
/// was judged. Where no node does, it is the relative frequency. Its sum never exceeds 1.
/// Throws Error(usage): lengths differ, a negative count, more accepted than judged, or more
/// judged than were rejected at the rank before.
std::vector<double> estimate_acceptance(std::span<const std::int64_t> accepted,
                                        std::span<const std::int64_t> judged);

/// Reads what write_grow_map writes. Throws Error(failure), which names the file and the place in
/// it: no such file, no JSON, a key missing or of another type, no acceptance vector, no shape, or
/// a size, depth or expected length that is not the shape's (to 1e-9 of it).
GrowMap read_grow_map(const std::filesystem::path& file);
/// Writes {"acceptance": [...], "size": n, "depth": d, "expected_length": x, "paths": [[0], ...]},
/// size and depth those of the shape, numbers so that they read back bit for bit. Every file is
/// one for read_tree_shape too. `measured`, if it is not null, says under that key where the vector
/// comes from. Throws Error(failure).
void write_grow_map(const std::filesystem::path& file, const GrowMap& map,
                    const nlohmann::ordered_json* measured = nullptr);

/// The map's shape in every step; see make_static_policy.
std::unique_ptr<DraftPolicy> make_sequoia_policy(GrowMap map);

}  // namespace coppice

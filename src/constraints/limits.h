// What a constraint may take. Beyond, one line says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice::constraints {

/// Bytes of a schema, a grammar, an expression or all choices.
inline constexpr std::size_t largest_constraint = std::size_t{4} << 20;
/// Expressions that a constraint may meet, from its start to its end (about 100 bytes each).
inline constexpr std::size_t most_expressions = std::size_t{1} << 21;
/// Members of all unions, 4 bytes each.
inline constexpr std::size_t most_members = std::size_t{1} << 24;
/// Alternatives that one state may keep open.
inline constexpr std::size_t most_alternatives = 20000;
/// Steps of one call: to compile, to advance, to compute a mask. About 50 ns each.
inline constexpr std::int64_t most_steps = 60'000'000;
/// How deep expressions may be nested to the left: functions recurse so far.
inline constexpr int deepest_expression = 1500;
/// Times that one "{m,n}" may ask for.
inline constexpr std::int32_t most_repeats = 1'000'000'000;
/// States whose forced tokens are remembered.
inline constexpr std::size_t most_forced = std::size_t{1} << 12;
/// Bytes of cached transitions, and of cached masks. What goes beyond is computed again.
inline constexpr std::size_t transition_cache = std::size_t{64} << 20;
inline constexpr std::size_t mask_cache = std::size_t{64} << 20;

}  // namespace coppice::constraints

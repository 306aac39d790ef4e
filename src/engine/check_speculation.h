// What may be asked of trees, before any sequence is looked at.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "coppice.h"

namespace coppice {

/// Most draft tokens of a tree that any engine takes: the largest EngineOptions::max_tree_size.
inline constexpr std::int32_t largest_tree_size = 2048;

/// Throws Error(usage) for values out of range, and for a policy that would bias the text.
void check_speculation(const GenerateOptions& options);

/// Whether looked-up children are asked for by name, even without a draft.
bool asks_for(Lookup lookup);

/// Throws Error(usage) for a lookup that is asked for and that its policy does not take.
void check_lookup(const GenerateOptions& options);

/// Draft tokens of a step that are asked for by a number; 0: automatic, or its tree says it.
std::int32_t asked_size(const Speculation& speculation);

/// Draft tokens of the paths or widths that it gives; 0: it gives none.
std::int64_t given_size(const Speculation& speculation);

/// Throws Error(usage) for a tree that may have more than `most` draft tokens.
void check_fits(const Speculation& speculation, std::int32_t most);

/// Draft tokens of a tree with that many children of each node, by layer; from 2^31 not exactly.
std::int64_t nodes_of(const std::vector<std::int32_t>& widths);

/// Whether its policy has a place for children that no draft model draws.
bool takes_proposals(const GenerateOptions& options);

/// Whether trees have children without a draft: looked-up ones, or what a constraint forces.
bool proposes(const GenerateOptions& options);

/// Whether it keeps children for their probability, so that it is exact only where any tree is
/// (drafting/any_tree.h): not under sampled rejection.
bool needs_any_tree_exact(const Speculation& speculation);

/// The acceptance rule of a request; if it is automatic, the one that its policy asks for: coupled
/// where only that keeps its trees exact, else rejection.
Acceptance settled_acceptance(const GenerateOptions& options);

/// How a request has its children drawn: what keeps its acceptance rule exact.
AcceptanceRule drawing_rule(const GenerateOptions& options);

/// Draft temperature at target temperature 0: there the draft's distribution only ranks and
/// weighs the tree. Chosen by measurement on the shipped pair (drafting/README.md, "Trees that know
/// the noise"). BeliefTemperature::usual() is then 1.
inline constexpr double default_greedy_draft_temperature = 0.45;

/// As given, else what drafting begins with: the target's, or at temperature 0 the one above.
double first_draft_temperature(const GenerateOptions& options);

}  // namespace coppice

// Policies: how the draft's token trees grow, each a struct of what it takes.
//
//   options.speculation = coppice::Dyspec{};          // its size follows measured costs
//   options.speculation = coppice::Chain{.length = 4};
//   options.speculation = coppice::read_static_tree("tree.json");
//
// None of them changes what a text is distributed as. Sizes count draft tokens of one step, the
// root not among them; 0 is automatic. No tree may be larger than EngineOptions::max_tree_size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/api.h"
#include "base/rank_path.h"
#include "custom_policy.h"

namespace coppice {

/// Plain decoding: no tree.
struct Plain {};

/// DySpec, Algorithm 1: the greedy tree by estimated acceptance.
struct Dyspec {
  std::int32_t size = 0;  ///< 0: chosen from costs, step by step
  /// Value positions by draft probability alone, as the paper does, and not by what this
  /// generation's noise and past tell of acceptance (drafting/README.md). Needs a size.
  bool plain_values = false;
};

/// DySpec, Algorithm 2: every position above a threshold.
struct DyspecThreshold {
  double threshold = 0.0;     ///< least estimated acceptance of a position, to 1; 0: from costs
  std::int32_t cap = 0;       ///< most draft tokens; 0: max_tree_size
  bool plain_values = false;  ///< as Dyspec's
};

/// One path.
struct Chain {
  std::int32_t length = 0;  ///< 0: chosen from costs, step by step
};

/// The same shape in every step, as Medusa's and EAGLE's trees are published.
struct StaticTree {
  /// All nodes but the root, each with its parents and its siblings of lower rank; at least one.
  std::vector<RankPath> paths;
};

/// SpecInfer (Miao et al. 2024, section 3): a number of children for each layer.
struct SpecInfer {
  /// <1,1,k,1,1,1,1,1>, the paper's shape, with the largest k that fits; below 8 a chain. 0: 20,
  /// or max_tree_size if that is less.
  std::int32_t size = 0;
};

/// SpecInfer with widths of one's own.
struct SpecInferWidths {
  std::vector<std::int32_t> widths;  ///< children of each node, by layer; at least 1 each
};

/// Sequoia (Chen et al. 2024): the best shape for acceptance by sibling rank. An engine plans it
/// once for all its generations.
struct Sequoia {
  std::int32_t size = 0;   ///< 0: 64, or max_tree_size if that is less
  std::int32_t depth = 0;  ///< most layers; 0: 10
  /// By sibling rank, how probable it is that of an accepted node's children that one is accepted.
  /// In sum at most 1. It belongs to a pair, a temperature and an acceptance rule; `coppice plan`
  /// measures it. Empty: the shipped pair's at temperature 0.8 under rejection.
  std::vector<double> acceptance = {};
};

/// A tree that Sequoia's programme planned before: a grow map.
struct SequoiaTree {
  std::vector<RankPath> paths;  ///< as StaticTree's
};

/// EAGLE-2 (Li et al. 2024, sections 4.1, 4.2): expand a beam, keep the best. It keeps nodes for
/// their probability, so under sampled rejection (a temperature above 0 without coupled acceptance,
/// or sampled_children) it is refused: the text would be biased.
struct ExpandRerank {
  std::int32_t size = 0;        ///< 0: 60, or max_tree_size if that is less
  std::int32_t depth = 0;       ///< layers expanded; 0: 6
  std::int32_t beam_width = 0;  ///< nodes expanded in a layer, and children of each; 0: 10
};

/// A policy of one's own (custom_policy.h).
struct Custom {
  PolicyFactory factory;        ///< called once per generation, on its thread
  std::string name = "custom";  ///< in statistics and messages
  std::int32_t size = 0;        ///< 0: 64, or max_tree_size if that is less
  std::int32_t depth = 0;       ///< deepest depth of a node; 0: no limit but the text's end
};

using Speculation = std::variant<Plain, Dyspec, DyspecThreshold, Chain, StaticTree, SpecInfer,
                                 SpecInferWidths, Sequoia, SequoiaTree, ExpandRerank, Custom>;

/// The policy's name: "none" of Plain, "dyspec", ..., a custom one's own.
COPPICE_API std::string name_of(const Speculation& speculation);

/// Reads {"paths": [[0], [1], [0, 0]]}; other keys are ignored. Throws an Error that names the
/// file, the place in it and the remedy: failure for no such file, no JSON or no tree, usage for a
/// tree that is too large for any engine.
COPPICE_API StaticTree read_static_tree(const std::filesystem::path& file);
/// The same of a grow map, as `coppice plan` writes it, with the acceptance vector that it was
/// planned for.
COPPICE_API SequoiaTree read_sequoia_tree(const std::filesystem::path& file);

}  // namespace coppice

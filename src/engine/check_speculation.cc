#include "engine/check_speculation.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/error.h"
#include "drafting/any_tree.h"
#include "drafting/sequoia.h"

namespace coppice {
namespace {

// Options are called what the command line calls them.
void check_count(const char* option, std::int32_t count) {
  if (count >= 0 && count <= largest_tree_size) return;
  throw_usage(cat(option, " ", count, ": use 1 to ", largest_tree_size,
                  ", or 0 for the policy's usual one"));
}

std::string text_of(const std::vector<std::int32_t>& widths) {
  constexpr std::size_t most_shown = 16;
  std::string text;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (i > 0) text += ',';
    if (i == most_shown) return text + "...";
    text += std::to_string(widths[i]);
  }
  return text;
}

void check_paths(const char* what, const std::vector<RankPath>& paths) {
  if (paths.empty()) {
    throw_usage(cat(what, ": its tree is empty; list at least one path, or use policy none"));
  }
  const TreeShape shape(paths);  // throws
}

// Checks what concerns one policy alone; this one has nothing.
template <typename Policy>
void check_values(const Policy&) {}

void check_values(const Dyspec& asked) {
  if (asked.plain_values && asked.size == 0) {
    throw_usage(
        "plain-values: automatic sizes of policy dyspec need learned acceptance; give a "
        "tree-size, or leave it out");
  }
}

void check_values(const DyspecThreshold& asked) {
  if (!(asked.threshold >= 0.0 && asked.threshold <= 1.0)) {
    throw_usage(
        cat("threshold ", asked.threshold, ": use a number above 0, up to 1, or 0 for automatic"));
  }
}

void check_values(const StaticTree& asked) { check_paths("policy static", asked.paths); }
void check_values(const SequoiaTree& asked) { check_paths("policy sequoia", asked.paths); }

void check_values(const SpecInferWidths& asked) {
  if (asked.widths.empty()) throw_usage("widths: there are none; give one for each layer");
  for (const std::int32_t width : asked.widths) {
    if (width < 1) {
      throw_usage(cat("widths ", text_of(asked.widths), ": a layer of width ", width,
                      "; use 1 or more for every layer"));
    }
  }
  if (nodes_of(asked.widths) > largest_tree_size) {
    throw_usage(cat("widths ", text_of(asked.widths), ": they multiply to more than ",
                    largest_tree_size, " draft tokens; use smaller or fewer ones"));
  }
}

void check_values(const Sequoia& asked) {
  check_count("tree-depth", asked.depth);
  try {
    check_acceptance_vector(asked.acceptance);
  } catch (const Error& error) {
    throw_usage(cat("acceptance-vector: ", error.what()));
  }
}

void check_values(const ExpandRerank& asked) {
  check_count("tree-depth", asked.depth);
  check_count("beam-width", asked.beam_width);
}

void check_values(const Custom& asked) {
  if (!asked.factory) {
    throw_usage(cat("policy ", quote(asked.name),
                    ": its factory is empty; give a function that makes the policy"));
  }
  check_count("tree-depth", asked.depth);
}

}  // namespace

std::int64_t nodes_of(const std::vector<std::int32_t>& widths) {
  constexpr std::int64_t enough = std::int64_t{1} << 31;  // so that no product overflows
  std::int64_t layer = 1, nodes = 0;
  for (const std::int32_t width : widths) {
    layer = std::min(layer * width, enough);
    nodes = std::min(nodes + layer, enough);
  }
  return nodes;
}

std::int32_t asked_size(const Speculation& speculation) {
  return std::visit(
      [](const auto& asked) -> std::int32_t {
        if constexpr (requires { asked.size; })
          return asked.size;
        else if constexpr (requires { asked.cap; })
          return asked.cap;
        else if constexpr (requires { asked.length; })
          return asked.length;
        else
          return 0;
      },
      speculation);
}

std::int64_t given_size(const Speculation& speculation) {
  return std::visit(
      [](const auto& asked) -> std::int64_t {
        if constexpr (requires { asked.paths; })
          return static_cast<std::int64_t>(asked.paths.size());
        else if constexpr (requires { asked.widths; })
          return nodes_of(asked.widths);
        else
          return 0;
      },
      speculation);
}

void check_fits(const Speculation& speculation, std::int32_t most) {
  const std::int32_t asked = asked_size(speculation);
  const std::int64_t given = given_size(speculation);
  if (asked <= most && given <= most) return;
  const std::string what =
      asked > 0 ? cat("tree-size ", asked)
                : cat("policy ", name_of(speculation), ": a tree of ", given, " draft tokens");
  const bool any_engine = most == largest_tree_size;
  throw_usage(cat(what, any_engine ? ", but an engine takes" : ", but this engine was loaded for",
                  " at most ", most, " (max_tree_size); use a smaller tree",
                  any_engine ? "" : ", or load it for larger ones"));
}

void check_speculation(const GenerateOptions& options) {
  const std::int32_t size = asked_size(options.speculation);
  if (size < 0) throw_usage(cat("tree-size ", size, ": use 1 or more, or auto"));
  std::visit([](const auto& asked) { check_values(asked); }, options.speculation);
  check_fits(options.speculation, largest_tree_size);
  if (needs_any_tree_exact(options.speculation)) {
    require_any_tree_exact(cat("policy ", name_of(options.speculation)), drawing_rule(options));
  }
}

namespace {

template <typename Asked>
bool takes_lookup(const Asked&) {
  return false;
}
bool takes_lookup(const Plain&) { return true; }  // and does nothing
bool takes_lookup(const Dyspec&) { return true; }
bool takes_lookup(const DyspecThreshold&) { return true; }
bool takes_lookup(const Chain&) { return true; }

}  // namespace

bool takes_proposals(const GenerateOptions& options) {
  return std::visit([](const auto& asked) { return takes_lookup(asked); }, options.speculation);
}

bool asks_for(Lookup lookup) { return lookup == Lookup::text || lookup == Lookup::engine; }

bool proposes(const GenerateOptions& options) {
  return asks_for(options.lookup) || (options.constraint && takes_proposals(options));
}

void check_lookup(const GenerateOptions& options) {
  if (!asks_for(options.lookup) || takes_proposals(options)) return;
  throw_usage(cat("lookup ", name_of(options.lookup), ": the trees of policy ",
                  name_of(options.speculation),
                  " have the draft's children alone; use dyspec, dyspec-threshold or chain"));
}

bool needs_any_tree_exact(const Speculation& speculation) {
  return std::holds_alternative<ExpandRerank>(speculation);
}

Acceptance settled_acceptance(const GenerateOptions& options) {
  if (options.acceptance != Acceptance::automatic) return options.acceptance;
  return options.sampling.temperature > 0.0 && needs_any_tree_exact(options.speculation)
             ? Acceptance::coupled
             : Acceptance::rejection;
}

AcceptanceRule drawing_rule(const GenerateOptions& options) {
  if (options.sampling.temperature == 0.0) {
    return options.sampled_children ? AcceptanceRule::rejection : AcceptanceRule::greedy;
  }
  return settled_acceptance(options) == Acceptance::coupled ? AcceptanceRule::coupled
                                                            : AcceptanceRule::rejection;
}

double first_draft_temperature(const GenerateOptions& options) {
  const double usual = options.sampling.temperature == 0.0 ? default_greedy_draft_temperature
                                                           : options.sampling.temperature;
  return options.draft_temperature.value_or(usual);
}

}  // namespace coppice

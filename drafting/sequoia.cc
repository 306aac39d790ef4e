#include "drafting/sequoia.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_file.h"
#include "drafting/shape_json.h"

namespace coppice {
namespace {

// Sequoia's dynamic programme. Below, a node's gain is the expected number of accepted tokens
// below it, given that it is accepted itself.
//   gain(r, m) of a node with r levels and at most m nodes below it,
//   rest(r, k, m) of its children of rank k and later, with at most m nodes in them and below:
//     gain(r, m)    = rest(r, 0, m),  gain(0, m) = 0,
//     rest(r, k, m) = max over 1 <= s <= m of acceptance[k] (1 + gain(r - 1, s - 1))
//                                             + rest(r, k + 1, m - s),
//     rest(r, B, m) = rest(r, k, 0) = 0:
// the subtree of rank k gets s nodes, itself included, and is there before any of later rank.
// All of them are non-decreasing in m, also as rounded.
class Planner {
 public:
  Planner(std::span<const double> acceptance, const SequoiaLimits& limits)
      : size_(static_cast<std::size_t>(limits.size)), depth_(limits.depth) {
    const std::size_t most = std::min(size_, static_cast<std::size_t>(limits.branching));
    std::size_t ranks = std::min(most, acceptance.size());
    while (ranks > 0 && acceptance[ranks - 1] == 0.0) --ranks;  // nothing is gained there
    acceptance_ = acceptance.first(ranks);
    rest_.assign((ranks + 1) * (size_ + 1), 0.0);
    child_.assign(size_ + 1, 0.0);
  }

  TreeShape best() {
    if (acceptance_.empty() || depth_ == 0) return {};
    // Without a bound on depth, gain(m) needs gain of less than m alone: one table does.
    fill_unbounded();
    const std::vector<double> gain(rest(0), rest(0) + size_ + 1);
    TreeShape shape = trace([&](std::int32_t) { return std::span<const double>(gain); });
    if (shape.height() <= depth_) return shape;

    // By levels left below a node; a node with r of them stands at depth depth_ - r, so that as
    // many nodes are spent above.
    std::vector<std::vector<double>> gains(1, std::vector<double>(size_ + 1, 0.0));
    for (std::int32_t levels = 1; levels < depth_; ++levels) {
      const std::size_t budget = size_ - static_cast<std::size_t>(depth_ - levels);
      fill(gains.back(), budget);
      gains.emplace_back(rest(0), rest(0) + budget + 1);
    }
    return trace([&](std::int32_t depth) {
      const std::vector<double>& below = gains[static_cast<std::size_t>(depth_ - depth - 1)];
      fill(below, size_ - static_cast<std::size_t>(depth));
      return std::span<const double>(below);
    });
  }

 private:
  double* rest(std::size_t rank) { return rest_.data() + rank * (size_ + 1); }

  void fill_unbounded() {
    for (std::size_t budget = 1; budget <= size_; ++budget) {
      for (std::size_t rank = acceptance_.size(); rank-- > 0;) {
        const double* gain = rest(0);
        const double* later = rest(rank + 1);
        double best = 0.0;
        for (std::size_t nodes = 1; nodes <= budget; ++nodes) {
          const double child = acceptance_[rank] * (1.0 + gain[nodes - 1]);
          best = std::max(best, child + later[budget - nodes]);
        }
        rest(rank)[budget] = best;
      }
    }
  }

  // rest() of a node up to a budget; `below` is gain() of its children, up to budget - 1.
  void fill(std::span<const double> below, std::size_t budget) {
    for (std::size_t rank = acceptance_.size(); rank-- > 0;) {
      double* best = rest(rank);
      const double* later = rest(rank + 1);
      std::fill(best, best + budget + 1, 0.0);
      for (std::size_t nodes = 1; nodes <= budget; ++nodes) {
        // More nodes of no more gain never pay.
        if (nodes > 1 && below[nodes - 1] == below[nodes - 2]) continue;
        const double child = acceptance_[rank] * (1.0 + below[nodes - 1]);
        double* at = best + nodes;
        for (std::size_t left = 0; left <= budget - nodes; ++left) {
          const double sum = child + later[left];
          at[left] = sum > at[left] ? sum : at[left];
        }
      }
    }
  }

  // Reads the best tree off the tables, level by level. `enter`(depth) prepares rest() for nodes
  // of that depth and returns gain() of their children.
  template <typename Enter>
  TreeShape trace(const Enter& enter) {
    struct Open {
      std::int32_t node;
      std::size_t budget;  // of nodes below it
    };
    TreeShape shape;
    std::vector<Open> level{{0, size_}}, next;
    for (std::int32_t depth = 0; !level.empty(); ++depth) {
      const std::span<const double> below = enter(depth);
      next.clear();
      for (Open open : level) {
        for (std::size_t rank = 0; rank < acceptance_.size(); ++rank) {
          const double* values = rest(rank);
          while (open.budget > 0 && values[open.budget - 1] == values[open.budget]) --open.budget;
          if (open.budget == 0) break;
          const std::size_t nodes = first_best(rank, below, open.budget);
          const std::int32_t child = shape.add(open.node);
          if (nodes > 1) next.push_back({child, nodes - 1});
          open.budget -= nodes;
        }
      }
      level.swap(next);
    }
    return shape;
  }

  // The least number of nodes for the subtree of `rank` that is best.
  std::size_t first_best(std::size_t rank, std::span<const double> below, std::size_t budget) {
    const double* later = rest(rank + 1);
    for (std::size_t nodes = 1; nodes <= budget; ++nodes) {
      child_[nodes] = acceptance_[rank] * (1.0 + below[nodes - 1]) + later[budget - nodes];
    }
    const auto first = child_.begin() + 1;
    const auto best = std::max_element(first, first + static_cast<std::ptrdiff_t>(budget));
    return static_cast<std::size_t>(best - child_.begin());
  }

  std::span<const double> acceptance_;
  std::size_t size_;
  std::int32_t depth_;
  std::vector<double> rest_;   // [rank, budget], of the nodes at hand
  std::vector<double> child_;  // scratch
};

double number_at(const nlohmann::json& object, const char* name, const std::string& file) {
  const auto found = object.find(name);
  if (found == object.end()) throw_failure(cat(file, ": \"", name, "\" is missing"));
  if (!found->is_number()) {
    throw_failure(cat(file, ": \"", name, "\" is ", shown(*found), ", not a number"));
  }
  return found->get<double>();
}

std::vector<double> acceptance_from(const nlohmann::json& object, const std::string& file) {
  const auto found = object.find("acceptance");
  if (found == object.end()) {
    throw_failure(cat(file, ": \"acceptance\" is missing; a grow map names what it was planned for",
                      " (a tree of paths alone is for policy static)"));
  }
  if (!found->is_array()) {
    throw_failure(cat(file, ": \"acceptance\" is ", shown(*found), ", not a list of numbers"));
  }
  std::vector<double> acceptance;
  for (const nlohmann::json& prob : *found) {
    if (!prob.is_number()) {
      throw_failure(
          cat(file, ": acceptance[", acceptance.size(), "] is ", shown(prob), ", not a number"));
    }
    acceptance.push_back(prob.get<double>());
  }
  return acceptance;
}

}  // namespace

void check_acceptance_vector(std::span<const double> acceptance) {
  constexpr double rounding = 1e-6;  // of numbers that were printed with few digits
  double sum = 0.0;
  for (std::size_t rank = 0; rank < acceptance.size(); ++rank) {
    const double prob = acceptance[rank];
    if (!(prob >= 0.0 && prob <= 1.0)) {
      throw_usage(cat("acceptance[", rank, "] is ", prob, ", not a probability"));
    }
    sum += prob;
  }
  if (sum > 1.0 + rounding) {
    throw_usage(cat("acceptance sums to ", sum, ", but of a node's children at most one is ",
                    "accepted; divide by the number of judged nodes"));
  }
}

double expected_accepted_length(const TreeShape& shape, std::span<const double> acceptance) {
  check_acceptance_vector(acceptance);
  std::vector<double> reached(1, 1.0);  // by node: product along its path
  double sum = 1.0;
  for (std::int32_t node = 1; node <= shape.size(); ++node) {
    const auto rank = static_cast<std::size_t>(shape.rank(node));
    const double prob = rank < acceptance.size() ? acceptance[rank] : 0.0;
    reached.push_back(prob * reached[static_cast<std::size_t>(shape.parent(node))]);
    sum += reached.back();
  }
  return sum;
}

GrowMap plan_sequoia(std::span<const double> acceptance, const SequoiaLimits& limits) {
  if (limits.size < 0 || limits.size > TreeShape::most_nodes) {
    throw_usage(cat("sequoia: a size of ", limits.size, " is not in 0 to ", TreeShape::most_nodes));
  }
  if (limits.depth < 0) throw_usage(cat("sequoia: a depth of ", limits.depth, " is negative"));
  if (limits.branching < 1) {
    throw_usage(cat("sequoia: a branching of ", limits.branching, " is less than 1"));
  }
  check_acceptance_vector(acceptance);
  GrowMap map;
  map.acceptance.assign(acceptance.begin(), acceptance.end());
  map.shape = Planner(acceptance, limits).best();
  map.expected_length = expected_accepted_length(map.shape, acceptance);
  return map;
}

std::vector<double> estimate_acceptance(std::span<const std::int64_t> accepted,
                                        std::int64_t nodes) {
  if (nodes < 0) throw_usage(cat("acceptance counts: ", nodes, " judged nodes"));
  std::int64_t left = nodes;
  std::vector<double> acceptance;
  for (std::size_t rank = 0; rank < accepted.size(); ++rank) {
    if (accepted[rank] < 0 || accepted[rank] > left) {
      throw_usage(cat("acceptance counts: rank ", rank, ": ", accepted[rank], " accepted where ",
                      left, " of ", nodes, " nodes are left"));
    }
    left -= accepted[rank];
    acceptance.push_back(
        nodes == 0 ? 0.0 : static_cast<double>(accepted[rank]) / static_cast<double>(nodes));
  }
  return acceptance;
}

std::vector<double> estimate_acceptance(std::span<const std::int64_t> accepted,
                                        std::span<const std::int64_t> judged) {
  if (accepted.size() != judged.size()) {
    throw_usage(
        cat("acceptance counts: ", accepted.size(), " ranks accepted, ", judged.size(), " judged"));
  }
  std::vector<double> acceptance;
  double rejected = 1.0;  // probability that all earlier siblings are
  for (std::size_t rank = 0; rank < accepted.size(); ++rank) {
    if (accepted[rank] < 0 || accepted[rank] > judged[rank]) {
      throw_usage(cat("acceptance counts: rank ", rank, ": ", accepted[rank], " accepted of ",
                      judged[rank], " judged"));
    }
    if (rank > 0 && judged[rank] > judged[rank - 1] - accepted[rank - 1]) {
      throw_usage(cat("acceptance counts: rank ", rank, ": ", judged[rank],
                      " judged where the rank before was rejected ",
                      judged[rank - 1] - accepted[rank - 1], " times"));
    }
    const double hazard =
        judged[rank] == 0 ? 0.0
                          : static_cast<double>(accepted[rank]) / static_cast<double>(judged[rank]);
    acceptance.push_back(rejected * hazard);
    rejected *= 1.0 - hazard;
  }
  return acceptance;
}

GrowMap read_grow_map(const std::filesystem::path& file) {
  const std::string name = file.string();
  const JsonObject parsed = read_shape_file(file);
  const nlohmann::json& json = *parsed;
  GrowMap map;
  map.acceptance = acceptance_from(json, name);
  map.shape = shape_from_json(json, name);
  try {
    map.expected_length = expected_accepted_length(map.shape, map.acceptance);
  } catch (const Error& error) {
    throw_failure(cat(name, ": ", error.what()));
  }
  const auto check = [&](const char* key, double value) {
    const double found = number_at(json, key, name);
    if (!(std::abs(found - value) <= 1e-9 * value)) {
      throw_failure(cat(name, ": \"", key, "\" is ", found, ", but its paths make ", value,
                        "; plan the tree again"));
    }
  };
  check("size", map.shape.size());
  check("depth", map.shape.height());
  check("expected_length", map.expected_length);
  return map;
}

void write_grow_map(const std::filesystem::path& file, const GrowMap& map,
                    const nlohmann::ordered_json* measured) {
  nlohmann::ordered_json json = {{"acceptance", map.acceptance},
                                 {"size", map.shape.size()},
                                 {"depth", map.shape.height()},
                                 {"expected_length", map.expected_length},
                                 {"paths", map.shape.paths()}};
  if (measured != nullptr) json["measured"] = *measured;
  write_shape_file(file, json);
}

std::unique_ptr<DraftPolicy> make_sequoia_policy(GrowMap map) {
  return make_static_policy(std::move(map.shape), "sequoia");
}

}  // namespace coppice

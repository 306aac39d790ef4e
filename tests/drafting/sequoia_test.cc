#include "drafting/sequoia.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "reference/table_draft.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::TableDraft;
using testing::TemporaryFolder;

// A tree as the depths of its nodes in preorder, the root left out: every ordered tree is one
// such list, and back.
using Depths = std::vector<std::int32_t>;

void for_each_tree(std::int32_t most_nodes, const std::function<void(const Depths&)>& visit) {
  Depths depths;
  const std::function<void()> extend = [&] {
    visit(depths);
    if (static_cast<std::int32_t>(depths.size()) == most_nodes) return;
    const std::int32_t deepest = depths.empty() ? 1 : depths.back() + 1;
    for (std::int32_t depth = 1; depth <= deepest; ++depth) {
      depths.push_back(depth);
      extend();
      depths.pop_back();
    }
  };
  extend();
}

struct Weighed {
  double gain = 0.0;  // expected accepted draft tokens
  std::int32_t depth = 0;
  std::int32_t branching = 0;
};

Weighed weigh(const Depths& depths, const std::vector<double>& acceptance) {
  Weighed weighed;
  std::vector<double> reached{1.0};      // along the current path, by depth
  std::vector<std::size_t> children{0};  // of the nodes on it
  for (const std::int32_t depth : depths) {
    const auto d = static_cast<std::size_t>(depth);
    reached.resize(d);
    children.resize(d);
    const std::size_t rank = children[d - 1]++;
    reached.push_back(reached[d - 1] * (rank < acceptance.size() ? acceptance[rank] : 0.0));
    children.push_back(0);
    weighed.gain += reached[d];
    weighed.depth = std::max(weighed.depth, depth);
    weighed.branching = std::max(weighed.branching, static_cast<std::int32_t>(rank) + 1);
  }
  return weighed;
}

// Sizes of the subtrees under `depths`' root by rank, then the same of each subtree in turn:
// plan_sequoia's order among trees of equal value and size.
std::vector<std::size_t> subtree_sizes(const Depths& depths, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> starts;
  for (std::size_t i = begin; i < end; ++i) {
    if (depths[i] == depths[begin]) starts.push_back(i);
  }
  starts.push_back(end);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) sizes.push_back(starts[i + 1] - starts[i]);
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto below = subtree_sizes(depths, starts[i] + 1, starts[i + 1]);
    sizes.insert(sizes.end(), below.begin(), below.end());
  }
  return sizes;
}

Depths depths_of(const TreeShape& shape) {
  std::vector<RankPath> paths = shape.paths();
  std::sort(paths.begin(), paths.end());  // lexicographic: preorder
  Depths depths;
  for (const RankPath& path : paths) depths.push_back(static_cast<std::int32_t>(path.size()));
  return depths;
}

struct Best {
  double gain = 0.0;
  Depths depths;
};

Best brute_force(const std::vector<double>& acceptance, const SequoiaLimits& limits) {
  Best best;
  for_each_tree(limits.size, [&](const Depths& depths) {
    const Weighed weighed = weigh(depths, acceptance);
    if (weighed.depth > limits.depth || weighed.branching > limits.branching) return;
    if (weighed.gain < best.gain) return;
    if (weighed.gain == best.gain) {
      if (depths.size() > best.depths.size()) return;
      if (depths.size() == best.depths.size() &&
          subtree_sizes(depths, 0, depths.size()) >=
              subtree_sizes(best.depths, 0, best.depths.size())) {
        return;
      }
    }
    best = {weighed.gain, depths};
  });
  return best;
}

std::vector<double> random_acceptance(std::mt19937_64& random, bool monotone) {
  std::vector<double> acceptance(1 + random() % 5);
  double sum = 0.0;
  for (double& prob : acceptance) {
    prob = random() % 6 == 0 ? 0.0 : std::pow(static_cast<double>(random() % 1000) / 1000.0, 2.0);
    sum += prob;
  }
  const double wanted = 0.3 + 0.7 * static_cast<double>(random() % 1000) / 1000.0;
  for (double& prob : acceptance) prob *= sum > 0.0 ? wanted / sum : 0.0;
  if (monotone) std::sort(acceptance.rbegin(), acceptance.rend());
  return acceptance;
}

TEST(Sequoia, IsTheBestOfAllTreesOfUpToSevenNodes) {
  std::mt19937_64 random(1);
  int programmes = 0;
  for (int time = 0; time < 120; ++time) {
    const auto acceptance = random_acceptance(random, time % 2 == 0);
    for (std::int32_t size = 0; size <= 7; ++size) {
      SequoiaLimits limits;
      limits.size = size;
      limits.depth = time % 3 == 0 ? 99 : static_cast<std::int32_t>(random() % 5);
      limits.branching = 1 + static_cast<std::int32_t>(random() % 5);
      const Best best = brute_force(acceptance, limits);
      const GrowMap map = plan_sequoia(acceptance, limits);
      ASSERT_NEAR(map.expected_length, 1.0 + best.gain, 1e-13);
      ASSERT_NEAR(weigh(depths_of(map.shape), acceptance).gain, best.gain, 1e-13);
      ASSERT_LE(map.shape.size(), limits.size);
      ASSERT_LE(map.shape.height(), limits.depth);
      for (std::int32_t node = 0; node <= map.shape.size(); ++node) {
        ASSERT_LE(map.shape.children(node), limits.branching);
      }
      ++programmes;
    }
  }
  std::cout << programmes << " programmes against brute force\n";
}

// In sixteenths all sums of products are exact (7 levels of 4 bits), so ties are ties.
TEST(Sequoia, ResolvesTiesAsStated) {
  std::mt19937_64 random(2);
  int ties_in_size = 0;
  for (int time = 0; time < 200; ++time) {
    std::vector<double> acceptance(1 + random() % 5, 0.0);
    for (int left = static_cast<int>(random() % 17); left > 0; --left) {
      acceptance[random() % acceptance.size()] += 1.0 / 16.0;
    }
    SequoiaLimits limits;
    limits.size = 1 + static_cast<std::int32_t>(random() % 7);
    limits.depth = 1 + static_cast<std::int32_t>(random() % 7);
    limits.branching = 1 + static_cast<std::int32_t>(random() % 5);
    const Best best = brute_force(acceptance, limits);
    const GrowMap map = plan_sequoia(acceptance, limits);
    ASSERT_EQ(map.expected_length, 1.0 + best.gain);
    ASSERT_EQ(depths_of(map.shape), best.depths);
    ties_in_size += map.shape.size() < limits.size ? 1 : 0;
  }
  EXPECT_GT(ties_in_size, 20);
}

TEST(Sequoia, AcceptanceOfTheFirstAloneGivesAChain) {
  for (const double prob : {1.0, 0.9, 0.5}) {
    const GrowMap map = plan_sequoia(std::vector<double>{prob, 0.0, 0.0}, {12, 100, 3});
    EXPECT_EQ(map.shape.size(), 12);
    EXPECT_EQ(map.shape.height(), 12);
    double expected = 0.0, reached = 1.0;
    for (int i = 0; i <= 12; ++i, reached *= prob) expected += reached;
    EXPECT_NEAR(map.expected_length, expected, 1e-12);
    EXPECT_EQ(plan_sequoia(std::vector<double>{prob, 0.0}, {12, 5, 3}).shape.size(), 5);
  }
}

TEST(Sequoia, FlatAcceptanceGivesAStar) {
  const std::vector<double> flat(10, 0.1);
  for (const std::int32_t branching : {1, 4, 10, 99}) {
    const GrowMap map = plan_sequoia(flat, {10, 9, branching});
    EXPECT_EQ(map.shape.children(0), std::min(branching, 10));
    if (branching >= 10) {
      EXPECT_EQ(map.shape.height(), 1);
    }
  }
  const GrowMap bounded = plan_sequoia(flat, {99, 1, 6});
  EXPECT_EQ(bounded.shape.size(), 6);
  EXPECT_NEAR(bounded.expected_length, 1.6, 1e-12);
  // A level of the star is filled before the next one is begun.
  EXPECT_EQ(plan_sequoia(flat, {110, 9, 10}).shape.height(), 2);
  EXPECT_NEAR(plan_sequoia(flat, {110, 9, 10}).expected_length, 3.0, 1e-12);
}

// A rank that is never accepted is drawn where a later one is worth it.
TEST(Sequoia, LaterRanksMayBeBetter) {
  const GrowMap map = plan_sequoia(std::vector<double>{0.0, 0.9}, {4, 9, 9});
  EXPECT_EQ(map.shape.paths(), (std::vector<RankPath>{{0}, {1}, {1, 0}, {1, 1}}));
  EXPECT_NEAR(map.expected_length, 1.0 + 0.9 + 0.81, 1e-12);
  // Three nodes are no better than two: an odd one would only be judged in vain.
  EXPECT_EQ(plan_sequoia(std::vector<double>{0.0, 0.9}, {3, 9, 9}).shape.size(), 2);
}

TEST(Sequoia, NothingToGain) {
  for (const auto& acceptance :
       {std::vector<double>{}, std::vector<double>{0.0}, std::vector<double>{0.0, 0.0}}) {
    const GrowMap map = plan_sequoia(acceptance, {});
    EXPECT_EQ(map.shape, TreeShape());
    EXPECT_EQ(map.expected_length, 1.0);
  }
  EXPECT_EQ(plan_sequoia(std::vector<double>{0.5}, {0, 9, 9}).shape, TreeShape());
  EXPECT_EQ(plan_sequoia(std::vector<double>{0.5}, {9, 0, 9}).shape, TreeShape());
}

// Where acceptance does not increase with rank, a node's product never exceeds its parent's or
// its earlier siblings': the best tree takes the largest products, one by one.
double greedy_length(const std::vector<double>& acceptance, const SequoiaLimits& limits) {
  struct Place {
    double reached;  // the parent's product
    std::int32_t depth;
    std::size_t rank;
    double gain(const std::vector<double>& by) const { return reached * by[rank]; }
  };
  std::vector<Place> open{{1.0, 1, 0}};
  double sum = 1.0;
  for (std::int32_t i = 0; i < limits.size && !open.empty(); ++i) {
    const auto best = std::max_element(open.begin(), open.end(), [&](const auto& a, const auto& b) {
      return a.gain(acceptance) < b.gain(acceptance);
    });
    const Place place = *best;
    open.erase(best);
    sum += place.gain(acceptance);
    if (place.depth < limits.depth) open.push_back({place.gain(acceptance), place.depth + 1, 0});
    const std::size_t next = place.rank + 1;
    if (next < acceptance.size() && static_cast<std::int32_t>(next) < limits.branching) {
      open.push_back({place.reached, place.depth, next});
    }
  }
  return sum;
}

TEST(Sequoia, LargeTrees) {
  std::vector<double> acceptance(32);
  for (std::size_t i = 0; i < 32; ++i) acceptance[i] = 0.6 * std::pow(0.4, static_cast<double>(i));
  std::vector<double> slow(32, 0.2 / 31.0);
  slow[0] = 0.8;
  for (const auto& by : {acceptance, slow}) {
    for (const std::int32_t size : {1, 64, 768, 1024}) {
      for (const std::int32_t depth : {2, 8, 32, 1 << 20}) {
        const SequoiaLimits limits{size, depth, 32};
        const double start = now_seconds();
        const GrowMap map = plan_sequoia(by, limits);
        const double seconds = now_seconds() - start;
        EXPECT_LE(map.shape.size(), size);
        EXPECT_LE(map.shape.height(), depth);
        EXPECT_NEAR(map.expected_length, greedy_length(by, limits), 1e-9);
        if (depth > 2) {
          EXPECT_EQ(map.shape.size(), size);
        }
        std::cout << size << " nodes, depth " << depth << ": " << map.expected_length
                  << " tokens expected, height " << map.shape.height() << ", " << 1e3 * seconds
                  << " ms\n";
      }
    }
  }
}

// A bound far below the depth of the best tree, which is a chain of hundreds: the slowest case.
TEST(Sequoia, DeepTreesUnderABindingDepth) {
  std::vector<double> acceptance(32, 0.005 / 31.0);
  acceptance[0] = 0.995;
  for (const std::int32_t depth : {32, 128}) {
    const SequoiaLimits limits{1024, depth, 32};
    const double start = now_seconds();
    const GrowMap map = plan_sequoia(acceptance, limits);
    const double seconds = now_seconds() - start;
    EXPECT_EQ(map.shape.height(), depth);
    EXPECT_NEAR(map.expected_length, greedy_length(acceptance, limits), 1e-9);
    std::cout << "depth " << depth << ": " << 1e3 * seconds << " ms\n";
  }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Sequoia, RefusesWhatIsOutOfRange) {
  const auto plan = [](std::vector<double> acceptance, SequoiaLimits limits) {
    return refusal([&] { plan_sequoia(acceptance, limits); });
  };
  EXPECT_EQ(plan({0.5}, {-1, 9, 9}), "sequoia: a size of -1 is not in 0 to 4096");
  EXPECT_EQ(plan({0.5}, {4097, 9, 9}), "sequoia: a size of 4097 is not in 0 to 4096");
  EXPECT_EQ(plan({0.5}, {9, -1, 9}), "sequoia: a depth of -1 is negative");
  EXPECT_EQ(plan({0.5}, {9, 9, 0}), "sequoia: a branching of 0 is less than 1");
  EXPECT_EQ(plan({0.5, -0.1}, {}), "acceptance[1] is -0.1, not a probability");
  EXPECT_EQ(plan({1.5}, {}), "acceptance[0] is 1.5, not a probability");
  EXPECT_EQ(plan({std::nan("")}, {}), "acceptance[0] is nan, not a probability");
  EXPECT_EQ(plan({0.7, 0.4}, {}).find("acceptance sums to 1.1, "), 0u);
  EXPECT_EQ(plan({0.7, 0.3000001}, {}), "accepted");
}

TEST(Acceptance, IsTheRelativeFrequency) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(estimate_acceptance(Counts{50, 20, 0}, 100), (std::vector<double>{0.5, 0.2, 0.0}));
  EXPECT_EQ(estimate_acceptance(Counts{0, 0}, 0), (std::vector<double>{0.0, 0.0}));
  EXPECT_EQ(refusal([] { estimate_acceptance(Counts{-1}, 5); }),
            "acceptance counts: rank 0: -1 accepted where 5 of 5 nodes are left");
  EXPECT_EQ(refusal([] {
              estimate_acceptance(Counts{3, 3}, 5);
            }),
            "acceptance counts: rank 1: 3 accepted where 2 of 5 nodes are left");
  EXPECT_EQ(refusal([] { estimate_acceptance(Counts{}, -5); }),
            "acceptance counts: -5 judged nodes");
}

TEST(Acceptance, ProductLimit) {
  using Counts = std::vector<std::int64_t>;
  // Without nodes that run out of children: the relative frequency.
  const auto whole = estimate_acceptance(Counts{50, 20, 3}, Counts{100, 50, 30});
  const auto plain = estimate_acceptance(Counts{50, 20, 3}, 100);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(whole[i], plain[i], 1e-15);
  // Half of the rejected nodes had no second child.
  EXPECT_NEAR(estimate_acceptance(Counts{50, 10}, Counts{100, 25})[1], 0.5 * 0.4, 1e-15);
  EXPECT_EQ(estimate_acceptance(Counts{0, 0}, Counts{0, 0}), (std::vector<double>{0.0, 0.0}));
  EXPECT_EQ(refusal([] {
              estimate_acceptance(Counts{1}, Counts{1, 2});
            }),
            "acceptance counts: 1 ranks accepted, 2 judged");
  EXPECT_EQ(refusal([] { estimate_acceptance(Counts{2}, Counts{1}); }),
            "acceptance counts: rank 0: 2 accepted of 1 judged");
  EXPECT_EQ(refusal([] {
              estimate_acceptance(Counts{2, 0}, Counts{5, 4});
            }),
            "acceptance counts: rank 1: 4 judged where the rank before was rejected 3 times");

  // Nodes of random numbers of children recover the vector that accepted them.
  const std::vector<double> truth{0.45, 0.05, 0.2, 0.1};
  std::mt19937_64 random(9);
  Counts accepted(4, 0), judged(4, 0);
  for (int node = 0; node < 200000; ++node) {
    double u = static_cast<double>(random() >> 11) * 0x1p-53;
    const std::size_t children = 1 + random() % 4;
    for (std::size_t rank = 0; rank < children; ++rank) {
      ++judged[rank];
      if (u < truth[rank]) {
        ++accepted[rank];
        break;
      }
      u -= truth[rank];
    }
  }
  const auto estimate = estimate_acceptance(accepted, judged);
  // Five standard deviations of the rank that the fewest nodes reach, a quarter of them.
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(estimate[i], truth[i], 5 * 0.5 / std::sqrt(5e4));
}

TEST(GrowMapFile, RoundTrip) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "map.json";
  std::mt19937_64 random(4);
  for (int time = 0; time < 20; ++time) {
    SequoiaLimits limits;
    limits.size = static_cast<std::int32_t>(random() % 70);
    const GrowMap map = plan_sequoia(random_acceptance(random, false), limits);
    write_grow_map(file, map);
    const GrowMap read = read_grow_map(file);
    EXPECT_EQ(read.acceptance, map.acceptance);
    EXPECT_EQ(read.expected_length, map.expected_length);
    EXPECT_EQ(read.shape, map.shape);
    EXPECT_EQ(read_tree_shape(file), map.shape);
  }
}

TEST(GrowMapFile, RefusalsNameFileAndPlace) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "map.json";
  write_grow_map(file, plan_sequoia(std::vector<double>{0.5, 0.25}, {3, 2, 2}));
  nlohmann::json good;
  std::ifstream(file) >> good;
  const auto refused = [&](const char* key, const nlohmann::json& value) -> std::string {
    nlohmann::json changed = good;
    changed[key] = value;
    if (value.is_null()) changed.erase(key);
    std::ofstream(file) << changed;
    try {
      read_grow_map(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      const std::string message = error.what();
      EXPECT_EQ(message.find(file.string() + ": "), 0u) << message;
      return message.substr(std::min(message.size(), file.string().size() + 2));
    }
    return "accepted";
  };
  EXPECT_EQ(refused("note", "any"), "accepted");
  for (const std::string key : {"acceptance", "size", "depth", "expected_length", "paths"}) {
    EXPECT_EQ(refused(key.c_str(), nullptr).find("\"" + key + "\" is missing"), 0u);
    EXPECT_EQ(refused(key.c_str(), "x").find("\"" + key + "\" is 'x', not a "), 0u);
  }
  EXPECT_EQ(refused("acceptance", {0.5, "x"}), "acceptance[1] is 'x', not a number");
  EXPECT_EQ(refused("acceptance", {0.5, 2}), "acceptance[1] is 2, not a probability");
  EXPECT_EQ(refused("size", 4), "\"size\" is 4, but its paths make 3; plan the tree again");
  EXPECT_EQ(refused("depth", 1), "\"depth\" is 1, but its paths make 2; plan the tree again");
  EXPECT_EQ(refused("expected_length", 2.5),
            "\"expected_length\" is 2.5, but its paths make 2; plan the tree again");
  EXPECT_EQ(refused("paths", {{0}, {2}}).find("tree shape: paths[1] [2] has no sibling"), 0u);
  EXPECT_THROW(read_grow_map(folder.path() / "none.json"), Error);
}

TEST(SequoiaPolicy, DrawsItsShape) {
  const GrowMap map = plan_sequoia(std::vector<double>{0.5, 0.2, 0.1}, {20, 4, 3});
  const auto policy = make_sequoia_policy(map);
  const auto fixed = make_static_policy(map.shape);
  EXPECT_EQ(policy->name(), "sequoia");
  const TableDraft::Rows rule = [](const std::vector<TokenId>& path) {
    std::vector<float> row(8, 0.1f);
    row[path.size() % 8] = 0.3f;
    return row;
  };
  for (const std::int32_t size : {0, 7, 64}) {
    GrowthLimits limits;
    limits.max_size = size;
    TableDraft one(rule, 8, {1, 2, 3, 4}), two(rule, 8, {1, 2, 3, 4});
    TokenTree tree, expected;
    tree.reset(1);
    expected.reset(1);
    grow_tree(*policy, one, limits, tree);
    grow_tree(*fixed, two, limits, expected);
    tree.validate(8);
    EXPECT_EQ(tree.size(), std::min(size, map.shape.size()));
    EXPECT_EQ(tree.token, expected.token);
    EXPECT_EQ(tree.parent, expected.parent);
    EXPECT_FALSE(one.broken);
    EXPECT_EQ(one.passes, tree.height());
  }
}

}  // namespace
}  // namespace coppice

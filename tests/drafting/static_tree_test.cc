#include "drafting/static_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "drafting/shape_json.h"
#include "reference/table_draft.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::TableDraft;
using testing::TemporaryFolder;
using Paths = std::vector<RankPath>;

// In the manner of published lists: by the accuracy of nodes, not by depth.
const Paths by_accuracy{{0},    {0, 0},    {1},       {0, 1}, {2}, {0, 0, 0}, {1, 0},
                        {0, 2}, {0, 0, 1}, {0, 1, 0}, {2, 0}, {3}, {1, 1},    {0, 0, 0, 0}};

Paths paths_of(const TokenTree& tree) {
  Paths paths(1);
  for (std::size_t i = 1; i < tree.token.size(); ++i) {
    paths.push_back(paths[static_cast<std::size_t>(tree.parent[i])]);
    paths.back().push_back(tree.rank[i]);
  }
  paths.erase(paths.begin());
  return paths;
}

// D by path: random and positive, or with as many tokens of positive probability as asked for.
TableDraft::Rows random_rule(std::uint64_t seed, std::size_t vocab, std::size_t support = 0) {
  return [=](const std::vector<TokenId>& path) {
    std::uint64_t mixed = seed;
    for (const TokenId token : path) mixed = mixed * 1000003 + static_cast<std::uint64_t>(token);
    std::mt19937_64 random(mixed);
    std::vector<float> row(vocab, 0.0f);
    float sum = 0.0f;
    for (float& prob : row) sum += prob = 0.1f + static_cast<float>(random() % 1000) / 300.0f;
    if (support > 0) {
      std::fill(row.begin() + static_cast<std::ptrdiff_t>(support), row.end(), 0.0f);
      std::shuffle(row.begin(), row.end(), random);
      sum = 0.0f;
      for (const float prob : row) sum += prob;
    }
    for (float& prob : row) prob /= sum;
    return row;
  };
}

struct Grown {
  TokenTree tree;
  std::int32_t passes = 0, draws = 0;
  std::size_t evaluated = 0;
};

Grown grow(const Paths& paths, const TableDraft::Rows& rule, std::int32_t vocab,
           const GrowthLimits& limits = {}, std::uint64_t seed = 1,
           AcceptanceRule draw = AcceptanceRule::rejection) {
  const auto policy = make_static_policy(TreeShape(paths));
  TableDraft source(rule, static_cast<std::size_t>(vocab), {seed, 2, 3, 4}, draw);
  Grown growth;
  growth.tree.reset(0);
  grow_tree(*policy, source, limits, growth.tree);
  growth.tree.validate(vocab);
  EXPECT_FALSE(source.broken);
  EXPECT_EQ(growth.tree.size(), source.draws) << "a drawn token was dropped";
  growth.passes = source.passes;
  growth.evaluated = source.evaluated.size();
  return growth;
}

std::string refusal(const Paths& paths) {
  try {
    TreeShape{paths};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(TreeShape, OrdersByDepthThenAsListed) {
  const TreeShape shape(by_accuracy);
  const Paths expected{{0},    {1},    {2},    {3},       {0, 0},    {0, 1},    {1, 0},
                       {0, 2}, {2, 0}, {1, 1}, {0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 0, 0, 0}};
  EXPECT_EQ(shape.paths(), expected);
  EXPECT_EQ(shape.size(), 14);
  EXPECT_EQ(shape.height(), 4);
  EXPECT_EQ(shape.children(0), 4);
  EXPECT_EQ(TreeShape(expected), shape);
}

// The list may name later siblings first; they wait for the earlier ones.
TEST(TreeShape, SiblingsAreInRankOrderWhateverTheList) {
  const TreeShape shape(Paths{{2}, {1, 0}, {0, 0}, {1}, {3}, {0}});
  EXPECT_EQ(shape.paths(), (Paths{{0}, {1}, {2}, {3}, {1, 0}, {0, 0}}));
  std::mt19937_64 random(3);
  for (int time = 0; time < 200; ++time) {
    Paths shuffled = by_accuracy;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const TreeShape any(shuffled);
    for (std::int32_t node = 2; node <= any.size(); ++node) {
      ASSERT_LE(any.depth(node - 1), any.depth(node));
    }
    // Adding nodes one by one hands out ranks in order: the paths come back only if none is
    // before a sibling of lower rank.
    TreeShape again;
    for (std::int32_t node = 1; node <= any.size(); ++node) again.add(any.parent(node));
    ASSERT_EQ(again, any);
  }
}

TEST(TreeShape, Empty) {
  EXPECT_EQ(TreeShape(Paths{}), TreeShape());
  EXPECT_EQ(TreeShape().size(), 0);
  EXPECT_EQ(TreeShape().height(), 0);
  EXPECT_TRUE(TreeShape().paths().empty());
}

TEST(TreeShape, RefusesWhatIsNoTree) {
  EXPECT_EQ(refusal({{0}, {1, 0}}), "tree shape: paths[1] [1, 0] has no parent: [1] is not listed");
  EXPECT_EQ(refusal({{0, 0, 0}, {0}}),
            "tree shape: paths[0] [0, 0, 0] has no parent: [0, 0] is not listed");
  EXPECT_EQ(refusal({{0}, {0, 0}, {0, 2}}),
            "tree shape: paths[2] [0, 2] has no sibling of rank 1: [0, 1] is not listed");
  EXPECT_EQ(refusal({{1}}), "tree shape: paths[0] [1] has no sibling of rank 0: [0] is not listed");
  EXPECT_EQ(refusal({{0}, {1}, {0}}), "tree shape: paths[2] [0] is listed twice");
  EXPECT_EQ(refusal({{0}, {}}), "tree shape: paths[1] [] is empty; the root is not listed");
  EXPECT_EQ(refusal({{0}, {0, -1}}), "tree shape: paths[1] [0, -1] has a negative rank");
  const Paths many(TreeShape::most_nodes + 1, RankPath{0});
  EXPECT_EQ(refusal(many), "tree shape: 4097 nodes are more than the 4096 that a shape may have");
  TreeShape shape(Paths{{0}, {0, 0}});
  EXPECT_THROW(shape.add(-1), Error);
  EXPECT_THROW(shape.add(3), Error);
  EXPECT_THROW(shape.add(0), Error);  // behind a deeper one
  EXPECT_EQ(shape.add(1), 3);
  EXPECT_EQ(shape.paths().back(), (RankPath{0, 1}));
}

TEST(TreeShape, LargestShapes) {
  TreeShape chain, star;
  for (std::int32_t i = 0; i < TreeShape::most_nodes; ++i) {
    chain.add(i);
    star.add(0);
  }
  EXPECT_THROW(chain.add(0), Error);
  EXPECT_THROW(star.add(0), Error);
  EXPECT_EQ(TreeShape(star.paths()), star);
  EXPECT_EQ(TreeShape(chain.paths()), chain);
  EXPECT_EQ(chain.height(), TreeShape::most_nodes);
}

TEST(TreeShapeFile, RoundTrip) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "shape.json";
  for (const Paths& paths : {Paths{}, Paths{{0}}, by_accuracy}) {
    const TreeShape shape(paths);
    write_shape_file(file, {{"paths", shape.paths()}});
    EXPECT_EQ(read_tree_shape(file), shape);
  }
  std::ofstream(file) << R"({"name": "mine", "paths": [[0], [1], [0, 0]]})";
  EXPECT_EQ(read_tree_shape(file), TreeShape(Paths{{0}, {1}, {0, 0}}));
}

TEST(TreeShapeFile, RefusalsNameFileAndPlace) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "shape.json";
  const auto refused = [&](const std::string& text) -> std::string {
    std::ofstream(file) << text;
    try {
      read_tree_shape(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      const std::string message = error.what();
      EXPECT_EQ(message.find(file.string() + ": "), 0u) << message;
      EXPECT_EQ(message.find('\n'), message.npos);
      return message.substr(std::min(message.size(), file.string().size() + 2));
    }
    return "accepted";
  };
  EXPECT_EQ(refused("{}"), "\"paths\" is missing; list the tree's nodes under it");
  EXPECT_EQ(refused(R"({"paths": 3})"), "\"paths\" is 3, not a list of paths; correct it");
  EXPECT_EQ(refused(R"({"paths": [[0], 1]})"), "paths[1] is 1, not a list of ranks; correct it");
  EXPECT_EQ(refused(R"({"paths": [[0], [0, "1"]]})"),
            "paths[1][1] is '1', not a sibling's rank; correct it");
  EXPECT_EQ(refused(R"({"paths": [[0.5]]})"),
            "paths[0][0] is 0.5, not a sibling's rank; correct it");
  EXPECT_EQ(refused(R"({"paths": [[-1]]})"), "paths[0][0] is -1, not a sibling's rank; correct it");
  EXPECT_EQ(refused(R"({"paths": [[4294967296]]})"),
            "paths[0][0] is 4294967296, not a sibling's rank; correct it");
  EXPECT_EQ(refused(R"({"paths": [[0], [0, 1]]})"),
            "tree shape: paths[1] [0, 1] has no sibling of rank 0: [0, 0] is not listed; correct "
            "the file");
  EXPECT_EQ(refused("[[0]]").find("holds a JSON array"), 0u);
  EXPECT_EQ(refused(R"({"paths": [[0])").find("not valid JSON at byte"), 0u);
  EXPECT_EQ(refused(R"({"paths": [], "paths": []})").find("key 'paths' appears twice"), 0u);
  EXPECT_THROW(read_tree_shape(folder.path() / "none.json"), Error);
  EXPECT_THROW(
      write_shape_file(folder.path() / "none" / "shape.json", {{"paths", TreeShape().paths()}}),
      Error);
  std::filesystem::create_directory(folder.path() / "taken");
  EXPECT_THROW(write_shape_file(folder.path() / "taken", {{"paths", TreeShape().paths()}}), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "taken.new"));
}

TEST(Static, DrawsExactlyTheShapeInOnePassPerDepth) {
  const TreeShape shape(by_accuracy);
  for (const AcceptanceRule draw :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const TableDraft::Rows rule = random_rule(seed, 9);
      const Grown one = grow(by_accuracy, rule, 9, {}, seed, draw);  // validate(): no repeats
      EXPECT_EQ(paths_of(one.tree), shape.paths());
      EXPECT_EQ(one.passes, 4);
      EXPECT_EQ(one.evaluated, 7u);  // the nodes with children
      const Grown two = grow(by_accuracy, rule, 9, {}, seed, draw);
      EXPECT_EQ(one.tree.token, two.tree.token);
      EXPECT_EQ(one.tree.value, two.tree.value);
      for (std::size_t i = 1; i < one.tree.token.size(); ++i) {
        const auto parent = static_cast<std::size_t>(one.tree.parent[i]);
        double left = 1.0;
        for (std::size_t j = 1; j < i; ++j) {
          if (one.tree.parent[j] == one.tree.parent[i]) left -= one.tree.draft_prob[j];
        }
        EXPECT_NEAR(one.tree.value[i], one.tree.path_prob[parent] * left, 1e-6);
      }
    }
  }
}

// A child does not depend on how much of the shape is drawn.
TEST(Static, ShapesShareTheirTokens) {
  const TableDraft::Rows rule = random_rule(5, 12);
  const auto tokens_of = [&](const Paths& paths) {
    const TokenTree tree = grow(paths, rule, 12).tree;
    const Paths found = paths_of(tree);
    std::map<RankPath, TokenId> tokens;
    for (std::size_t i = 0; i < found.size(); ++i) tokens[found[i]] = tree.token[i + 1];
    return tokens;
  };
  const auto whole = tokens_of(by_accuracy);
  for (const auto& [path, token] : tokens_of({{0}, {1}, {1, 0}, {1, 1}})) {
    EXPECT_EQ(whole.at(path), token);
  }
}

TEST(Static, LimitsKeepTheFirstNodes) {
  const Paths all = TreeShape(by_accuracy).paths();
  const TableDraft::Rows rule = random_rule(7, 9);
  for (std::int32_t size = -1; size <= 15; ++size) {
    for (std::int32_t depth = 0; depth <= 5; ++depth) {
      GrowthLimits limits;
      limits.max_size = size;
      limits.max_depth = depth;
      const Grown growth = grow(by_accuracy, rule, 9, limits);
      Paths expected(all.begin(), all.begin() + std::clamp(size, 0, 14));
      std::erase_if(expected, [&](const auto& path) {
        return static_cast<std::int32_t>(path.size()) > depth;
      });
      EXPECT_EQ(paths_of(growth.tree), expected);
      EXPECT_EQ(growth.passes, growth.tree.height());
    }
  }
  EXPECT_EQ(grow({}, rule, 9).passes, 0);
}

TEST(Static, LeavesOutPositionsOfLowValue) {
  const TableDraft::Rows rule = random_rule(11, 9);
  const Grown whole = grow(by_accuracy, rule, 9);
  for (const double least : {0.9, 0.5, 0.1, 0.03, 0.01}) {
    GrowthLimits limits;
    limits.min_value = least;
    const Grown growth = grow(by_accuracy, rule, 9, limits);
    Paths expected;
    const Paths all = paths_of(whole.tree);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (whole.tree.value[i + 1] >= least) expected.push_back(all[i]);
    }
    EXPECT_EQ(paths_of(growth.tree), expected);
    EXPECT_EQ(growth.passes, growth.tree.height());
  }
}

TEST(Static, LeavesOutWhatAnExhaustedDraftCannotFill) {
  for (std::size_t support = 1; support <= 4; ++support) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Grown growth = grow(by_accuracy, random_rule(seed, 9, support), 9, {}, seed);
      Paths expected = TreeShape(by_accuracy).paths();
      std::erase_if(expected, [&](const RankPath& path) {
        return *std::max_element(path.begin(), path.end()) >= static_cast<std::int32_t>(support);
      });
      EXPECT_EQ(paths_of(growth.tree), expected);
      EXPECT_EQ(growth.passes, 4);
    }
  }
  // No mass at all below the first level: one more pass, which finds nothing.
  const TableDraft::Rows rule = [](const std::vector<TokenId>& path) {
    return path.empty() ? std::vector<float>{0.25f, 0.75f} : std::vector<float>{0.0f, 0.0f};
  };
  const Grown growth = grow(by_accuracy, rule, 2);
  EXPECT_EQ(paths_of(growth.tree), (Paths{{0}, {1}}));
  EXPECT_EQ(growth.passes, 2);
}

}  // namespace
}  // namespace coppice

// Policies written by a user of coppice.h: an example, its exact law against the target's, plain
// texts repeated, a fault that the comparison must notice, and one clear error for everything that
// a policy may do wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>

#include "engine/custom_drafting.h"
#include "engine/endless_pair.h"
#include "engine/engine_impl.h"
#include "reference/exact_law.h"
#include "verify/rejection-inl.h"

namespace coppice::testing {
namespace {

// The example of custom_policy.h: the two most promising chains.
class TwoChains final : public CustomPolicy {
 public:
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    std::vector<std::int32_t> tips;
    for (const std::int32_t node : evaluated) {  // first the root, 0
      for (int children = node == 0 ? 2 : 1; children > 0 && tree.room() > 0; --children) {
        if (const auto child = tree.draw(node)) tips.push_back(*child);
      }
    }
    if (tree.room() == 0 || tree.node(tree.nodes() - 1).depth == tree.max_depth()) return {};
    return tips;  // to be evaluated by the next pass of the draft
  }
};

// Always the leaf of largest path probability; what it has drawn decides where it goes on.
class LikeliestFirst final : public CustomPolicy {
 public:
  bool begin(const GrowingTree& tree) override {
    leaves_.clear();
    return tree.room() >= 2;
  }
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    for (int children = 2; children > 0; --children) {
      if (const auto child = tree.draw(evaluated[0])) leaves_.push_back(*child);
    }
    while (tree.room() >= 2 && !leaves_.empty()) {
      const auto best =
          std::max_element(leaves_.begin(), leaves_.end(), [&](std::int32_t a, std::int32_t b) {
            return tree.node(a).path_prob < tree.node(b).path_prob;
          });
      const std::int32_t leaf = *best;
      leaves_.erase(best);
      if (tree.node(leaf).depth < tree.max_depth()) return {leaf};
    }
    return {};
  }

 private:
  std::vector<std::int32_t> leaves_;
};

// Draws four children of every node and keeps the most probable one: for exact trees alone.
class KeepBest final : public CustomPolicy {
 public:
  bool begin(const GrowingTree&) override {
    chain_.clear();
    return true;
  }
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    std::int32_t best = -1;
    for (int children = 4; children > 0; --children) {
      const auto child = tree.draw(evaluated[0]);
      if (!child) break;
      if (best < 0 || tree.node(*child).draft_prob > tree.node(best).draft_prob) best = *child;
    }
    if (best < 0) return {};
    chain_.push_back(best);
    tree.keep(chain_);
    if (tree.room() == 0 || tree.node(best).depth == tree.max_depth()) return {};
    return {best};
  }

 private:
  std::vector<std::int32_t> chain_;
};

using Nodes = std::vector<std::int32_t>;

// What the policy "scripted" does in a step's round, counted from 0, and before the first.
// NOLINTBEGIN: one thread sets and runs them
std::function<Nodes(GrowingTree&, int round)> script;
std::function<bool(const GrowingTree&)> script_begin;
// NOLINTEND

class Scripted final : public CustomPolicy {
 public:
  bool begin(const GrowingTree& tree) override {
    round_ = 0;
    return !script_begin || script_begin(tree);
  }
  Nodes grow(GrowingTree& tree, std::span<const std::int32_t>) override {
    return script(tree, round_++);
  }

 private:
  int round_ = 0;
};

PolicyFactory factory_of(const std::string& name) {
  if (name == "two-chains") return [] { return std::make_unique<TwoChains>(); };
  if (name == "likeliest-first") return [] { return std::make_unique<LikeliestFirst>(); };
  if (name == "keep-best") return [] { return std::make_unique<KeepBest>(); };
  return [] { return std::make_unique<Scripted>(); };
}

GenerateOptions request(const std::string& name, std::int32_t size = 8, std::int32_t tokens = 40,
                        std::int32_t depth = 0) {
  GenerateOptions options;
  options.max_new_tokens = tokens;
  options.speculation = Custom{factory_of(name), name, size, depth};
  return options;
}

class CustomPolicies : public ::testing::Test {
 protected:
  CustomPolicies() : pair_(endless()) {}

  /// The one-line message that a generation ends with; empty where it does not.
  static std::string refusal(Engine& engine, const GenerateOptions& options, ErrorKind kind) {
    try {
      engine.generate(prompt, options);
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), kind) << message;
      EXPECT_EQ(message.find('\n'), message.npos) << message;
      expect_nothing_leaked(engine);
      return message;
    }
    return "";
  }

  TinyPair pair_;
};

// The law by enumeration, as in verify/losslessness_test.cc. The policy is told that children are
// drawn as `told`; they are sampled.
LawError law_error_of(ExactPair& pair, std::unique_ptr<CustomPolicy> custom, AcceptanceRule told,
                      std::int32_t size) {
  const auto policy = adapt_policy("custom", std::move(custom), told);
  Enumeration enumeration;
  const EnumeratedDecisions decide(enumeration);
  const auto vocab = static_cast<std::int64_t>(pair.target.vocab());
  NoiseCache noise(vocab);
  BasicChildDrawer<EnumeratedDecisions> drawer(vocab, noise, decide, 0);
  RejectionVerifier<EnumeratedDecisions> rule(decide);
  return law_error(enumeration, pair, drawer, {*policy, rule, fixed(size)});
}

TEST(CustomPolicyLaw, IsTheTargets) {
  auto pairs = exact_pairs();
  double accepted = 0.0;
  for (ExactPair& pair : pairs) {
    for (const bool chains : {true, false}) {
      const auto custom = [&]() -> std::unique_ptr<CustomPolicy> {
        if (chains) return std::make_unique<TwoChains>();
        return std::make_unique<LikeliestFirst>();
      };
      const LawError error = law_error_of(pair, custom(), AcceptanceRule::rejection, 4);
      EXPECT_LE(error.largest, 1e-12) << pair.name << ": " << error.text();
      EXPECT_FALSE(error.address_shared) << pair.name;
      EXPECT_LE(error.largest_tree, 4) << pair.name;
      accepted = std::max(accepted, error.accepted_length);
    }
  }
  EXPECT_GT(accepted, 2.9);
}

// Why keep() is refused under rejection: what it keeps for its probability, judged as if drawn.
TEST(CustomPolicyLaw, KeptForWhatItIsAndJudgedByRejectionIsCaught) {
  auto pairs = exact_pairs();
  const LawError error =
      law_error_of(pairs.front(), std::make_unique<KeepBest>(), AcceptanceRule::greedy, 1);
  EXPECT_GT(error.largest, 1e-3) << error.text();
}

TEST_F(CustomPolicies, RepeatThePlainText) {
  if (on_cuda()) GTEST_SKIP() << "near-ties of bf16: identity_test.cc counts them";
  Engine engine = Engine::load(pair_.options());
  for (const char* name : {"two-chains", "likeliest-first", "keep-best"}) {
    for (const double temperature : {0.0, 0.9}) {
      for (const double penalty : {1.0, 1.3}) {
        for (const bool sampled_children : {false, true}) {
          if (sampled_children && (temperature > 0.0 || name == std::string("keep-best"))) continue;
          GenerateOptions options = request(name);
          options.sampling.temperature = temperature;
          options.acceptance = temperature > 0.0 ? Acceptance::coupled : Acceptance::rejection;
          options.sampling.repetition_penalty = penalty;
          options.sampled_children = sampled_children;
          const Generation fast = engine.generate(prompt, options);
          options.speculation = Plain{};
          EXPECT_EQ(fast.tokens, engine.generate(prompt, options).tokens) << name;
          EXPECT_LT(fast.statistics.steps, 40) << name;
        }
      }
    }
  }
  expect_nothing_leaked(engine);
}

TEST_F(CustomPolicies, KeepTheirLimitsAndTheirNames) {
  Engine engine = Engine::load(pair_.options());
  for (const std::int32_t size : {0, 1, 3, 10}) {
    const Generation g = engine.generate(prompt, request("likeliest-first", size));
    EXPECT_EQ(g.used.policy, "likeliest-first");
    EXPECT_EQ(g.used.tree_size, size == 0 ? 64 : size);
    EXPECT_LE(g.statistics.tree_size_mean, g.used.tree_size);
    EXPECT_EQ(g.tokens.size(), 40u);
  }
  const JudgedTree tree = engine.judge_tree(prompt, request("likeliest-first", 12, 40, 2));
  EXPECT_EQ(tree.nodes.size(), 7u);  // two children of every node above depth 2
  EXPECT_EQ(tree.draft_passes, 3);
  for (const TreeNode& node : tree.nodes) EXPECT_LE(node.depth, 2);

  EngineOptions small = pair_.options();
  small.max_tree_size = 5;
  Engine five = Engine::load(small);
  EXPECT_EQ(five.generate(prompt, request("two-chains", 0)).used.tree_size, 5);
  EXPECT_NE(refusal(five, request("two-chains", 6), ErrorKind::usage).find("at most 5"),
            std::string::npos);
}

TEST_F(CustomPolicies, TightMemoryEndsTextsButNeverFails) {
  for (const std::int32_t slots : {16, 32, 48, 96}) {
    EngineOptions load = pair_.options();
    load.kv_tokens = slots;
    Engine engine = Engine::load(load);
    for (const char* name : {"two-chains", "likeliest-first", "keep-best"}) {
      const Generation g = engine.generate(prompt, request(name, 64, 200));
      EXPECT_EQ(g.finish_reason, FinishReason::memory) << name;
      EXPECT_EQ(g.tokens.size() + prompt.size(), static_cast<std::size_t>(slots) + 1) << name;
      expect_nothing_leaked(engine);
    }
  }
}

Nodes draw(GrowingTree& tree, int children) {
  Nodes drawn;
  for (; children > 0; --children) drawn.push_back(*tree.draw(0));
  return drawn;
}

void keep(GrowingTree& tree, Nodes nodes) { tree.keep(nodes); }

TEST_F(CustomPolicies, EveryMistakeIsOneClearError) {
  Engine engine = Engine::load(pair_.options());
  const std::vector<TokenId> text = engine.generate(prompt, request("two-chains")).tokens;
  const auto expect_refused = [&](const char* says, const decltype(script)& does,
                                  GenerateOptions options = request("scripted"),
                                  ErrorKind kind = ErrorKind::usage) {
    // At once, in a later step, and where the policy catches what it was told.
    int steps = 0;
    const std::vector<decltype(script)> ways = {does,
                                                [&](GrowingTree& tree, int round) -> Nodes {
                                                  if (round == 0) ++steps;
                                                  if (steps >= 3) return does(tree, round);
                                                  draw(tree, 2);
                                                  return {};
                                                },
                                                [&](GrowingTree& tree, int round) -> Nodes {
                                                  try {
                                                    return does(tree, round);
                                                  } catch (const Error&) {
                                                    EXPECT_THROW(tree.node(0), Error);
                                                  }
                                                  return {};
                                                }};
    const std::size_t count = kind == ErrorKind::usage ? ways.size() : 2;
    for (std::size_t way = 0; way < count; ++way) {
      script = ways[way];
      const std::string message = refusal(engine, options, kind);
      EXPECT_NE(message.find(says), message.npos) << "'" << message << "' instead of " << says;
      EXPECT_NE(message.find("policy scripted: "), message.npos) << message;
    }
    EXPECT_EQ(engine.generate(prompt, request("two-chains")).tokens, text);
  };

  expect_refused("what grow() returned: there is no node 1; nodes go from 0 (the root) to 0",
                 [](auto&, int) { return Nodes{1}; });
  expect_refused("what grow() returned: there is no node -1", [](auto& tree, int) {
    draw(tree, 1);
    return Nodes{1, -1};
  });
  expect_refused("node 0 is evaluated already", [](auto&, int) { return Nodes{0}; });
  expect_refused("node 1 is evaluated already", [](auto& tree, int round) {
    if (round == 0) draw(tree, 2);
    return Nodes{1};
  });
  expect_refused("node 2 stands twice in the list", [](auto& tree, int) {
    draw(tree, 2);
    return Nodes{2, 1, 2};
  });
  expect_refused("node: there is no node 9", [](auto& tree, int) -> Nodes {
    tree.node(9);
    return {};
  });
  expect_refused("draw: there is no node 7", [](auto& tree, int) -> Nodes {
    tree.draw(7);
    return {};
  });
  expect_refused("draw: node 2 is not evaluated; return it from grow() before",
                 [](auto& tree, int) -> Nodes {
                   draw(tree, 2);
                   tree.draw(2);
                   return {};
                 });

  // Limits.
  GenerateOptions sampled = request("scripted", 3);
  sampled.sampling.temperature = 1.0;
  const auto draw_four = [](GrowingTree& tree, int) -> Nodes {
    draw(tree, 4);
    return {};
  };
  expect_refused("draw: 3 nodes are drawn, at most 3 may be; ask room() before", draw_four,
                 sampled);
  expect_refused(
      "draw: 24 nodes are drawn, at most 24 may be",
      [](auto& tree, int) -> Nodes {
        draw(tree, 25);
        return {};
      },
      request("scripted", 3));
  expect_refused("grow() left 4 nodes in the tree, which holds at most 3; keep() fewer", draw_four,
                 request("scripted", 3));
  const GenerateOptions shallow = request("scripted", 8, 40, 1);
  const auto draw_and_go_on = [](GrowingTree& tree, int) { return draw(tree, 3); };
  expect_refused("what grow() returned: node 1 has depth 1, the deepest that is allowed",
                 draw_and_go_on, shallow);
  expect_refused(
      "what grow() returned: 3 nodes beside the root would be evaluated, at most 2 may be",
      draw_and_go_on, request("scripted", 2));
  expect_refused(
      "what grow() returned: 3 nodes beside the root would be evaluated, at most 2 may be",
      [](auto& tree, int round) {
        if (round == 0) draw(tree, 3);
        return round == 0 ? Nodes{2} : Nodes{1, 3};
      },
      request("scripted", 2));

  // Dropping.
  expect_refused("keep: there is no node 5", [](auto& tree, int) -> Nodes {
    draw(tree, 2);
    keep(tree, {5});
    return {};
  });
  expect_refused("keep: node 3 is to stay and its parent 2 is not", [](auto& tree, int round) {
    if (round == 0) {
      draw(tree, 2);
    } else {
      tree.draw(2);
      keep(tree, {1, 3});
    }
    return Nodes{2};
  });
  const auto drop_one = [](GrowingTree& tree, int) {
    draw(tree, 2);
    keep(tree, {2});
    return Nodes{1};
  };
  expect_refused("what grow() returned: node 1 was dropped by keep()", drop_one);
  expect_refused("draw: node 1 was dropped by keep()", [](auto& tree, int round) -> Nodes {
    if (round == 0) return draw(tree, 2);
    keep(tree, {2});
    tree.draw(1);
    return {};
  });
  expect_refused("keep: sampled rejection needs every drawn token in drawn order", drop_one,
                 sampled);
  GenerateOptions sampled_children = request("scripted");
  sampled_children.sampled_children = true;
  expect_refused("without sampled children", drop_one, sampled_children);

  // What it throws.
  constexpr ErrorKind failure = ErrorKind::failure;
  expect_refused(
      "its grow() threw 'my\\nmistake'",
      [](auto& tree, int) -> Nodes {
        draw(tree, 2);
        throw std::runtime_error("my\nmistake");
      },
      request("scripted"), failure);
  expect_refused(
      "its grow() threw what is no std::exception",
      [](auto& tree, int) -> Nodes {
        draw(tree, 2);
        throw 7;
      },
      request("scripted"), failure);
  script_begin = [](const GrowingTree&) -> bool { throw std::runtime_error("not today"); };
  EXPECT_NE(refusal(engine, request("scripted"), failure)
                .find("policy scripted: its begin() threw 'not today'"),
            std::string::npos);
  script_begin = nullptr;
}

TEST_F(CustomPolicies, ATreeIsNotForLater) {
  Engine engine = Engine::load(pair_.options());
  GrowingTree* kept = nullptr;
  const auto use = [&](const std::function<void(GrowingTree&)>& call) -> std::string {
    try {
      call(*kept);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::vector<std::function<void(GrowingTree&)>> calls = {[](auto& tree) { tree.node(0); },
                                                                [](auto& tree) { tree.draw(0); },
                                                                [](auto& tree) { keep(tree, {}); }};
  script = [&](GrowingTree& tree, int) -> Nodes {
    draw(tree, 2);
    kept = &tree;
    return {};
  };
  for (const auto& call : calls) {
    kept = nullptr;
    engine.generate(prompt, request("scripted"), [&](const Piece&) {
      if (kept == nullptr) return true;  // the first token comes before any tree
      const std::string message = use(call);
      EXPECT_NE(message.find("the tree is used outside grow()"), message.npos) << message;
      return false;
    });
  }
  // Nor to be drawn from before a round, whatever the policy catches.
  for (std::size_t call = 1; call < calls.size(); ++call) {
    kept = nullptr;
    script_begin = [&](const GrowingTree& tree) {
      EXPECT_EQ(tree.node(0).parent, -1);
      if (kept != nullptr) use(calls[call]);
      return true;
    };
    const std::string message = refusal(engine, request("scripted"), ErrorKind::usage);
    EXPECT_NE(message.find("the tree is used outside grow()"), message.npos) << message;
  }
  script_begin = nullptr;
  expect_nothing_leaked(engine);
}

TEST_F(CustomPolicies, AMistakeLeavesTheSequenceAsItWas) {
  Engine engine = Engine::load(pair_.options());
  {
    Sequence sequence = engine.new_sequence();
    sequence.generate(prompt, request("two-chains", 8, 10));
    const std::vector<TokenId> before(sequence.tokens().begin(), sequence.tokens().end());
    int steps = 0;
    script = [&](GrowingTree& tree, int) -> Nodes {
      draw(tree, 2);
      if (++steps == 3) tree.draw(1);
      return {};
    };
    EXPECT_THROW(sequence.generate(prompt, request("scripted")), Error);
    EXPECT_EQ(std::vector<TokenId>(sequence.tokens().begin(), sequence.tokens().end()), before);
    EXPECT_EQ(sequence.generate(prompt, request("two-chains", 8, 10)).tokens.size(), 10u);
  }
  expect_nothing_leaked(engine);
}

// Else a policy that failed once would know what its next try draws. That 20 first children are
// equal twice by chance has a probability below 1e-6 where none is more probable than a half.
TEST_F(CustomPolicies, AFailedStepsNoiseIsNotUsedAgain) {
  Engine engine = Engine::load(pair_.options());
  int equal = 0;
  const std::vector<TokenId> root = {7};  // of both trees: no token comes with it
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Sequence sequence = engine.new_sequence();
    std::vector<TokenId> first;
    script = [&](GrowingTree& tree, int) -> Nodes {
      first.push_back(tree.node(*tree.draw(0)).token);
      throw std::runtime_error("enough");
    };
    GenerateOptions options = request("scripted", 8, 10);
    options.sampling.temperature = 1.5;
    options.seed = seed;
    EXPECT_THROW(sequence.generate(root, options), Error);
    EXPECT_THROW(sequence.generate(root, options), Error);
    ASSERT_EQ(first.size(), 2u);
    equal += first[0] == first[1] ? 1 : 0;
  }
  EXPECT_LT(equal, 20);
}

// Steps in which a policy wants no tree, or draws nothing, are plain ones.
TEST_F(CustomPolicies, EmptyTreesAreFine) {
  EngineOptions load = pair_.options();
  load.prefix_cache = false;  // so that the prompt's passes are made for each text
  Engine engine = Engine::load(load);
  GenerateOptions plain = request("two-chains");
  plain.speculation = Plain{};
  const auto text = engine.generate(prompt, plain).tokens;
  std::int64_t passes = 0;
  for (const bool begins : {false, true}) {
    script_begin = [&](const GrowingTree&) { return begins; };
    script = [&](GrowingTree&, int) {
      EXPECT_TRUE(begins);
      return Nodes();
    };
    const Generation g = engine.generate(prompt, request("scripted"));
    EXPECT_EQ(g.tokens, text);
    EXPECT_EQ(g.statistics.steps, 39);
    if (begins) {
      EXPECT_EQ(g.statistics.draft_passes, passes + 38);  // the last step may write one token only
    }
    passes = g.statistics.draft_passes;
  }
  script_begin = nullptr;
  expect_nothing_leaked(engine);
}

TEST_F(CustomPolicies, FactoriesThatMakeNothingAreNamed) {
  Engine engine = Engine::load(pair_.options());
  const auto refused = [&](Custom custom, ErrorKind kind) {
    GenerateOptions options = request("scripted");
    options.speculation = std::move(custom);
    return refusal(engine, options, kind);
  };
  EXPECT_NE(refused({}, ErrorKind::usage).find("policy 'custom': its factory is empty"),
            std::string::npos);
  EXPECT_NE(refused({[] { return nullptr; }, "no-policy"}, ErrorKind::failure)
                .find("policy no-policy: its factory returned nothing"),
            std::string::npos);
  const auto throws = []() -> std::unique_ptr<CustomPolicy> {
    throw std::runtime_error("no licence");
  };
  EXPECT_NE(refused({throws, "bad-factory"}, ErrorKind::failure)
                .find("policy bad-factory: its factory threw 'no licence'"),
            std::string::npos);
  EXPECT_NE(refused({factory_of("two-chains"), "deep", 0, -1}, ErrorKind::usage)
                .find("tree-depth -1: use 1 to 2048"),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::testing

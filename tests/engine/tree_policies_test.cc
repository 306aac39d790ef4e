// Policies whose trees have a given form: that the engine grows what was asked for, that no
// policy changes a text that any tree leaves alone, and what is refused. (Laws of sampled text
// stand in distribution_test.cc, the shipped pair's texts in identity_test.cc.)
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <utility>

#include "drafting/shape_json.h"
#include "drafting/static_tree.h"
#include "engine/endless_pair.h"
#include "engine/engine_impl.h"
#include "engine/policy_options.h"
#include "engine/tree_plan.h"

namespace coppice::testing {
namespace {

const std::vector<RankPath> paths = {{0}, {1}, {2}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}};

class TreePolicies : public ::testing::Test {
 protected:
  explicit TreePolicies(double draft_noise = 0.3) : pair_(endless(), draft_noise) {
    write_shape_file(file("tree.json"), {{"paths", TreeShape(paths).paths()}});
    write_grow_map(file("map.json"), plan_sequoia(usual_acceptance, {9, 3, 4}));
  }

  std::filesystem::path file(const char* name) const { return pair_.path() / name; }

  static GenerateOptions request(Speculation speculation, std::int32_t tokens = 40) {
    GenerateOptions options;
    options.max_new_tokens = tokens;
    options.speculation = std::move(speculation);
    return options;
  }

  /// One of every kind of parameters.
  std::vector<GenerateOptions> requests() const {
    return {request(read_static_tree(file("tree.json"))),
            request(SpecInfer{}),
            request(SpecInferWidths{{3, 2, 1}}),
            request(Sequoia{12, 0, {}}),
            request(read_sequoia_tree(file("map.json"))),
            request(ExpandRerank{7, 0, 3}),
            request(SpecInferWidths{{40, 1}})};  // more children than a GPU draws at once
  }

  TinyPair pair_;
};

// By node: the sibling ranks that lead to it.
std::vector<RankPath> paths_of(const JudgedTree& tree) {
  std::vector<RankPath> all;
  for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
    RankPath path;
    for (std::int32_t at = static_cast<std::int32_t>(n); at > 0;) {
      const TreeNode& node = tree.nodes[static_cast<std::size_t>(at)];
      path.insert(path.begin(), node.rank);
      at = node.parent;
    }
    all.push_back(path);
  }
  return all;
}

TEST_F(TreePolicies, GrowWhatWasAskedFor) {
  Engine engine = Engine::load(pair_.options());
  for (const double temperature : {0.0, 1.0}) {
    GenerateOptions options = request(StaticTree{paths});
    options.sampling.temperature = temperature;
    EXPECT_EQ(paths_of(engine.judge_tree(prompt, options)), paths);
    options.speculation = read_static_tree(file("tree.json"));
    EXPECT_EQ(paths_of(engine.judge_tree(prompt, options)), paths);

    options.speculation = SpecInferWidths{{3, 2, 1}};
    const JudgedTree expanded = engine.judge_tree(prompt, options);
    std::vector<int> by_depth(4, 0);
    for (const TreeNode& node : expanded.nodes) ++by_depth.at(static_cast<std::size_t>(node.depth));
    EXPECT_EQ(by_depth, (std::vector<int>{1, 3, 6, 6}));
    EXPECT_EQ(expanded.draft_passes, 3);

    options.speculation = read_sequoia_tree(file("map.json"));
    EXPECT_EQ(paths_of(engine.judge_tree(prompt, options)),
              read_tree_shape(file("map.json")).paths());
    // The same, planned by the engine. (The map is planned for at most 4 children.)
    options.speculation = Sequoia{9, 3, {}};
    EXPECT_EQ(paths_of(engine.judge_tree(prompt, options)),
              plan_sequoia(usual_acceptance, {9, 3}).shape.paths());
  }

  const JudgedTree best = engine.judge_tree(prompt, request(ExpandRerank{12, 2, 4}));
  ASSERT_EQ(best.nodes.size(), 13u);
  std::vector<int> children(best.nodes.size(), 0);
  for (const TreeNode& node : best.nodes) {
    EXPECT_LE(node.depth, 2);
    if (node.parent < 0) continue;
    EXPECT_LE(++children[static_cast<std::size_t>(node.parent)], 4);
  }
  expect_nothing_leaked(engine);
}

TEST_F(TreePolicies, SizesAreSettledAndReported) {
  Engine engine = Engine::load(pair_.options());
  const auto size_of = [](Engine& of, const GenerateOptions& options) {
    const Generation made = of.generate(prompt, options);
    EXPECT_EQ(made.used.policy, name_of(options.speculation));
    EXPECT_GT(made.statistics.draft_passes, 0);
    EXPECT_GT(made.statistics.tree_size_mean, 0.0);
    EXPECT_LE(made.statistics.tree_size_mean, made.used.tree_size);
    return made.used.tree_size;
  };
  std::vector<std::int32_t> sizes;
  for (const GenerateOptions& options : requests()) sizes.push_back(size_of(engine, options));
  EXPECT_EQ(sizes, (std::vector<std::int32_t>{7, 20, 15, 12, 9, 7, 80}));
  EXPECT_EQ(size_of(engine, request(Sequoia{})), 64);
  EXPECT_EQ(size_of(engine, request(ExpandRerank{})), 60);
  EXPECT_FALSE(inside(engine).costs) << "costs were measured for nothing";
  expect_nothing_leaked(engine);

  // An engine for small trees.
  EngineOptions small = pair_.options();
  small.max_tree_size = 7;
  Engine other = Engine::load(small);
  for (const Speculation& speculation :
       std::vector<Speculation>{StaticTree{paths}, SpecInfer{}, Sequoia{}, ExpandRerank{}}) {
    EXPECT_EQ(size_of(other, request(speculation)), 7) << name_of(speculation);
  }
  expect_nothing_leaked(other);
}

// At temperature 0 and under coupled acceptance any tree leaves the text alone.
TEST_F(TreePolicies, RepeatThePlainText) {
  if (on_cuda()) GTEST_SKIP() << "near-ties of bf16: identity_test.cc counts them";
  Engine engine = Engine::load(pair_.options());
  std::int64_t tokens = 0;
  for (GenerateOptions options : requests()) {
    for (const double temperature : {0.0, 0.9}) {
      for (const double penalty : {1.0, 1.3}) {
        for (const std::int32_t top_k : {0, 5}) {
          options.sampling.temperature = temperature;
          options.acceptance = temperature > 0.0 ? Acceptance::coupled : Acceptance::rejection;
          options.sampling.repetition_penalty = penalty;
          const bool terms = penalty != 1.0;  // of single tokens
          options.sampling.presence_penalty = terms ? 0.4 : 0.0;
          options.sampling.frequency_penalty = terms ? 0.3 : 0.0;
          options.logit_bias.clear();
          if (terms) options.logit_bias = {{9, -3.0}, {5, 2.0}};
          options.min_new_tokens = terms ? 10 : 0;
          options.sampling.top_k = top_k;
          options.sampling.top_p = top_k > 0 ? 0.9 : 1.0;
          const auto fast = engine.generate(prompt, options);
          GenerateOptions plain = options;
          plain.speculation = Plain{};
          EXPECT_EQ(fast.tokens, engine.generate(prompt, plain).tokens)
              << name_of(options.speculation) << ", temperature " << temperature << ", penalty "
              << penalty << ", top-k " << top_k;
          EXPECT_LT(fast.statistics.steps, 40);
          tokens += 40;
        }
      }
    }
  }
  std::cout << tokens << " tokens equal\n";
  expect_nothing_leaked(engine);
}

// Learned acceptance is a generation's own: nothing is left of it in the next.
TEST_F(TreePolicies, LearnedValuesRepeatThePlainTextAndThemselves) {
  if (on_cuda()) GTEST_SKIP() << "near-ties of bf16: identity_test.cc counts them";
  Engine engine = Engine::load(pair_.options());
  const std::pair<Speculation, Speculation> pairs[] = {
      {Dyspec{10, true}, Dyspec{10}}, {DyspecThreshold{0.1, 10, true}, DyspecThreshold{0.1, 10}}};
  for (const auto& [plain_values, learned_values] : pairs) {
    const std::string policy = name_of(learned_values);
    GenerateOptions options = request(learned_values, 80);
    for (const double temperature : {0.0, 0.9}) {
      options.sampling.temperature = temperature;
      options.acceptance = temperature > 0.0 ? Acceptance::coupled : Acceptance::rejection;
      options.speculation = plain_values;
      const Generation raw = engine.generate(prompt, options);
      options.speculation = learned_values;
      const Generation first = engine.generate(prompt, options);
      EXPECT_EQ(first.tokens, raw.tokens) << policy << " at " << temperature;
      EXPECT_LT(first.statistics.steps, 80);
      EXPECT_LE(first.statistics.tree_size_mean, 10.0);
      // Other trees, so it did something; the same ones again.
      EXPECT_NE(first.statistics.draft_passes, raw.statistics.draft_passes) << policy;
      const Generation again = engine.generate(prompt, options);
      EXPECT_EQ(again.statistics.steps, first.statistics.steps);
      EXPECT_EQ(again.statistics.draft_passes, first.statistics.draft_passes);
    }
    options.acceptance = Acceptance::rejection;
    const Generation sampled = engine.generate(prompt, options);
    EXPECT_EQ(engine.generate(prompt, options).tokens, sampled.tokens);
  }
  expect_nothing_leaked(engine);
}

TEST_F(TreePolicies, SampledChildrenAtTemperature0) {
  if (on_cuda()) GTEST_SKIP() << "near-ties of bf16: identity_test.cc counts them";
  Engine engine = Engine::load(pair_.options());
  const auto plain = engine.generate(prompt, request(Plain{})).tokens;
  for (GenerateOptions options : requests()) {
    if (std::holds_alternative<ExpandRerank>(options.speculation)) continue;  // refused
    options.sampled_children = true;
    EXPECT_EQ(engine.generate(prompt, options).tokens, plain) << name_of(options.speculation);
  }
}

TEST_F(TreePolicies, SameSeedSameText) {
  Engine engine = Engine::load(pair_.options());
  for (GenerateOptions options : requests()) {
    options.sampling.temperature = 1.0;
    options.seed = 5;
    if (std::holds_alternative<ExpandRerank>(options.speculation))
      options.acceptance = Acceptance::coupled;
    const auto first = engine.generate(prompt, options).tokens;
    EXPECT_EQ(engine.generate(prompt, options).tokens, first);
    options.seed = 6;
    EXPECT_NE(engine.generate(prompt, options).tokens, first);
  }
}

TEST_F(TreePolicies, TightMemoryEndsTextsButNeverFails) {
  for (const std::int32_t slots : {16, 32, 48, 96}) {
    EngineOptions load = pair_.options();
    load.kv_tokens = slots;
    Engine engine = Engine::load(load);
    for (GenerateOptions options : requests()) {
      options.max_new_tokens = 200;
      const Generation g = engine.generate(prompt, options);
      EXPECT_EQ(g.finish_reason, FinishReason::memory);
      EXPECT_EQ(g.tokens.size() + prompt.size(), static_cast<std::size_t>(slots) + 1);
      expect_nothing_leaked(engine);
    }
  }
}

// The message of a refusal of that kind; empty where nothing was refused.
std::string refusal(Engine& engine, const GenerateOptions& options, ErrorKind kind) {
  try {
    engine.generate(prompt, options);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), kind) << message;
    EXPECT_EQ(message.find('\n'), message.npos);
    expect_nothing_leaked(engine);
    return message;
  }
  return "";
}

TEST_F(TreePolicies, RefuseWhatCannotBe) {
  EngineOptions load = pair_.options();
  load.max_tree_size = 30;
  Engine engine = Engine::load(load);
  const auto expect_refused = [&](const Speculation& speculation, const char* says,
                                  const std::function<void(GenerateOptions&)>& change = {}) {
    GenerateOptions options = request(speculation);
    if (change) change(options);
    const std::string message = refusal(engine, options, ErrorKind::usage);
    EXPECT_NE(message.find(says), message.npos) << "'" << message << "' instead of " << says;
  };
  expect_refused(SpecInferWidths{{2, 0}}, "widths 2,0: a layer of width 0");
  expect_refused(SpecInferWidths{{2, -1}}, "width -1");
  expect_refused(SpecInferWidths{}, "widths: there are none");
  expect_refused(SpecInferWidths{{1000000, 1000000, 2}}, "multiply to more than 2048");
  expect_refused(SpecInferWidths{std::vector<std::int32_t>(5000, 1 << 30)},
                 "multiply to more than 2048");
  expect_refused(SpecInferWidths{{5, 4, 3}},
                 "policy specinfer: a tree of 85 draft tokens, but this engine was loaded for at "
                 "most 30 (max_tree_size)");
  expect_refused(Sequoia{0, -1, {}}, "tree-depth -1");
  expect_refused(Sequoia{31, 0, {}}, "tree-size 31, but this engine was loaded for at most 30");
  expect_refused(Sequoia{2049, 0, {}}, "tree-size 2049, but an engine takes at most 2048");
  for (const Speculation& negative :
       std::vector<Speculation>{Dyspec{-1}, DyspecThreshold{0.1, -1}, Chain{-1}, SpecInfer{-1},
                                Sequoia{-1, 0, {}}, ExpandRerank{-1, 0, 0}}) {
    expect_refused(negative, "tree-size -1: use 1 or more");
  }
  expect_refused(ExpandRerank{0, 0, -1}, "beam-width -1");
  expect_refused(Dyspec{0, true},
                 "plain-values: automatic sizes of policy dyspec need learned acceptance");
  expect_refused(StaticTree{}, "policy static: its tree is empty");
  expect_refused(SequoiaTree{}, "policy sequoia: its tree is empty");
  expect_refused(StaticTree{{{0}, {2}}}, "has no sibling of rank 1");
  std::vector<RankPath> star(31);
  for (std::size_t i = 0; i < star.size(); ++i) star[i] = {static_cast<std::int32_t>(i)};
  expect_refused(StaticTree{star}, "policy static: a tree of 31 draft tokens, but this engine");
  // Bias.
  expect_refused(ExpandRerank{}, "would bias the text; use coupled acceptance, or temperature 0",
                 [](GenerateOptions& o) {
                   o.sampling.temperature = 0.5;
                   o.acceptance = Acceptance::rejection;
                 });
  expect_refused(ExpandRerank{}, "without sampled children",
                 [](GenerateOptions& o) { o.sampled_children = true; });
  // What remains is allowed.
  EXPECT_EQ(refusal(engine, request(StaticTree{paths}), ErrorKind::usage), "");
}

TEST_F(TreePolicies, FilesAreNamedWithWhatIsWrongInThem) {
  const auto expect_refused = [&](Policy policy, const std::string& name, const std::string& text,
                                  const char* says, ErrorKind kind = ErrorKind::failure) {
    if (!text.empty()) std::ofstream(file(name.c_str())) << text;
    try {
      if (policy == Policy::sequoia) {
        read_sequoia_tree(file(name.c_str()));
      } else {
        read_static_tree(file(name.c_str()));
      }
      ADD_FAILURE() << name << " was read";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), kind) << message;
      EXPECT_NE(message.find(says), message.npos) << "'" << message << "' instead of " << says;
    }
  };
  for (const Policy policy : {Policy::static_tree, Policy::sequoia}) {
    expect_refused(policy, "none.json", "", "none.json: no such file");
    expect_refused(policy, "", "", "is a folder; name a file");
    expect_refused(policy, "cut.json", R"({"paths": [[0], [0)", "not valid JSON");
    std::ofstream(file("nothing.json"), std::ios::trunc).close();
    expect_refused(policy, "nothing.json", "", "nothing.json: not valid JSON");
  }
  expect_refused(Policy::static_tree, "root.json", R"({"paths": []})",
                 "root.json: its tree is empty");
  expect_refused(Policy::static_tree, "gap.json", R"({"paths": [[0], [2]]})",
                 "has no sibling of rank 1");
  expect_refused(Policy::sequoia, "tree.json", "", "a tree of paths alone is for policy static");
  std::vector<RankPath> star(2049);
  for (std::size_t i = 0; i < star.size(); ++i) star[i] = {static_cast<std::int32_t>(i)};
  write_shape_file(file("large.json"), {{"paths", TreeShape(star).paths()}});
  expect_refused(Policy::static_tree, "large.json", "",
                 "large.json: a tree of 2049 draft tokens, of which an engine takes at most 2048",
                 ErrorKind::usage);
}

// Trees at the end of what a draft can give: fewer tokens than the shape has places.
TEST_F(TreePolicies, NarrowFiltersLeavePlacesEmpty) {
  Engine engine = Engine::load(pair_.options());
  for (GenerateOptions options : requests()) {
    options.sampling.top_k = 1;
    options.sampling.temperature = 1.0;
    if (std::holds_alternative<ExpandRerank>(options.speculation))
      options.acceptance = Acceptance::coupled;
    const JudgedTree tree = engine.judge_tree(prompt, options);
    for (const TreeNode& node : tree.nodes) EXPECT_EQ(node.rank, 0) << name_of(options.speculation);
    EXPECT_GT(tree.nodes.size(), 2u);
  }
}

}  // namespace
}  // namespace coppice::testing

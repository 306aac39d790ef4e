// Bias, frequency and presence penalties and a least length leave texts the target's law, under its
// logits changed likewise: enumerated as in enumerated_law_test.cc. Faults are planted that the
// comparison must notice.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/enumerated_engine.h"
#include "engine/law_programs.h"
#include "models/path_counts.h"

namespace coppice::testing {
namespace {

const std::vector<TokenBias> the_bias = {{0, 1.5f}, {2, -1.0f}};

GenerateOptions biased(GenerateOptions options) {
  for (const TokenBias& of : the_bias) {
    options.logit_bias.emplace_back(of.token, static_cast<double>(of.bias));
  }
  std::swap(options.logit_bias.front(), options.logit_bias.back());  // in any order
  return options;
}

Program biased(Program program) {
  program.name += ", biased";
  program.bias = the_bias;
  return program;
}

GenerateOptions counting(GenerateOptions options) {
  options.sampling.frequency_penalty = 0.9;
  options.sampling.presence_penalty = -0.6;
  return options;
}

// Of texts of `each` new tokens behind `first` others, all of which were seen.
Program counted(Program program, std::size_t each, std::size_t first = 0) {
  program.name += ", counted";
  program.fresh = [each, first](const TokenPath& path) {
    const std::span<const TokenId> seen = path;
    if (seen.size() < first) return std::vector<TokenId>(seen.begin(), seen.end());
    const auto of = seen.subspan(first + (seen.size() - first) / each * each);
    return std::vector<TokenId>(of.begin(), of.end());
  };
  return program;
}

// A text that "c" ends, but not before it has so many tokens.
Program ended(const std::string& name, GenerateOptions options, std::size_t least) {
  options.stop_tokens = {2};
  Program program = one_text(name, options);
  program.run = [options](Engine& engine) {
    const Generation g = engine.generate(std::vector<TokenId>{0}, options);
    TokenPath seen = g.tokens;
    if (g.finish_reason == FinishReason::stop) seen.push_back(2);
    return seen;
  };
  program.allows = [least](const TokenPath& path, TokenId token) {
    return token != 2 || path.size() >= least;
  };
  return program;
}

TEST_F(EnumeratedLaw, Biased) {
  EnumeratedEngine engine(pair_.options());
  const auto law = [&](Program program, std::int32_t trees = 1) {
    expect_law(engine, biased(std::move(program)), trees);
  };
  law(one_text("by costs", biased(sampled(3))), 2);
  law(one_text("three nodes", biased(sampled(3, Dyspec{3}))), 3);
  law(one_text("a threshold", biased(sampled(3, DyspecThreshold{0.3, 3}))));
  law(one_text("a chain", biased(sampled(3, Chain{2}))), 2);
  law(one_text("plain", biased(sampled(3, Plain{}))), 0);
  GenerateOptions looked_up = biased(sampled(3, Dyspec{3}));
  looked_up.lookup = Lookup::text;
  law(repetitive("looked up", looked_up), 3);
  GenerateOptions penalty = biased(counting(sampled(3, Dyspec{2})));
  penalty.sampling.repetition_penalty = 1.8;
  law(counted(repetitive("with penalties", penalty), 3), 2);
}

// Of two texts only one is biased.
TEST_F(EnumeratedLaw, ABiasIsOneTexts) {
  EnumeratedEngine engine(pair_.options(2));
  for (const bool first : {true, false}) {
    const GenerateOptions plain = sampled(2), other = biased(sampled(2, Dyspec{}, 1));
    Program program = first ? side_by_side(biased(sampled(2)), sampled(2, Dyspec{}, 1))
                            : side_by_side(plain, other);
    const auto run = program.run;
    const std::size_t skipped = first ? 0 : 2;  // tokens of the text that is not looked at
    program.run = [run, skipped](Engine& on) {
      const TokenPath both = run(on);
      return TokenPath(both.begin() + static_cast<std::ptrdiff_t>(skipped),
                       both.begin() + static_cast<std::ptrdiff_t>(skipped) + 2);
    };
    const TokenId prompt = first ? 0 : 1;
    program.before = [prompt](const TokenPath& path) { return after({prompt}, path); };
    expect_law(engine, biased(program));
    Program of_the_other = program;
    expect_noticed(engine, of_the_other, "no bias");
  }
}

TEST_F(EnumeratedLaw, Counted) {
  EnumeratedEngine engine(pair_.options());
  const auto law = [&](const Program& program, std::int32_t trees = 1) {
    expect_law(engine, program, trees);
  };
  law(counted(one_text("by costs", counting(sampled(3))), 3), 2);
  law(counted(one_text("three nodes", counting(sampled(3, Dyspec{3}))), 3), 3);
  law(counted(one_text("a chain", counting(sampled(4, Chain{2}))), 4), 2);
  law(counted(one_text("plain", counting(sampled(4, Plain{}))), 4), 0);
  // The prompt's tokens do not count, nor do those of earlier turns and of other branches.
  law(counted(repetitive("repetitive", counting(sampled(3, Dyspec{2}))), 3), 2);
  law(counted(turns(counting(sampled(2))), 2));
  law(counted(rewound(counting(sampled(2))), 2));
  law(counted(forked(counting(sampled(3, Dyspec{1}))), 3, 1));
  law(counted(side_by_side(counting(sampled(2)), counting(sampled(2, Dyspec{}, 1))), 2));
  GenerateOptions both = counting(sampled(3, Dyspec{2}));
  both.sampling.repetition_penalty = 1.8;
  law(counted(repetitive("with repetition penalty", both), 3), 2);
  GenerateOptions constrained = counting(sampled(4, Dyspec{3}));
  constrained.constraint = Constraint::regex(engine.engine(), "(ab|ba|c[ac])*");
  law(ruled(counted(one_text("constrained", constrained), 4), 4), 3);
  GenerateOptions forced = biased(constrained);  // masks win
  forced.logit_bias[0].second = 100.0;
  Program masked = ruled(counted(one_text("masks", forced), 4), 4);
  masked.bias = {{forced.logit_bias[0].first, 100.0f}, {forced.logit_bias[1].first, 1.5f}};
  law(masked);
  EngineOptions load = pair_.options(2);
  load.kv_tokens = 160;
  EnumeratedEngine short_of_memory(load);
  std::int64_t count = 0;
  expect_law(short_of_memory, counted(preempted(counting(sampled(3, Dyspec{1})), count), 3));
  EXPECT_GT(count, 0);
}

TEST_F(EnumeratedLaw, LeastLength) {
  EnumeratedEngine engine(pair_.options());
  for (const std::int32_t least : {1, 2}) {
    const auto options = [&](Speculation speculation) {
      GenerateOptions asked = sampled(3, std::move(speculation));
      asked.min_new_tokens = least;
      return asked;
    };
    const auto n = static_cast<std::size_t>(least);
    expect_law(engine, ended("by costs", options(Dyspec{}), n), 2);
    expect_law(engine, ended("three nodes", options(Dyspec{3}), n), 3);
    expect_law(engine, ended("a chain", options(Chain{2}), n), 2);
    expect_law(engine, ended("plain", options(Plain{}), n), 0);
    expect_noticed(engine, ended("two nodes", options(Dyspec{2}), n + 1), "one too few");
    expect_noticed(engine, ended("two nodes", options(Dyspec{2}), n - 1), "one too many");
  }
  expect_law(engine, ended("no least length", sampled(3, Dyspec{2}), 0), 2);
  // With a constraint whose texts may end everywhere.
  GenerateOptions constrained = sampled(4, Dyspec{3});
  constrained.min_new_tokens = 2;
  constrained.constraint = Constraint::regex(engine.engine(), "[ac]*");
  Program program = ended("constrained", constrained, 2);
  program.allows = [allows = program.allows](const TokenPath& path, TokenId token) {
    return token != 1 && allows(path, token);
  };
  expect_law(engine, program);
}

// Judges by D as it would be without bias.
class UnbiasedDraft final : public Verifier {
 public:
  explicit UnbiasedDraft(std::unique_ptr<Verifier> rule) : rule_(std::move(rule)) {}
  std::string name() const override { return rule_->name(); }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    DistributionTable declared(draft.rows(), draft.vocab_size());
    for (std::int32_t node = 0; node < draft.rows(); ++node) {
      if (!draft.has(node)) continue;
      const std::span<const float> from = draft.row(node);
      const std::span<float> to = declared.row(node);
      std::ranges::copy(from, to.begin());
      for (const TokenBias& of : the_bias)
        to[static_cast<std::size_t>(of.token)] *= std::exp(-of.bias);
      float sum = 0.0f;
      for (const float prob : to) sum += prob;
      for (float& prob : to) prob /= sum;
    }
    rule_->judge(tree, target, declared, key, verdict);
  }

 private:
  std::unique_ptr<Verifier> rule_;
};

// Which tokens a wrong judge counts at a node.
using CountedWrongly = std::function<void(SequenceState&, const TokenTree&, std::int32_t node,
                                          const std::function<void()>& with_counts)>;

class CountsWrongly final : public Verifier {
 public:
  CountsWrongly(std::unique_ptr<Verifier> rule, CountedWrongly wrongly)
      : rule_(std::move(rule)), wrongly_(std::move(wrongly)) {}
  std::string name() const override { return rule_->name(); }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    class Rows final : public TargetSource {
     public:
      Rows(const CountedWrongly& wrongly, const TokenTree& tree, TargetRows& rows)
          : wrongly_(wrongly), tree_(tree), rows_(rows) {}
      std::span<const float> distribution(std::int32_t node) override {
        const auto logits = rows_.logits(node);
        probs_.resize(logits.size());
        SequenceState& state = rows_.state();
        wrongly_(state, tree_, node, [&] {
          process_logits(logits, rows_.params(), nullptr, scratch_, probs_, &state.new_counts);
        });
        return probs_;
      }
      TokenId argmax(std::int32_t) override { return -1; }

     private:
      const CountedWrongly& wrongly_;
      const TokenTree& tree_;
      TargetRows& rows_;
      LogitsScratch scratch_;
      std::vector<float> probs_;
    } rows(wrongly_, tree, dynamic_cast<TargetRows&>(target));
    rule_->judge(tree, rows, draft, key, verdict);
  }

 private:
  std::unique_ptr<Verifier> rule_;
  const CountedWrongly wrongly_;
};

TEST_F(EnumeratedLaw, FaultsOfTermsAreNoticed) {
  EnumeratedEngine engine(pair_.options());
  const Program bias = biased(one_text("three nodes", biased(sampled(3, Dyspec{3}))));
  engine.judge_by([](const EnumeratedDecisions& decide) {
    return std::make_unique<UnbiasedDraft>(enumerated_rejection(decide));
  });
  expect_noticed(engine, bias, "D is declared without bias");
  const auto judge = [&](CountedWrongly wrongly) {
    engine.judge_by([wrongly = std::move(wrongly)](const EnumeratedDecisions& decide) {
      return std::make_unique<CountsWrongly>(enumerated_rejection(decide), wrongly);
    });
  };
  const GenerateOptions options = counting(sampled(3, Dyspec{3}));
  const Program counts = counted(repetitive("three nodes", options), 3);
  // As it is right, so that what follows is what is noticed.
  const auto rightly = [](SequenceState& state, const TokenTree& tree, std::int32_t node,
                          const std::function<void()>& body) {
    SamplingParams params;
    params.presence_penalty = 1.0;
    const PathCounts path(state, params, tree, node);
    body();
  };
  judge(rightly);
  expect_law(engine, counts, 3);
  judge([rightly](SequenceState& state, const TokenTree& tree, std::int32_t node,
                  const std::function<void()>& body) {
    const std::int32_t parent = tree.parent[static_cast<std::size_t>(node)];
    const std::int32_t sibling =
        parent < 0 ? node : tree.first_child[static_cast<std::size_t>(parent)];
    rightly(state, tree, sibling, body);
  });
  expect_noticed(engine, counts, "a sibling's counts");
  judge([](SequenceState&, const TokenTree&, std::int32_t, const std::function<void()>& body) {
    body();
  });
  expect_noticed(engine, counts, "no counts of the path");
  judge([rightly](SequenceState& state, const TokenTree& tree, std::int32_t node,
                  const std::function<void()>& body) {
    for (const TokenId token : {0, 1, 2}) state.new_counts.add(token);
    state.new_counts.add(0);
    rightly(state, tree, node, body);
    for (const TokenId token : {0, 1, 2}) state.new_counts.remove(token);
    state.new_counts.remove(0);
  });
  expect_noticed(engine, counts, "the prompt is counted");
}

}  // namespace
}  // namespace coppice::testing

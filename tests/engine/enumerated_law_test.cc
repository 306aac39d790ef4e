// What an engine writes has the target's law, computed and not sampled, in states that are rare:
// sizes by costs, texts side by side, short memory, stop texts, rewinds, forks, turns. Every
// outcome of all random decisions of a few calls is followed (enumerated_engine.h), and what
// anybody saw of the texts is compared with the target's law: all texts of a program jointly, so
// that noise used twice is found, too.
// Tolerance: law_programs.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/enumerated_engine.h"
#include "engine/law_programs.h"
#include "planted/planted.h"
#include "verify/planted_faults-inl.h"

namespace coppice::testing {
namespace {

TEST_F(EnumeratedLaw, OneText) {
  EnumeratedEngine engine(pair_.options());
  expect_law(engine, one_text("sizes by costs", sampled(3)), 2);
  expect_law(engine, one_text("two nodes", sampled(3, Dyspec{2})));
  expect_law(engine, one_text("a threshold", sampled(3, DyspecThreshold{0.3, 3})));
  expect_law(engine, one_text("a chain by costs", sampled(3, Chain{})));
  expect_law(engine, one_text("plain", sampled(3, Plain{})), 0);
}

TEST_F(EnumeratedLaw, TurnsRewindsForksAndStopTexts) {
  EnumeratedEngine engine(pair_.options(2));
  for (const bool penalty : {false, true}) {
    GenerateOptions options = sampled(2);
    if (penalty) options.sampling = penalised();
    expect_law(engine, turns(options));
    expect_law(engine, rewound(options));
    GenerateOptions of_branch = options;
    of_branch.max_new_tokens = 3;  // with two no tree would pay
    of_branch.speculation = Dyspec{1};
    expect_law(engine, forked(of_branch));
    expect_law(engine, stopped(options, "b"));
    if (penalty) continue;  // 30,000 paths without it say enough of longer texts
    options.max_new_tokens = 3;
    expect_law(engine, stopped(options, "bc"));
  }
}

TEST_F(EnumeratedLaw, TextsSideBySide) {
  EnumeratedEngine engine(pair_.options(2));
  expect_law(engine, side_by_side(sampled(2), sampled(2, Dyspec{}, 1)));
  expect_law(engine, side_by_side(sampled(2), sampled(2, Dyspec{1}, 1)));
  expect_law(engine, twin(sampled(2), 0));
  expect_law(engine, twin(sampled(2), 1));
}

// Children that come from no distribution: beside the draft's, and alone.
TEST_F(EnumeratedLaw, LookedUp) {
  EnumeratedEngine engine(pair_.options());
  const auto looked_up = [](std::int32_t tokens, Speculation speculation = Dyspec{},
                            Lookup lookup = Lookup::text, std::uint64_t stream = 0) {
    GenerateOptions options = sampled(tokens, std::move(speculation), stream);
    options.lookup = lookup;
    return options;
  };
  expect_law(engine, repetitive("looked up, by costs", looked_up(4)), 2);
  expect_law(engine, repetitive("looked up, three nodes", looked_up(3, Dyspec{3})), 3);
  expect_law(engine, repetitive("looked up, a threshold", looked_up(3, DyspecThreshold{0.2, 3})));
  expect_law(engine, repetitive("looked up, a chain by costs", looked_up(4, Chain{})));
  expect_law(engine, repetitive("looked up, a chain of two", looked_up(4, Chain{2})), 2);
  expect_law(engine, repetitive("looked up, plain values", looked_up(3, Dyspec{3, true})), 3);
  GenerateOptions penalty = looked_up(3, Dyspec{2});
  penalty.sampling = penalised();
  expect_law(engine, repetitive("looked up, penalised", penalty));
  expect_law(engine, turns(looked_up(2)));
  expect_law(engine, turns(looked_up(2, Dyspec{2}, Lookup::engine)));
  expect_law(engine, side_by_side(looked_up(2), looked_up(2, Dyspec{}, Lookup::engine, 1)));
  GenerateOptions left_out = looked_up(4, Dyspec{3});
  left_out.use_draft = false;
  expect_law(engine, repetitive("looked up, without the draft", left_out), 3);
  EngineOptions no_draft = pair_.options();
  no_draft.draft.clear();
  no_draft.cost_table.clear();
  EnumeratedEngine alone(no_draft);
  expect_law(alone, repetitive("no draft, three nodes", looked_up(4, Dyspec{3})), 3);
  expect_law(alone, repetitive("no draft, a chain", looked_up(4, Chain{2})), 2);
  expect_law(alone, repetitive("no draft, answers", looked_up(4, Dyspec{2}, Lookup::engine)), 2);
  alone.judge_by([](const EnumeratedDecisions& decide) {
    return make_faulty_rejection_verifier(JudgingFault::residual_keeps_looked_up, decide);
  });
  expect_noticed(alone, repetitive("three nodes", looked_up(4, Dyspec{3})),
                 "looked-up tokens stay in the residual");
}

// All nodes have the root's distribution, and its mask.
class JudgedAsTheRoot final : public Verifier {
 public:
  explicit JudgedAsTheRoot(std::unique_ptr<Verifier> rule) : rule_(std::move(rule)) {}
  std::string name() const override { return rule_->name(); }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    class OfRoot final : public TargetSource {
     public:
      explicit OfRoot(TargetSource& whole) : whole_(whole) {}
      std::span<const float> distribution(std::int32_t) override { return whole_.distribution(0); }
      TokenId argmax(std::int32_t) override { return whole_.argmax(0); }

     private:
      TargetSource& whole_;
    } of_root(target);
    rule_->judge(tree, of_root, draft, key, verdict);
  }

 private:
  std::unique_ptr<Verifier> rule_;
};

TEST_F(EnumeratedLaw, UnderAConstraint) {
  const std::string pairs = "(ab|ba|c[ac])*";
  EnumeratedEngine engine(pair_.options());
  const Constraint rules = Constraint::regex(engine.engine(), pairs);
  const auto ruled_options = [&](std::int32_t tokens, Speculation speculation = Dyspec{},
                                 std::uint64_t stream = 0) {
    GenerateOptions options = sampled(tokens, std::move(speculation), stream);
    options.constraint = rules;
    return options;
  };
  expect_law(engine, ruled(one_text("by costs", ruled_options(4)), 4), 2);
  expect_law(engine, ruled(one_text("three nodes", ruled_options(4, Dyspec{3})), 4), 3);
  expect_law(engine, ruled(one_text("a threshold", ruled_options(3, DyspecThreshold{0.3, 3})), 3));
  expect_law(engine, ruled(one_text("a chain", ruled_options(4, Chain{2})), 4));
  expect_law(engine, ruled(one_text("a chain by costs", ruled_options(4, Chain{})), 4));
  expect_law(engine, ruled(one_text("plain", ruled_options(4, Plain{})), 4), 0);
  GenerateOptions penalty = ruled_options(4, Dyspec{2});
  penalty.sampling = penalised();
  expect_law(engine, ruled(one_text("penalised", penalty), 4));
  // A filter that came before the mask would leave other tokens.
  GenerateOptions filtered = ruled_options(4, Dyspec{2});
  filtered.sampling.top_k = 2;
  expect_law(engine, ruled(one_text("two most probable", filtered), 4));
  GenerateOptions looked_up = ruled_options(4, Dyspec{3});
  looked_up.lookup = Lookup::text;
  expect_law(engine, ruled(repetitive("looked up", looked_up), 4), 3);
  expect_law(engine, ruled(turns(ruled_options(2)), 2));
  expect_law(engine, ruled(rewound(ruled_options(2)), 2));
  GenerateOptions of_branch = ruled_options(3, Dyspec{1});
  expect_law(engine, ruled(forked(of_branch), 3, 1));
  expect_law(engine, ruled(side_by_side(ruled_options(2), ruled_options(2, Dyspec{}, 1)), 2));
  EngineOptions load = pair_.options(2);
  load.kv_tokens = 160;
  EnumeratedEngine short_of_memory(load);
  GenerateOptions options = sampled(4, Dyspec{1});
  options.constraint = Constraint::regex(short_of_memory.engine(), pairs);
  std::int64_t count = 0;
  expect_law(short_of_memory, ruled(preempted(options, count), 4));
  EXPECT_GT(count, 0);
  // Faults.
  EngineAccess access(engine.engine());
  access.plant(DrawingFault::declared_is_not_sampled);
  expect_noticed(engine, ruled(one_text("three nodes", ruled_options(4, Dyspec{3})), 4),
                 "D is not what was drawn from");
  access.plant(DrawingFault::none);
  expect_noticed(engine, one_text("three nodes", ruled_options(4, Dyspec{3})),
                 "the target's own law");
  // A token that may not follow never becomes text.
  EnumeratedEngine faulty(pair_.options());
  faulty.judge_by([](const EnumeratedDecisions& decide) {
    return std::make_unique<JudgedAsTheRoot>(enumerated_rejection(decide));
  });
  GenerateOptions as_root = sampled(4, Dyspec{3});
  as_root.constraint = Constraint::regex(faulty.engine(), pairs);
  EXPECT_THROW(faulty.error(ruled(one_text("judged as the root", as_root), 4)), Error);
}

// Gives a proposed child the whole chance of its node, as an engine does that writes forced text
// without asking the target.
class WritesUnasked final : public Verifier {
 public:
  explicit WritesUnasked(std::unique_ptr<Verifier> rule) : rule_(std::move(rule)) {}
  std::string name() const override { return rule_->name(); }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    class Certain final : public TargetSource {
     public:
      Certain(const TokenTree& of, TargetSource& whole) : tree_(of), whole_(whole) {}
      std::span<const float> distribution(std::int32_t node) override {
        const std::span<const float> row = whole_.distribution(node);
        const std::int32_t child = tree_.first_child[static_cast<std::size_t>(node)];
        if (child < 0 || !tree_.is_certain(child)) return row;
        row_.assign(row.size(), 0.0f);
        row_[static_cast<std::size_t>(tree_.token[static_cast<std::size_t>(child)])] = 1.0f;
        return row_;
      }
      TokenId argmax(std::int32_t node) override { return whole_.argmax(node); }

     private:
      const TokenTree& tree_;
      TargetSource& whole_;
      std::vector<float> row_;
    } certain(tree, target);
    rule_->judge(tree, certain, draft, key, verdict);
  }

 private:
  std::unique_ptr<Verifier> rule_;
};

// "cab" has two spellings behind its "c", of which one is proposed: with a draft, without one, and
// beside looked-up tokens.
TEST_F(EnumeratedLaw, ForcedTextIsJudged) {
  const ThreeLetters pair({{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}});
  const std::string pattern = "(cab|b)*";
  const auto spelt = [](Program program) {
    program.allows = [](const TokenPath& path, TokenId token) {
      constexpr const char* texts[] = {"a", "b", "c", "ab"};
      std::string text;
      for (const TokenId before : path) text += texts[before];
      text += texts[token];
      for (std::string_view left = text; !left.empty();) {
        const std::string_view whole = left.front() == 'b' ? "b" : "cab";
        if (!whole.starts_with(left.substr(0, whole.size()))) return false;
        left.remove_prefix(std::min(left.size(), whole.size()));
      }
      return true;
    };
    return program;
  };
  for (const bool drafts : {true, false}) {
    EngineOptions load = pair.options();
    if (!drafts) {
      load.draft.clear();
      load.cost_table.clear();
    }
    EnumeratedEngine engine(load);
    const Constraint rules = Constraint::regex(engine.engine(), pattern);
    const auto ruled = [&](Speculation speculation, Lookup lookup = Lookup::none) {
      GenerateOptions options = sampled(4, std::move(speculation));
      options.constraint = rules;
      options.lookup = lookup;
      return spelt(one_text(drafts ? "drafted" : "forced alone", options));
    };
    expect_law(engine, ruled(Dyspec{3}), 2);
    expect_law(engine, ruled(Chain{3}), 2);
    expect_law(engine, ruled(DyspecThreshold{0.2, 3}), 2);
    expect_law(engine, ruled(Dyspec{3}, Lookup::text), 2);
    if (!drafts) {
      GenerateOptions fewer = sampled(4, Chain{3});
      fewer.constraint = rules;
      EXPECT_GT(engine.error(spelt(one_text("steps", fewer))).accepted_length, 1.2);
    }
    engine.judge_by([](const EnumeratedDecisions& decide) {
      return std::make_unique<WritesUnasked>(enumerated_rejection(decide));
    });
    const LawError unasked = engine.error(ruled(Chain{3}));
    std::cout << "forced text written unasked: total variation " << unasked.variation << "\n";
    EXPECT_GE(unasked.largest, noticed) << "forced text is written unasked: " << unasked.text();
    EXPECT_GE(unasked.variation, unasked.largest);
  }
}

TEST_F(EnumeratedLaw, ShortMemory) {
  {
    EngineOptions load = pair_.options(2);
    load.kv_tokens = 160;
    EnumeratedEngine engine(load);
    std::int64_t count = 0;
    expect_law(engine, preempted(sampled(3, Dyspec{1}), count));
    EXPECT_GT(count, 0);
    std::cout << count << " times preempted\n";
  }
  EngineOptions load = pair_.options(3);
  load.kv_tokens = 32;
  EnumeratedEngine engine(load);
  std::int32_t cached = 0;
  expect_law(engine, evicted(sampled(3, Dyspec{1}), cached));
  EXPECT_EQ(cached, 0);
  // Slots for one node of a tree.
  Program few = one_text("few slots", sampled(3));
  const std::vector<TokenId> prompt(28, 1);
  few.run = [prompt](Engine& on) { return TokenPath(on.generate(prompt, sampled(3)).tokens); };
  few.before = [prompt](const TokenPath& path) { return after(prompt, path); };
  expect_law(engine, few);
}

// Faults in each of these states, and that this comparison notices them.

// Judges what is left of a tree when growth has thought better of it.
class PartJudged final : public Verifier {
 public:
  using Keep = std::function<bool(const TokenTree&, std::int32_t node)>;
  PartJudged(std::unique_ptr<Verifier> rule, Keep keep)
      : rule_(std::move(rule)), keep_(std::move(keep)) {}
  std::string name() const override { return rule_->name(); }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    std::vector<std::int32_t> kept;
    for (std::int32_t node = 1; node < tree.nodes(); ++node) {
      if (keep_(tree, node)) kept.push_back(node);
    }
    TokenTree part;
    part.assign_part(tree, kept);
    // `target` knows the nodes by their places in the whole tree.
    class OfPart final : public TargetSource {
     public:
      OfPart(TargetSource& whole, const std::vector<std::int32_t>& kept)
          : whole_(whole), kept_(kept) {}
      std::span<const float> distribution(std::int32_t node) override {
        return whole_.distribution(in_whole(node));
      }
      TokenId argmax(std::int32_t node) override { return whole_.argmax(in_whole(node)); }
      std::int32_t in_whole(std::int32_t node) const {
        return node == 0 ? 0 : kept_[static_cast<std::size_t>(node) - 1];
      }

     private:
      TargetSource& whole_;
      const std::vector<std::int32_t>& kept_;
    } of_part(target, kept);
    rule_->judge(part, of_part, draft, key, verdict);
    for (std::int32_t& node : verdict.path) node = of_part.in_whole(node);
  }

 private:
  std::unique_ptr<Verifier> rule_;
  Keep keep_;
};

bool is_leaf(const TokenTree& tree, std::int32_t node) {
  return std::find(tree.parent.begin(), tree.parent.end(), node) == tree.parent.end();
}
bool is_last_sibling(const TokenTree& tree, std::int32_t node) {
  const auto n = static_cast<std::size_t>(node);
  return std::find(tree.parent.begin() + node + 1, tree.parent.end(), tree.parent[n]) ==
         tree.parent.end();
}

TEST_F(EnumeratedLaw, LeavesDroppedAfterTheyWereDrawnAreNoticed) {
  EnumeratedEngine engine(pair_.options(2));
  const auto drop_leaves = [&](const std::function<bool(const TokenTree&, std::size_t)>& hopeless) {
    engine.judge_by([hopeless](const EnumeratedDecisions& decide) {
      return std::make_unique<PartJudged>(
          enumerated_rejection(decide), [hopeless](const TokenTree& tree, std::int32_t node) {
            return !hopeless(tree, static_cast<std::size_t>(node)) || !is_leaf(tree, node) ||
                   !is_last_sibling(tree, node);
          });
    });
  };
  // One whose number says that it will hardly be accepted.
  drop_leaves([](const TokenTree& tree, std::size_t leaf) { return tree.uniform[leaf] >= 0.5f; });
  const std::string fault = "hopeless leaves are dropped";
  expect_noticed(engine, one_text("by costs", sampled(3)), fault);
  expect_noticed(engine, one_text("two nodes", sampled(3, Dyspec{2})), fault);
  expect_noticed(engine, one_text("chain", sampled(3, Chain{2})), fault);
  // One whose token the draft finds improbable, as where slots are short.
  drop_leaves(
      [](const TokenTree& tree, std::size_t leaf) { return tree.draft_prob[leaf] <= 0.3f; });
  expect_noticed(engine, one_text("two nodes", sampled(3, Dyspec{2})),
                 "improbable leaves are dropped");
  engine.judge_by(enumerated_rejection);
  expect_law(engine, one_text("two nodes", sampled(3, Dyspec{2})));
}

// The number that will judge the root's first child is looked at before there is one.
class SkippedAtHighNumbers final : public Verifier {
 public:
  explicit SkippedAtHighNumbers(const EnumeratedDecisions& decide) : decide_(decide) {}
  std::string name() const override { return "rejection, skipped at high numbers"; }
  void judge(const TokenTree& tree, TargetSource& target, const DistributionTable& draft,
             const StepKey& key, Verdict& verdict) override {
    const bool skipped = decide_.look(RandomAddress{RandomStream::accept, key, root_node_key, 0},
                                      [](double u) { return u > 0.5; });
    PartJudged(enumerated_rejection(decide_), [&](const TokenTree&, std::int32_t) {
      return !skipped;
    }).judge(tree, target, draft, key, verdict);
  }

 private:
  EnumeratedDecisions decide_;
};

TEST_F(EnumeratedLaw, GrowthThatLooksAtNumbersToComeIsNoticed) {
  EnumeratedEngine engine(pair_.options(2));
  engine.judge_by([](const EnumeratedDecisions& decide) {
    return std::make_unique<SkippedAtHighNumbers>(decide);
  });
  expect_noticed(engine, one_text("by costs", sampled(3)), "growth skipped at a high number");
  engine.judge_by(enumerated_rejection);
  // In trees of two nodes hardly any sibling is drawn for what was seen of its number.
  EnumeratedEngine three(pair_.options(3));
  EngineAccess access(three.engine());
  for (const DrawingFault fault :
       {DrawingFault::looks_at_next_sibling, DrawingFault::looks_at_next_step}) {
    access.plant(fault);
    expect_noticed(three, one_text("by costs", sampled(3)),
                   "prices look at number " + std::to_string(static_cast<int>(fault)));
  }
  access.plant(DrawingFault::none);
  expect_law(three, one_text("by costs", sampled(3)));
  {
    const Planted planted(Fault::looks_under_rejection);
    EnumeratedEngine dear(pair_.options(2, true));
    expect_noticed(dear, one_text("by costs", sampled(3)), "prices look at children not taken");
  }
  expect_law(engine, one_text("by costs", sampled(3)));
}

TEST_F(EnumeratedLaw, StatesThatAreNotTakenBackAreNoticed) {
  EnumeratedEngine engine(pair_.options(2));
  GenerateOptions options = sampled(2);
  options.sampling = penalised();
  expect_noticed(engine,
                 rewound(options, {.rewound =
                                       [](SequenceState& state, const SequenceState& before) {
                                         state.counts = before.counts;
                                       }}),
                 "tokens taken back are counted");
  options.speculation = Dyspec{1};
  options.max_new_tokens = 3;
  expect_noticed(
      engine,
      forked(options, {.forked = [](SequenceState& state) { state.counts = TokenCounts(3); }}),
      "a fork's tokens are not counted");
  expect_noticed(engine,
                 rewound(sampled(2), {.rewound = [](SequenceState& state,
                                                    const SequenceState&) { state.steps = 0; }}),
                 "steps are counted anew after a rewind");
}

TEST_F(EnumeratedLaw, NoiseUsedTwiceIsNoticed) {
  {
    EngineOptions load = pair_.options(2);
    load.kv_tokens = 160;
    EnumeratedEngine engine(load);
    const Planted planted(Fault::preempted_noise_is_reused);
    std::int64_t count = 0;
    expect_noticed(engine, preempted(sampled(3, Dyspec{1}), count), "a preempted text's noise");
  }
  EnumeratedEngine engine(pair_.options(2));
  expect_law(engine, side_by_side(sampled(2, Dyspec{1}), sampled(2, Dyspec{1}, 65536)));
  expect_noticed(engine, side_by_side(sampled(2, Dyspec{1}), sampled(2, Dyspec{1}, 65536 & 0xffff)),
                 "streams of 16 bits");
}

}  // namespace
}  // namespace coppice::testing

// Texts under a constraint, through the engine: what may be written, and that speculation writes
// what plain decoding writes.
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/batch_requests.h"
#include "engine/pair.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

const char* const tale_prompt = "The captain wrote in his book:";
const char* const lines_pattern = "([A-Z][a-z]{1,8}, [a-z ]{3,20}\\.( |\\n)){2,4}";
const char* const cat_schema = R"({"type": "object", "properties": {
  "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 30},
  "colours": {"type": "array", "items": {"enum": ["black", "white", "red"]}, "maxItems": 3}},
  "required": ["name", "age"], "additionalProperties": false})";

GenerateOptions constrained(const Constraint& constraint, double temperature,
                            Speculation speculation = Dyspec{}) {
  GenerateOptions options;
  options.max_new_tokens = 96;
  options.seed = 11;
  options.constraint = constraint;
  options.sampling.temperature = temperature;
  options.speculation = std::move(speculation);
  return options;
}

bool is_cat(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("name") || !json.contains("age")) return false;
  for (const auto& [key, value] : json.items()) {
    if (key == "name"  ? !value.is_string()
        : key == "age" ? !value.is_number_integer() || value < 0 || value > 30
                       : key != "colours" || !value.is_array() || value.size() > 3) {
      return false;
    }
  }
  return true;
}

// What a text may be is what it is: alone and among others, at any temperature, by both rules.
TEST(ConstrainedText, IsInItsLanguage) {
  Engine engine = Engine::load(shipped_options());
  const Constraint schema = Constraint::json_schema(engine, cat_schema);
  const Constraint lines = Constraint::regex(engine, lines_pattern);
  const std::regex pattern(lines_pattern);
  int whole = 0, cut = 0;
  for (const std::size_t texts : {1, 12}) {
    for (const double temperature : {0.0, 0.7, 1.5}) {
      if (sanitized && temperature != 0.7) continue;
      for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
        std::vector<Request> requests(texts);
        for (std::size_t t = 0; t < texts; ++t) {
          requests[t].prompt = tale_prompt;
          requests[t].options = constrained(t % 2 == 0 ? schema : lines, temperature);
          requests[t].options.acceptance = acceptance;
          requests[t].options.stream = t;
          if (t % 3 == 1) requests[t].options.lookup = Lookup::text;
        }
        const std::vector<Outcome> outcomes = engine.generate(requests);
        for (std::size_t t = 0; t < texts; ++t) {
          const Generation& g = only(outcomes[t]);
          if (g.finish_reason != FinishReason::eos) {
            EXPECT_EQ(g.finish_reason, FinishReason::length);
            ++cut;
            continue;
          }
          ++whole;
          EXPECT_TRUE(t % 2 == 0 ? is_cat(g.text) : std::regex_match(g.text, pattern)) << g.text;
        }
      }
    }
  }
  std::cout << whole << " texts are whole, " << cut << " ran out of tokens\n";
  EXPECT_GT(whole, sanitized ? 8 : 24);
}

TEST(ConstrainedText, IsThatOfPlainDecoding) {
  Engine engine = Engine::load(shipped_options());
  const Constraint schema = Constraint::json_schema(engine, cat_schema);
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions plain = constrained(schema, temperature, Plain{});
    plain.acceptance = Acceptance::coupled;
    const Generation expected = engine.generate(tale_prompt, plain);
    std::int64_t looked_up = 0;
    for (const Speculation& speculation :
         std::vector<Speculation>{Dyspec{}, Dyspec{12}, DyspecThreshold{0.1, 16}, Chain{}, Chain{4},
                                  Sequoia{8, 0, {}}, SpecInfer{8}, ExpandRerank{8}}) {
      GenerateOptions options = plain;
      options.speculation = speculation;
      const Generation found = engine.generate(tale_prompt, options);
      if (!on_cuda()) {
        EXPECT_EQ(found.tokens, expected.tokens) << found.text;
      }
      looked_up += found.statistics.looked_up;
    }
    EXPECT_GT(looked_up, 0) << "what is forced is to be proposed";
  }
}

// Without a draft and without looked-up tokens, what the constraint forces is proposed, and the
// target judges it.
TEST(ConstrainedText, SpeculatesAlone) {
  EngineOptions load = shipped_options();
  load.draft.clear();
  Engine engine = Engine::load(load);
  const Constraint schema = Constraint::json_schema(engine, cat_schema);
  std::vector<Request> together;
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions plain = constrained(schema, temperature, Plain{});
    plain.acceptance = Acceptance::coupled;
    const Generation expected = engine.generate(tale_prompt, plain);
    EXPECT_EQ(expected.statistics.looked_up, 0);
    for (const Speculation& speculation : std::vector<Speculation>{
             Dyspec{}, Dyspec{8}, DyspecThreshold{0.1, 16}, Chain{}, Chain{4}, Sequoia{8, 0, {}}}) {
      GenerateOptions options = plain;
      options.speculation = speculation;
      const Generation found = engine.generate(tale_prompt, options);
      const std::string what = name_of(speculation) + " at " + std::to_string(temperature);
      if (!on_cuda()) {
        EXPECT_EQ(found.tokens, expected.tokens) << what << ": " << found.text;
      }
      EXPECT_EQ(found.statistics.draft_passes, 0) << what;
      if (std::holds_alternative<Sequoia>(speculation)) {
        EXPECT_EQ(found.used.policy, "none") << "its trees have no place for proposals";
        continue;
      }
      if (found.used.tree_size > 0) {  // else the clock may say that nothing pays
        EXPECT_GT(found.statistics.looked_up_accepted, 2) << what;
        EXPECT_LT(found.statistics.steps, expected.statistics.steps - 2) << what;
      }
      Request& request = together.emplace_back();
      request.prompt = tale_prompt;
      request.options = options;
    }
  }
  const std::vector<Outcome> outcomes = engine.generate(together);
  for (std::size_t i = 0; i < together.size() && !on_cuda(); ++i) {
    EXPECT_EQ(only(outcomes[i]).tokens, engine.generate(tale_prompt, together[i].options).tokens)
        << i;
  }
}

// A text that has not come to an end of its language says which bound it met: never eos.
TEST(ConstrainedText, SaysWhyItEnded) {
  Engine engine = Engine::load(shipped_options());
  const Constraint cat =
      Constraint::regex(engine, "\\{\"name\": \"[a-z]{1,6}\", \"age\": [0-9]{1,2}\\}");
  const GenerateOptions whole = constrained(cat, 0.0);
  const Generation all = engine.generate(tale_prompt, whole);
  ASSERT_EQ(all.finish_reason, FinishReason::eos);
  for (std::int32_t tokens = 1; tokens < static_cast<std::int32_t>(all.tokens.size()); ++tokens) {
    GenerateOptions cut = whole;
    cut.max_new_tokens = tokens;
    const Generation found = engine.generate(tale_prompt, cut);
    EXPECT_EQ(found.finish_reason, FinishReason::length) << tokens;
    if (!on_cuda()) {
      EXPECT_TRUE(std::equal(found.tokens.begin(), found.tokens.end(), all.tokens.begin()));
    }
  }
  // A stop text ends a text inside the language, and the next one has a constraint of its own.
  for (const bool drafts : {true, false}) {
    GenerateOptions stopped = whole;
    stopped.stop = {"\"age"};
    stopped.use_draft = drafts;
    Sequence sequence = engine.new_sequence();
    const Generation found = sequence.generate(tale_prompt, stopped);
    EXPECT_EQ(found.finish_reason, FinishReason::stop);
    EXPECT_EQ(found.text, all.text.substr(0, all.text.find("\"age")));
    const std::vector<std::string> answers = {"yes", "no"};
    stopped.constraint = Constraint::choice(engine, answers);
    const Generation next = sequence.generate("", stopped);
    EXPECT_EQ(next.finish_reason, FinishReason::eos);
    EXPECT_TRUE(next.text == "yes" || next.text == "no") << next.text;
  }
  // A stop text that the constraint forces ends it, too.
  GenerateOptions choice = constrained({}, 0.7);
  const std::vector<std::string> one = {"first second third"};
  choice.constraint = Constraint::choice(engine, one);
  choice.stop = {" third"};
  const Generation found = engine.generate(tale_prompt, choice);
  EXPECT_EQ(found.text, "first second");
  EXPECT_EQ(found.finish_reason, FinishReason::stop);
}

// A server's threads share one constraint between a thousand texts.
TEST(ConstrainedText, ThreadsShareOne) {
  EngineOptions load = shipped_options();
  load.max_sequences = 16;
  Engine engine = Engine::load(load);
  const Constraint dates = Constraint::regex(engine, "20[0-9]{2}-(0[1-9]|1[0-2])");
  const std::regex pattern("20[0-9]{2}-(0[1-9]|1[0-2])");
  std::vector<int> whole(4, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < whole.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<Request> requests(64);
      for (std::size_t r = 0; r < requests.size(); ++r) {
        requests[r].prompt = tale_prompt;
        requests[r].n = 4;
        requests[r].options = constrained(dates, 1.5, r % 3 == 0 ? Speculation(Plain{}) : Dyspec{});
        requests[r].options.stream = 4 * (requests.size() * t + r);
        requests[r].options.use_draft = r % 2 == 0;
      }
      for (const Outcome& outcome : engine.generate(requests)) {
        for (const Generation& g : outcome.samples) {
          whole[t] += g.finish_reason == FinishReason::eos && std::regex_match(g.text, pattern);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole, std::vector<int>(4, 256));
}

// One that fails in the middle of its text fails alone.
TEST(ConstrainedText, FailsAlone) {
  Engine engine = Engine::load(shipped_options());
  std::vector<Request> requests(3);
  for (Request& request : requests) {
    request.prompt = tale_prompt;
    request.options = constrained({}, 1.5);
  }
  requests[1].options.constraint =
      Constraint::regex(engine, "[ab]{20}((a{0,99}b{0,99}){0,99}){0,99}[ab]*a[ab]{22}");
  requests[1].options.max_new_tokens = 400;
  const std::vector<Outcome> outcomes = engine.generate(requests);
  ASSERT_TRUE(outcomes[1].error);
  for (const std::size_t other : {0, 2}) {
    EXPECT_FALSE(outcomes[other].error);
    EXPECT_GT(only(outcomes[other]).tokens.size(), 10u);
  }
}

TEST(ConstrainedText, EndsByItself) {
  Engine engine = Engine::load(shipped_options());
  const std::vector<std::string> answers = {"yes", "no", "perhaps"};
  const Constraint choice = Constraint::choice(engine, answers);
  std::vector<int> seen(answers.size(), 0);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    GenerateOptions options = constrained(choice, 1.0);
    options.seed = seed;
    const Generation g = engine.generate(tale_prompt, options);
    const auto at = std::find(answers.begin(), answers.end(), g.text);
    ASSERT_NE(at, answers.end()) << g.text;
    ++seen[static_cast<std::size_t>(at - answers.begin())];
    EXPECT_EQ(g.finish_reason, FinishReason::eos);
  }
  // The next turn of a sequence is free again, or has a constraint of its own.
  Sequence sequence = engine.new_sequence();
  sequence.generate(tale_prompt, constrained(choice, 0.0));
  EXPECT_GT(sequence.generate("", constrained({}, 0.0)).tokens.size(), 5u);
  EXPECT_EQ(sequence.generate("", constrained(choice, 0.0)).finish_reason, FinishReason::eos);
}

// Nothing is drafted behind an end token, and what must come is proposed.
TEST(ConstrainedText, TreesEndWhereTextsEnd) {
  Engine engine = Engine::load(shipped_options());
  const std::vector<std::string> one = {"yes"};
  GenerateOptions options = constrained(Constraint::choice(engine, one), 0.0, Dyspec{12});
  const JudgedTree judged = engine.judge_tree(tale_prompt, options);
  std::vector<bool> has_child(judged.nodes.size(), false);
  for (const TreeNode& node : judged.nodes) {
    if (node.parent >= 0) has_child[static_cast<std::size_t>(node.parent)] = true;
  }
  std::int32_t ends = 0;
  for (std::size_t n = 1; n < judged.nodes.size(); ++n) {
    if (!engine.detokenize({&judged.nodes[n].token, 1}).empty()) continue;
    ++ends;
    EXPECT_FALSE(has_child[n]) << "node " << n;
  }
  EXPECT_GT(ends, 0);
}

// What a tree shows of the constraint: equal states, what may follow, and which tokens are forced.
TEST(ConstrainedText, TreesShowStates) {
  Engine engine = Engine::load(shipped_options());
  GenerateOptions options =
      constrained(Constraint::json_schema(engine, cat_schema), 0.0, Dyspec{12});
  options.use_draft = false;
  const JudgedTree forced = engine.judge_tree(tale_prompt, options);
  EXPECT_GE(forced.nodes.front().state, 0);
  for (std::size_t n = 1; n < forced.nodes.size(); ++n) {
    const TreeNode& node = forced.nodes[n];
    EXPECT_TRUE(node.forced && node.looked_up) << n;
    EXPECT_GT(node.allowed, 0) << n;
    EXPECT_EQ(node.state < 0, node.target_prob == 0.0) << n;
  }
  options.use_draft = true;
  const JudgedTree drafted = engine.judge_tree(tale_prompt, options);
  ASSERT_GT(drafted.nodes.size(), 4u);
  for (const TreeNode& node : drafted.nodes) {
    EXPECT_GE(node.state, 0);
    EXPECT_LE(node.forced, node.looked_up);
  }
  options.constraint = {};
  for (const TreeNode& node : engine.judge_tree(tale_prompt, options).nodes) {
    EXPECT_EQ(node.allowed, -1);
    EXPECT_EQ(node.state, -1);
  }
}

TEST(ConstrainedText, RefusesWhatHasNoMeaning) {
  Engine engine = Engine::load(shipped_options());
  const auto message = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(message([&] { Constraint::regex(engine, "(a"); }).find("(a"), std::string::npos);
  EXPECT_NE(message([&] {
              Constraint::json_schema(engine, R"({"minProperties": "x"})");
            }).find("minProperties"),
            std::string::npos);
  GenerateOptions options = constrained(Constraint::json(engine), 0.0);
  options.ignore_eos = true;
  EXPECT_NE(message([&] { engine.generate(tale_prompt, options); }).find("ignore_eos"),
            std::string::npos);
  Engine other = Engine::load(shipped_options());
  options = constrained(Constraint::json(engine), 0.0);
  EXPECT_NE(message([&] { other.generate(tale_prompt, options); }).find("another engine"),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::testing

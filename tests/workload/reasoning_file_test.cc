// Template files, whole and damaged.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reference/files.h"
#include "workload/motion.h"
#include "workload/templates.h"

namespace coppice::workload {
namespace {

using nlohmann::json;
using testing::error_of;
using testing::expect_says;
using testing::small_template;
using testing::TemplateFile;

ReasoningFile read(const json& value) { return read_reasoning(TemplateFile(value.dump()).path()); }

/// What is said of a list with one template, small_template() after `damage`.
template <typename Damage>
std::string refusal(Damage damage) {
  json one = small_template();
  damage(one);
  const std::string what = error_of([&] { read(json::array({one})); });
  EXPECT_NE(what.find("templates.json: template 0: "), std::string::npos) << what;
  return what;
}

TEST(ReasoningFile, ReadsCompleteTemplatesOnly) {
  json incomplete = small_template(), stump = small_template();
  incomplete["incompleted"] = true;
  incomplete["data"]["2"] = "nobody looks at this";
  stump["data"] = json::object();
  const ReasoningFile file = read({incomplete, small_template(), stump, small_template()});
  EXPECT_EQ(file.incomplete, 2u);
  ASSERT_EQ(file.trees.size(), 2u);
  EXPECT_EQ(file.trees[1].name, "template 3");
  const TreeTemplate& tree = file.trees[0];
  EXPECT_EQ(tree.prompt, "Once upon a time");
  ASSERT_EQ(tree.nodes.size(), 6u);
  EXPECT_EQ(tree.prompt_tokens(), 20);
  EXPECT_EQ(tree.nodes[5].parent, 2);
  EXPECT_EQ(tokens_above(tree)[5], 36);
  // Iterations 17 and 18 have one branch, 19 to 24 two, 25 to 30 one again.
  const Reads reads = reads_of(tree);
  EXPECT_EQ(reads.iterations, 30);
  EXPECT_EQ(reads.generated, 46);
  EXPECT_EQ(reads.by_tree, 20 * 16 + 55 + 136 + 36 * 14 + 36 + 78);
  EXPECT_EQ(reads.per_query, 20 * 10 + 20 * 16 + 55 + 136 + 36 * 8 + 36 * 12 + 36 + 78);
}

// In whatever order nodes are listed, and however a prompt says when it was there.
TEST(ReasoningFile, OrderAndThePromptsTimesDoNotMatter) {
  json one = small_template();
  one["data"]["0"]["start"] = 0;
  one["data"]["0"]["children"] = {3, 2, 1};
  one["prompt"] = json::array({"a turn", "another"});
  const ReasoningFile file = read(json::array({one}));
  EXPECT_EQ(reads_of(file.trees[0]), reads_of(read(json::array({small_template()})).trees[0]));
  EXPECT_EQ(file.trees[0].prompt, "a turn");
}

TEST(ReasoningFile, SaysWhatIsWrongAndWhere) {
  const auto node = [](json& t, const char* id) -> json& { return t["data"][id]; };
  expect_says(refusal([&](json& t) { node(t, "4")["value"] = 9; }),
              "node 4: \"value\" says 9 tokens, \"start\" to \"end\" 8");
  expect_says(refusal([&](json& t) { node(t, "4")["value"] = -8; }), "node 4: \"value\" is -8");
  expect_says(refusal([&](json& t) { node(t, "4")["value"] = 1.5; }), "node 4: \"value\" is 1.5");
  expect_says(refusal([&](json& t) { node(t, "4")["value"] = "8"; }), "node 4: \"value\" is '8'");
  expect_says(refusal([&](json& t) { node(t, "4")["value"] = 1e15; }), "node 4: \"value\" is");
  expect_says(refusal([&](json& t) { node(t, "4")["value"] = UINT64_MAX; }),
              "node 4: \"value\" is");
  expect_says(refusal([&](json& t) { node(t, "4").erase("end"); }), "node 4: \"end\" is missing");
  expect_says(
      refusal([&](json& t) {
        node(t, "0")["children"] = {1};
        t["data"] = {
            {"0", node(t, "0")},
            {"1",
             {{"id", 1}, {"value", 0}, {"start", 1}, {"end", 0}, {"children", json::array()}}}};
      }),
      "no node but the prompt has tokens");
  expect_says(refusal([&](json& t) { node(t, "4")["id"] = 5; }), "node 4: its \"id\" is 5");
  expect_says(refusal([&](json& t) {
                node(t, "2")["children"] = {4, 9};
              }),
              "its child 9 is no node");
  expect_says(refusal([&](json& t) {
                node(t, "2")["children"] = {4, 5, 1};
              }),
              "node 2: its child 1 is node 0's already");
  expect_says(refusal([&](json& t) { node(t, "2")["children"] = {4}; }),
              "nodes 0 and 5 have no parent");
  expect_says(refusal([&](json& t) { node(t, "2")["children"] = 4; }), "\"children\" is 4");
  expect_says(refusal([&](json& t) {
                node(t, "4")["start"] = 16;
                node(t, "4")["end"] = 23;
              }),
              "node 4: it starts in iteration 16, before node 2 ends in 16");
  expect_says(refusal([&](json& t) {
                node(t, "0")["children"] = {1, 2};
                node(t, "3")["children"] = {3};
              }),
              "1 nodes can not be reached");
  expect_says(refusal([&](json& t) { node(t, "0")["value"] = 0; }), "the prompt has no tokens");
  expect_says(refusal([&](json& t) { node(t, "0")["end"] = 1; }), "the prompt ends in iteration 1");
  expect_says(refusal([&](json& t) { node(t, "5")["children"] = {0}; }), "every node has a parent");
  expect_says(refusal([&](json& t) { t["data"]["x"] = node(t, "4"); }), "node 'x'");
  expect_says(refusal([&](json& t) { t["data"]["04"] = node(t, "4"); }), "node 4 is there twice");
  expect_says(refusal([&](json& t) { t["data"] = 7; }), "\"data\" is 7");
  expect_says(refusal([&](json& t) { t.erase("data"); }), "\"data\" is missing");
  expect_says(refusal([&](json& t) { t["prompt"] = 7; }), "\"prompt\" is 7");
  expect_says(refusal([&](json& t) { t["incompleted"] = "no"; }), "\"incompleted\" is 'no'");
  expect_says(error_of([] { read(json::object({{"Records", 1}})); }), "not a list of templates");
  expect_says(error_of([] { read(json::array({3})); }), "template 0 is 3, not an object");
  expect_says(error_of([] { read_reasoning(TemplateFile("[{\"data\": ").path()); }),
              "not valid JSON at byte");
  expect_says(error_of([] { read_reasoning("/nowhere/at-all.json"); }), "/nowhere/at-all.json");
}

TEST(ReasoningFile, EveryByteMayBeWrong) {
  const std::string whole = json::array({small_template()}).dump();
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = whole;
    text[random() % text.size()] = static_cast<char>(random() % 256);
    if (random() % 4 == 0) text.resize(random() % text.size());
    const TemplateFile file(text);
    refused += error_of([&] {
                 for (const TreeTemplate& tree : read_reasoning(file.path()).trees) reads_of(tree);
               }).empty()
                   ? 0
                   : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST(FewShot, RefusesWhatIsNoTree) {
  const auto what = [](auto call) { return error_of(call, ErrorKind::usage); };
  expect_says(what([] { few_shot(0, 1, 2); }), "a prompt of 0 tokens");
  expect_says(what([] { few_shot(1, 0, 2); }), "0 branches");
  expect_says(what([] { few_shot(1, 1, 1); }), "1 iterations");
  expect_says(what([] { few_shot(1, 16000, 1 << 20); }), "at most");
}

}  // namespace
}  // namespace coppice::workload

// coppice workload as a shell sees it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command_runs.h"
#include "workload/templates.h"

namespace coppice::testing {
namespace {

using nlohmann::json;

class WorkloadCommand : public Cli {
 protected:
  std::string file(const json& contents) const {
    std::ofstream(folder("templates.json")) << contents.dump();
    return "'" + folder("templates.json") + "'";
  }
  json figures(const std::string& tail) const {
    const Result r = run("workload " + tail + " --format json");
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out, nullptr, false);
  }
};

TEST_F(WorkloadCommand, CountsWithoutAModel) {
  const json one = small_template();
  json incomplete = one;
  incomplete["incompleted"] = true;
  const std::string name = file({incomplete, one, one, one});
  const json all = figures("reasoning " + name + " --count-only --plan radix");
  EXPECT_EQ(all["trees"], 3);
  EXPECT_EQ(all["incomplete"], 1);
  EXPECT_EQ(all["counted"]["iterations"], 90);
  EXPECT_EQ(all["counted"]["tokens"], 138);
  ASSERT_EQ(all["counted_by_tree"].size(), 3u);
  EXPECT_EQ(all["counted_by_tree"][2]["name"], "template 3");
  EXPECT_EQ(all["counted_by_tree"][2]["iterations"], 30);
  EXPECT_EQ(all["plan"]["kv_tokens_read"], all["counted"]["kv_tokens_read_per_query"]);
  EXPECT_FALSE(all.contains("engine"));
  EXPECT_EQ(figures("reasoning " + name + " --count-only --trees 1")["counted"]["iterations"], 30);
  EXPECT_EQ(figures("few-shot --count-only")["counted"]["kv_tokens_read_by_tree"], 3192000);
  EXPECT_EQ(figures("few-shot --count-only")["counted"]["iterations"], 400);
}

TEST_F(WorkloadCommand, ReplaysOnAnEngineAndDraws) {
  const std::string name = file(json::array({small_template()}));
  const json r = figures("reasoning " + name + " --svg '" + folder("tree.svg") + "'");
  EXPECT_EQ(r["engine"]["finished"], true);
  EXPECT_EQ(r["engine"]["passes"], r["counted"]["iterations"].get<int>() + 1);  // the prompt's
  EXPECT_EQ(r["engine"]["tokens"], r["counted"]["tokens"]);
  EXPECT_GT(r["engine"]["seconds"]["verify"], 0.0);
  EXPECT_EQ(slurp(folder("tree.svg")).rfind("<svg", 0), 0u);
  const std::string shape = "few-shot --prompt-tokens 100 --branches 3 --iterations 9";
  const json shared = figures(shape)["engine"];
  const json by_text = figures(shape + " --plan radix")["engine"];
  const json apart = figures(shape + " --no-sharing")["engine"];
  EXPECT_EQ(shared["sharing"], true);
  EXPECT_EQ(shared["policy"], "none");
  EXPECT_EQ(shared["accepted_length"], 1.0);
  const json drafted = figures(shape + " --policy chain --tree-size 4")["engine"];
  EXPECT_EQ(drafted["policy"], "chain");
  EXPECT_EQ(drafted["tokens"], shared["tokens"]);
  EXPECT_GT(drafted["accepted_length"], 1.0);
  EXPECT_LT(shared["kv_tokens_read_by_tree"], shared["kv_tokens_read_by_text"]);
  EXPECT_EQ(by_text["kv_tokens_read_by_text"], shared["kv_tokens_read_by_text"]);
  EXPECT_EQ(by_text["kv_tokens_read_by_tree"], by_text["kv_tokens_read_by_text"]);
  EXPECT_EQ(by_text["peak_kv_tokens"], shared["peak_kv_tokens"]);
  for (const std::string plan : {"node", "node-chunk", "subtree"}) {
    const json divided = figures(shape + " --plan " + plan);
    EXPECT_EQ(divided["plan"]["name"], plan);
    EXPECT_EQ(divided["engine"]["plan"], plan);
    EXPECT_EQ(divided["engine"]["tokens"], shared["tokens"]);
    EXPECT_EQ(divided["engine"]["kv_tokens_read_by_tree"], shared["kv_tokens_read_by_tree"]);
  }
  EXPECT_GT(apart["peak_kv_tokens"], 2 * shared["peak_kv_tokens"].get<int>());
  const json copies =
      figures("few-shot --prompt-tokens 40 --branches 3 --iterations 9 --no-sharing");
  EXPECT_EQ(copies["engine"]["sharing"], false);
  EXPECT_EQ(copies["engine"]["tokens"], 24);
  const json record = {{"Tree_Structure", {{0}, {0, 0}}},
                       {"Records", {{{"prompt", "Once"}, {"Accept_length", {1, 3, 2}}}}}};
  const json steps = figures("speculation " + file(record) + " --prompt-tokens 20");
  EXPECT_FALSE(steps["engine"].contains("policy"));  // accepted lengths are forced
  EXPECT_EQ(steps["engine"]["passes"], 3);
  EXPECT_EQ(steps["engine"]["tokens"], 6);
  const auto drawn = [&](const std::string& more) {
    figures("speculation " + file(record) + " --count-only --svg '" + folder("steps.svg") + "'" +
            more);
    return slurp(folder("steps.svg"));
  };
  const std::string recorded = drawn("");
  EXPECT_NE(recorded.find("step 2: 2 tokens accepted"), std::string::npos);
  EXPECT_EQ(drawn(" --new-tokens 100"), recorded) << "steps beyond the record were not recorded";
  const Result text = run("workload few-shot --prompt-tokens 40 --branches 2 --iterations 4");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("KV by tree       132 tokens read, 47.6% less"), std::string::npos)
      << text.out;
  EXPECT_NE(text.out.find("  seconds "), std::string::npos) << text.out;
}

TEST_F(WorkloadCommand, AnswersPromptsThatShare) {
  const std::string batch = folder("batch.jsonl");
  const json r = figures(
      "toolbench --prompt-tokens 120 --groups 3 --group-prompts 4 --new-tokens 5 --parallel 4 "
      "--output '" +
      batch + "'");
  EXPECT_EQ(r["prompts"], 12);
  EXPECT_EQ(r["engine"]["texts"], 12);
  EXPECT_EQ(r["engine"]["tokens"], 60);
  EXPECT_EQ(r["engine"]["prompt_tokens"], r["prompt_tokens"]);
  EXPECT_LT(r["distinct_tokens"], r["prompt_tokens"]);
  EXPECT_GE(r["engine"]["computed_tokens"], r["distinct_tokens"]);
  EXPECT_LE(r["engine"]["computed_over_distinct"], 1.02);
  // By calls of their own, few at a time: some find nothing of their group, and none is lost.
  const json apart = figures(
      "toolbench --prompt-tokens 120 --groups 3 --group-prompts 4 --new-tokens 5 --parallel 2 "
      "--calls 3");
  EXPECT_EQ(apart["engine"]["texts"], 12);
  EXPECT_EQ(apart["engine"]["tokens"], 60);
  EXPECT_EQ(apart["engine"]["prompt_tokens"], r["prompt_tokens"]);
  EXPECT_EQ(apart["distinct_tokens"], r["distinct_tokens"]);
  EXPECT_LE(apart["engine"]["computed_over_distinct"], 1.03);
  std::istringstream lines(slurp(batch));
  std::int64_t tokens = 0;
  for (std::string line; std::getline(lines, line);) {
    tokens += std::ssize(json::parse(line)["tokens"]);
  }
  EXPECT_EQ(tokens, r["prompt_tokens"]);
  const Result written = run("generate --policy none --batch '" + batch + "'");
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(std::count(written.out.begin(), written.out.end(), '\n'), 12);
  const Result drafted =
      run("workload toolbench --prompt-tokens 120 --groups 3 --group-prompts 4 --policy chain "
          "--tree-size 4");
  EXPECT_EQ(drafted.code, 0) << drafted.err;
  EXPECT_NE(drafted.out.find("by the draft\n"), std::string::npos) << drafted.out;
  EXPECT_NE(drafted.out.find("included, by chain\n"), std::string::npos) << drafted.out;
  const Result count = run("workload loogle --groups 2 --group-prompts 2 --count-only");
  EXPECT_EQ(count.code, 0) << count.err;
  EXPECT_NE(count.out.find("a prompt"), std::string::npos) << count.out;
}

TEST_F(WorkloadCommand, RefusesWhatItCannotReplay) {
  expect_error("workload", 2, "name few-shot, reasoning, speculation, toolbench or loogle");
  expect_error("workload resoning", 2, "reasoning");
  expect_error("workload reasoning", 2, "name the file of templates");
  expect_error("workload reasoning /nowhere.json", 1, "/nowhere.json");
  expect_error("workload few-shot --trees 3", 2, "--trees does nothing for workload few-shot");
  expect_error("workload few-shot --new-tokens 3", 2, "--new-tokens does nothing");
  expect_error("workload toolbench some.json", 2, "FILE does nothing for workload toolbench");
  expect_error("workload toolbench --svg x.svg", 2, "--svg does nothing");
  expect_error("workload toolbench --prompt-tokens 5", 2, "too short");
  expect_error("workload loogle --groups 1 --group-prompts 1", 2, "--prompt-tokens");
  expect_error("workload few-shot --calls 2", 2, "--calls does nothing");
  expect_error("workload toolbench --calls 0", 2, "--calls");
  expect_error("workload few-shot --groups 2", 2, "--groups does nothing");
  expect_error("workload few-shot --plan best", 2, "--plan");
  expect_error("workload few-shot --branches 0", 2, "--branches 0");
  expect_error("workload few-shot --branches 2000 --iterations 3", 2, "2000 branches side by side");
  expect_error("workload few-shot", 2, "--shrink");  // the shipped target's context is 512
  expect_error("workload few-shot --shrink 10 --svg /nowhere/at/all.svg", 1, "/nowhere/at");
  expect_error("workload few-shot --count-only --svg -", 2, "/dev/stdout");
  expect_error("workload toolbench --count-only --output ''", 2, "--output '': it is empty");
  const Result cut = run("workload toolbench --prompt-tokens 100 --kv-tokens 144");
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.out.find("64, of "), std::string::npos) << cut.out;
  EXPECT_NE(cut.err.find("ended early"), std::string::npos) << cut.err;
  const std::string name = file(json::array({small_template()}));
  expect_error("workload speculation " + name, 1, "a list of templates is for reasoning");
  expect_error("workload reasoning " + name + " --branches 3", 2, "--branches does nothing");
  expect_error("workload reasoning " + name + " --count-only --svg " + name, 2, "would replace");
  json damaged = small_template();
  damaged["data"]["4"]["value"] = 3;
  expect_error("workload reasoning " + file(json::array({damaged})), 1, "template 0: node 4");
  expect_error("workload reasoning " + file(json::array()), 1, "it holds no templates");
  json incomplete = small_template();
  incomplete["incompleted"] = true;
  expect_error("workload reasoning " + file(json::array({incomplete})), 1,
               "no complete template: each is flagged so");
  expect_error("workload few-shot --prompt-tokens 0", 2, "--prompt-tokens 0: use 1");
  const std::string empty = folder("empty.txt");
  std::ofstream(empty).flush();
  expect_error("workload few-shot '" + empty + "'", 2, "is empty; give some text");
  expect_error("workload speculation", 2, "name the file of records");
}

}  // namespace
}  // namespace coppice::testing

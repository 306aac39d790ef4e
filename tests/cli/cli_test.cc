// The command as a shell sees it: output, exit codes, one clear line for every bad input.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>

#include "base/tcp.h"
#include "base/utf8.h"
#include "cli/command_runs.h"
#include "engine/pair.h"
#include "server/client.h"

namespace coppice::testing {
namespace {

TEST_F(Cli, HelpAndVersion) {
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_NE(run("--help").out.find("coppice generate"), std::string::npos);
  // The commit that it was built from, or "unknown".
  const std::string version = run("--version").out;
  EXPECT_TRUE(std::regex_search(
      version, std::regex(R"(^coppice [0-9]+\.[0-9]+\.[0-9]+ \([A-Za-z0-9._/+-]+\)\n)")))
      << version;
  for (const char* command :
       {"generate", "tree", "study", "record", "replay", "audit", "advise", "plan", "info"}) {
    const Result r = run(std::string(command) + " --help");
    EXPECT_EQ(r.code, 0);
    EXPECT_NE(r.out.find(command), std::string::npos);
  }
  for (const char* option : {"--temperature", "--tree-size", "--acceptance", "--cost-table",
                             "--prompt-ids", "--stop", "--logprobs", "--cpu-dtype", "--kv-dtype",
                             "--widths", "--tree", "--tree-depth", "--beam-width", "0.79"}) {
    EXPECT_NE(run("generate --help").out.find(option), std::string::npos) << option;
  }
}

TEST_F(Cli, JsonKeepsItsContract) {
  const Result r =
      run("generate --prompt 'The captain looked at the' --max-new-tokens 20 --seed 3 "
          "--temperature 0.7 --acceptance rejection "
          "--format json --logprobs");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  const auto json = nlohmann::json::parse(r.out);
  for (const char* name : {"text",
                           "tokens",
                           "prompt_tokens",
                           "finish_reason",
                           "prefill_tokens",
                           "steps",
                           "accepted_length",
                           "emitted_per_step",
                           "tree_size",
                           "tree_size_mean",
                           "draft_passes",
                           "seconds",
                           "tokens_per_second",
                           "decode_tokens_per_second",
                           "logprobs",
                           "policy",
                           "acceptance",
                           "temperature",
                           "draft_temperature",
                           "seed",
                           "device",
                           "dtype",
                           "version"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  for (const char* name : {"load", "prefill", "draft", "verify", "sampling", "other", "total"}) {
    EXPECT_TRUE(json["seconds"].contains(name)) << name;
  }
  EXPECT_EQ(json["seed"], 3);
  EXPECT_EQ(json["draft_temperature"], 0.7);
  EXPECT_EQ(json["logprobs"].size(), json["tokens"].size());
  EXPECT_EQ(json["logprobs"][0]["top"].size(), 5u);
  EXPECT_EQ(json["tree_size"], "auto");
  const Result plain = run("generate --prompt x --max-new-tokens 2 --policy none --format json");
  EXPECT_FALSE(nlohmann::json::parse(plain.out).contains("draft_temperature")) << "none drafts";
}

TEST_F(Cli, NoSeedWhereNoTextFollowsIt) {
  for (const char* given : {"", "--seed 5 "}) {
    const std::string greedy =
        cat("generate --prompt 'It was late' --max-new-tokens 2 --tree-size 4 ", given);
    EXPECT_TRUE(nlohmann::json::parse(run(greedy + "--format json").out).at("seed").is_null());
    const std::string told = run(greedy + "--stats").err;
    EXPECT_NE(told.find("temperature 0 "), std::string::npos) << told;
    EXPECT_EQ(told.find("seed"), std::string::npos) << told;
    const std::string tree = cat("tree --prompt 'It was late' --format json --tree-size 4 ", given);
    EXPECT_TRUE(nlohmann::json::parse(run(tree).out).at("seed").is_null());
    EXPECT_FALSE(nlohmann::json::parse(run(tree + "--temperature 1").out).at("seed").is_null());
  }
}

// SpecInfer's widths may hold fewer nodes than were asked for.
TEST_F(Cli, LogprobsTellWhatTokensSpell) {
  const std::string common =
      "generate --device cpu --threads 1 --tree-size 4 --format json --logprobs --seed 1 ";
  const auto json =
      nlohmann::json::parse(run(common + "--prompt 'The captain' --max-new-tokens 20").out);
  std::string text;
  for (const auto& entry : json["logprobs"]) {
    text += entry.at("text").get<std::string>();
    EXPECT_EQ(entry["top"].size(), 5u);
    for (const auto& other : entry["top"]) {
      EXPECT_EQ(other["token"] == entry["token"], other["text"] == entry["text"]) << other;
    }
  }
  EXPECT_EQ(text, json["text"].get<std::string>());
  // Anything: bytes that are no character, too.
  const auto wild = nlohmann::json::parse(
      run(common + "--prompt x --temperature 100 --max-new-tokens 200 --ignore-eos").out);
  std::size_t of_bytes = 0;
  for (const auto& entry : wild["logprobs"]) {
    EXPECT_NE(entry.contains("text"), entry.contains("bytes")) << entry;
    if (!entry.contains("bytes")) continue;
    ++of_bytes;
    ASSERT_EQ(entry["bytes"].size(), 1u);
    EXPECT_GE(entry["bytes"][0], 0x80) << entry;
  }
  EXPECT_GT(of_bytes, 0u);
  TinyModel model;
  write_tiny_model(folder("tiny"), model);
  const auto ids = nlohmann::json::parse(
      run(common + "--prompt-ids 1,2 --max-new-tokens 2 --draft none --target '" + folder("tiny") +
          "'")
          .out);
  for (const auto& entry : ids["logprobs"]) EXPECT_FALSE(entry.contains("text")) << entry;
}

TEST_F(Cli, SpecinferTakesAnySize) {
  const auto json = nlohmann::json::parse(
      run("generate --prompt 'It was late' --max-new-tokens 3 --format json --policy specinfer "
          "--tree-size 100")
          .out);
  EXPECT_LE(json["tree_size"], 100);
  EXPECT_GT(json["tree_size"], 64);
}

// It came with the prompt, and there is no step to divide by.
TEST_F(Cli, ASingleTokenIsReportedInNumbers) {
  for (const char* policy : {"none", "dyspec", "chain"}) {
    const std::string command =
        cat("generate --prompt 'It was late' --max-new-tokens 1 --seed 1 --policy ", policy);
    const auto json = nlohmann::json::parse(run(command + " --format json").out);
    EXPECT_EQ(json["tokens"].size(), 1u);
    EXPECT_EQ(json["prefill_tokens"], 1);
    EXPECT_EQ(json["steps"], 0);
    for (const char* name : {"accepted_length", "emitted_per_step", "tree_size_mean",
                             "draft_passes", "decode_tokens_per_second"}) {
      EXPECT_EQ(json[name], 0) << name;
    }
    EXPECT_GT(json["tokens_per_second"], 0.0);
    const Result table = run(command + " --stats");
    EXPECT_EQ(table.code, 0);
    EXPECT_NE(table.err.find("tokens/s, all prefill"), std::string::npos) << table.err;
    EXPECT_EQ(table.err.find("nan"), std::string::npos) << table.err;
    EXPECT_EQ(table.err.find("inf"), std::string::npos) << table.err;
  }
}

TEST_F(Cli, TextEqualsJsonAndPromptsComeFromEverywhere) {
  const std::string common = " --max-new-tokens 16 --seed 1 --cpu-dtype f32 --threads 1";
  std::ofstream(folder("prompt.txt")) << "It was late";
  const auto json =
      nlohmann::json::parse(run("generate --prompt 'It was late' --format json" + common).out);
  const std::string text = json["text"].get<std::string>() + "\n";
  EXPECT_EQ(run("generate --prompt 'It was late'" + common).out, text);
  EXPECT_EQ(run("generate --prompt-file '" + folder("prompt.txt") + "'" + common).out, text);
  EXPECT_EQ(run("generate" + common + " < '" + folder("prompt.txt") + "'").out, text);
  std::ofstream(folder("prompt.txt")) << "It was late\n";  // one newline at the end is dropped
  EXPECT_EQ(run("generate" + common + " < '" + folder("prompt.txt") + "'").out, text);
  const auto plain = run("generate --policy none --prompt 'It was late' --stats" + common);
  EXPECT_EQ(plain.out, text);
  EXPECT_NE(plain.err.find("accepted length"), std::string::npos);
}

TEST_F(Cli, PrintsARandomSeed) {
  const auto a = nlohmann::json::parse(
      run("generate --prompt x --temperature 1 --max-new-tokens 4 --format json").out);
  const auto b = nlohmann::json::parse(
      run("generate --prompt x --temperature 1 --max-new-tokens 4 --format json").out);
  EXPECT_NE(a["seed"], b["seed"]);
  EXPECT_NE(run("generate --prompt x --temperature 1 --max-new-tokens 4").err.find("seed "),
            std::string::npos);
}

TEST_F(Cli, CostTableIsSavedAndReused) {
  const std::string command =
      "generate --prompt 'One day' --max-new-tokens 24 --temperature 0.8 "
      "--seed 9 --format json --cost-table '" +
      folder("costs.json") + "'";
  const auto first = nlohmann::json::parse(run(command).out);
  EXPECT_TRUE(std::filesystem::exists(folder("costs.json")));
  const auto second = nlohmann::json::parse(run(command).out);
  EXPECT_EQ(first["tokens"], second["tokens"]) << "automatic sizes repeat with a saved table";
  EXPECT_EQ(first["steps"], second["steps"]);
  for (const char* other : {"{}", "no table", "{\"fingerprint\": "}) {
    std::ofstream(folder("costs.json")) << other;
    expect_error(command, 1,
                 "costs.json': not a cost table as this program writes them; name another file, or "
                 "delete it");
  }
}

TEST_F(Cli, EightProcessesShareACostTable) {
  const std::string generate = std::string("'") + COPPICE_BINARY +
                               "' generate --prompt 'One day' --max-new-tokens 4 --threads 1 "
                               "--device cpu --format json --cost-table '" +
                               folder("costs.json") + "'";
  std::string eight;
  for (int i = 0; i < 8; ++i) eight += generate + " & pids=\"$pids $!\"; ";
  const Result r =
      run("--version >/dev/null; { export COPPICE_MODELS='" + stories().parent_path().string() +
          "'; " + eight + "for pid in $pids; do wait $pid || exit 9; done; }");
  EXPECT_EQ(r.code, 0) << r.err;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    files += entry.path().filename().string().rfind("costs", 0) == 0 ? 1 : 0;
  }
  EXPECT_EQ(files, 1) << "temporary files are left";
}

// As for a processor that has no more. All sets give the same text in f32.
TEST_F(Cli, TheInstructionSetHasACap) {
  const auto under = [&](const std::string& set, const std::string& tail) {
    return run("--version >/dev/null; COPPICE_MODELS='" + stories().parent_path().string() +
               "' COPPICE_CPU_ISA=" + set + " '" + COPPICE_BINARY + "' " + tail);
  };
  const std::string generate =
      "generate --prompt 'Once upon a time' --max-new-tokens 6 --device cpu --cpu-dtype f32 "
      "--tree-size 4";
  const std::string text = under("''", generate).out;
  for (const char* set : {"sse4", "avx2", "avx512", "avx512_bf16", "amx"}) {
    const Result r = under(set, generate);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.out, text) << set;
    EXPECT_NE(under(set, "info").out.find(cat("COPPICE_CPU_ISA=", set)), std::string::npos);
  }
  EXPECT_NE(under("sse4", "info").out.find("sse4 of "), std::string::npos);
  const Result unknown = under("avx3", "info");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err,
            "coppice: COPPICE_CPU_ISA='avx3': no such instruction set; use sse4, avx2, avx512, "
            "avx512_bf16, amx\n");
  const Result without = under("avx2", "generate --prompt x --device cpu --cpu-dtype bf16");
  EXPECT_EQ(without.code, 2);
  EXPECT_NE(without.err.find("use f32"), std::string::npos) << without.err;
}

TEST_F(Cli, TreesHaveBiases) {
  const auto bonus = [&](const std::string& more) {
    const Result r = run(
        "tree --prompt 'The old woman said' --tree-size 4 --temperature 0 --format json " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    const auto json = nlohmann::json::parse(r.out);
    return json["bonus"];
  };
  EXPECT_NE(bonus("--logit-bias 300=100"), bonus("--logit-bias 301=100"));
  EXPECT_EQ(bonus("--logit-bias 300=100"), bonus("--logit-bias 300=100 --stop-tokens 5"));
}

TEST_F(Cli, TreeInEveryFormat) {
  const std::string common = "tree --prompt 'The old woman said' --tree-size 10 ";
  const Result text = run(common);
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("└─"), std::string::npos);
  EXPECT_NE(text.out.find("10 draft tokens"), std::string::npos);
  const std::string dot = run(common + "--format dot").out;
  EXPECT_EQ(dot.rfind("digraph tree {", 0), 0u);
  const auto count = [&](const std::string& what) {
    std::size_t found = 0;
    for (auto at = dot.find(what); at != std::string::npos; at = dot.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(" [label=<<b>"), 12u) << "the root, 10 draft tokens, the target's token";
  EXPECT_EQ(count(" -> "), 11u);
  EXPECT_EQ(count("peripheries=2"), 1u);
  EXPECT_EQ(count(" -> bonus"), 1u);
  EXPECT_NE(dot.find("<b>␣said</b>"), std::string::npos) << "blanks can be seen: " << dot;
  EXPECT_EQ(dot.find("<b> "), std::string::npos);
  const auto json = nlohmann::json::parse(run(common + "--format json").out);
  EXPECT_EQ(json["nodes"].size(), 11u);
  for (const auto& node : json["nodes"]) {
    const double t = node["target_prob"];
    EXPECT_TRUE(t >= 0.0 && t <= 1.0);
  }
  // A wide tree grows sideways, where labels take least room, a chain downwards.
  const std::string drawn = "tree --prompt 'The old woman said' --format dot --policy ";
  EXPECT_NE(run(drawn + "specinfer --widths 12,1").out.find("rankdir=LR"), std::string::npos);
  EXPECT_NE(run(drawn + "chain --tree-size 12").out.find("rankdir=TB"), std::string::npos);
}

// A tree under a constraint shows its states, also where it alone drafts.
TEST_F(Cli, TreesShowTheConstraint) {
  const std::string common =
      "tree --prompt 'Once' --choice 'first of all' --choice 'first of them' --temperature 0 "
      "--tree-size 8 ";
  const Result text = run(common + "--draft none");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("state  may follow"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" forced "), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find(" found "), std::string::npos) << text.out;
  EXPECT_NE(run(common + "--format dot").out.find("state 0: "), std::string::npos);
  const auto json = nlohmann::json::parse(run(common + "--format json").out);
  for (const auto& node : json["nodes"]) {
    EXPECT_GT(node.at("allowed"), 0) << node;
    EXPECT_TRUE(node.at("forced").is_boolean());
    EXPECT_GE(node.at("state"), 0);
  }
  const auto free = nlohmann::json::parse(run("tree --prompt 'Once' --format json").out);
  EXPECT_FALSE(free["nodes"][0].contains("state"));
  const Result without = run("tree --prompt 'Once' --draft none --choice a --policy sequoia");
  EXPECT_EQ(without.code, 0) << without.err;
}

// Commands whose texts take no constraint say who does.
TEST_F(Cli, ConstraintsAreRefusedWhereTheyAreNotObeyed) {
  for (const char* command :
       {"record --prompts p --out o", "replay r", "audit", "advise", "workload w"}) {
    const Result r = run(cat(command, " --json-schema '{}'"));
    EXPECT_EQ(r.code, 2) << command;
    EXPECT_NE(r.err.find("take no constraint; those of generate, chat, tree and study do"),
              std::string::npos)
        << command << ": " << r.err;
  }
}

// The shipped pair recommends the stop text "\n", which would leave half of this answer.
TEST_F(Cli, AConstrainedAnswerIsNotCutByARecommendedStop) {
  const auto text = [&](const std::string& options) {
    const Result r = run("generate --chat --prompt Hello --format json --regex 'a\\nb'" + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out).at("text").get<std::string>();
  };
  EXPECT_EQ(text(""), "a\nb");
  EXPECT_EQ(text(" --stop b"), "a\n");
}

TEST_F(Cli, AConstrainedTextThatIsCutOffSaysSo) {
  const std::string common = "generate --prompt Hello --regex '[a-z]{12}' --max-new-tokens ";
  const std::string cut =
      "the text was cut off after 1 token, before its constraint ended it; "
      "raise --max-new-tokens\n";
  EXPECT_EQ(run(common + "1").err, "coppice: " + cut);
  EXPECT_EQ(run(common + "1 --n 2 --temperature 0.8 --seed 1 --tree-size 4").err,
            "coppice: sample 1: " + cut + "coppice: sample 2: " + cut);
  EXPECT_EQ(run(common + "1 --format json").err, "") << "finish_reason says it";
  EXPECT_EQ(run(common + "40").err, "");
  EXPECT_EQ(run("generate --prompt Hello --max-new-tokens 1").err, "");
}

// A study's texts are held to its constraint, which its files and its page name.
TEST_F(Cli, StudiesTakeAConstraint) {
  std::ofstream(folder("prompts")) << "Once upon a time\nThe captain\n";
  const std::string out = folder("constrained");
  const std::string common =
      cat("study --device cpu --prompts '", folder("prompts"), "' --out '", out,
          "' --max-new-tokens 24 --policies lookup,chain --tree-sizes 4 ");
  const Result r = run(common + "--choice 'yes, of course' --choice 'no, not now'");
  ASSERT_EQ(r.code, 0) << r.err;
  std::ifstream results(out + "/results.jsonl");
  int texts = 0;
  for (std::string line; std::getline(results, line); ++texts) {
    const auto turn = nlohmann::json::parse(line).at("turns").at(0);
    EXPECT_TRUE(turn.at("text") == "yes, of course" || turn.at("text") == "no, not now") << turn;
  }
  EXPECT_EQ(texts, 6);
  const auto study = nlohmann::json::parse(slurp(out + "/study.json"));
  EXPECT_EQ(study.at("fixed").at("constraint").at("kind"), "choice");
  EXPECT_NE(slurp(out + "/report.html").find("yes, of course"), std::string::npos);
  const Result other = run(common + "--choice 'yes'");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("constraint"), std::string::npos) << other.err;
  EXPECT_NE(run(common + "--json --ignore-eos").err.find("leave one out"), std::string::npos);
}

TEST_F(Cli, StreamedLayersAreSaid) {
  const std::string common =
      "generate --device cpu --prompt 'The old woman said' --max-new-tokens 12 --tree-size 6 ";
  const Result resident = run(common + "-ngl 99 --stats");
  EXPECT_EQ(resident.err.find("layers stay"), std::string::npos) << resident.err;
  const Result streamed = run(common + "-ngl 1 -ngld 0 --stats");
  EXPECT_EQ(streamed.out, resident.out);
  EXPECT_NE(streamed.err.find("target           1 of "), std::string::npos) << streamed.err;
  EXPECT_NE(streamed.err.find("draft            0 of "), std::string::npos) << streamed.err;
  const auto json = nlohmann::json::parse(run(common + "--gpu-layers 1 --format json").out);
  EXPECT_EQ(json["target_layers"]["resident"], 1);
  EXPECT_GT(json["target_layers"]["streamed_bytes"], 1000000);
  EXPECT_FALSE(json.contains("draft_layers"));
}

TEST_F(Cli, SplitTargetsAreSaid) {
  const std::string common =
      "generate --device cpu --prompt 'The old woman said' --max-new-tokens 12 --tree-size 6 ";
  const Result whole = run(common + "--stats");
  EXPECT_EQ(whole.err.find("split over"), std::string::npos) << whole.err;
  const Result split = run(common + "--tensor-parallel 2 --stats");
  EXPECT_EQ(split.code, 0) << split.err;
  EXPECT_NE(split.err.find("target           split over 2 devices"), std::string::npos)
      << split.err;
  EXPECT_EQ(split.err.find("draft            split"), std::string::npos) << split.err;
  EXPECT_EQ(split.out, run(common + "--tensor-parallel 2 --policy none").out);
  const auto json = nlohmann::json::parse(
      run(common + "--tensor-parallel 2 --draft-tensor-parallel 2 --format json").out);
  EXPECT_EQ(json["target_devices"], 2);
  EXPECT_EQ(json["draft_devices"], 2);
}

/// Processes that share a target, over this machine's own network.
class CliRanks : public Cli {
 protected:
  /// Rank 0's output, code and errors; `before` is shell text that begins others.
  Result lead(const std::string& tail, const std::string& before) const {
    return run(tail + address_, before);
  }
  /// A process that joins, in the background; its errors go to a file of this name.
  std::string rank(const char* errors, const std::string& options = "") const {
    return cat("COPPICE_MODELS='", stories().parent_path().string(), "' '", COPPICE_BINARY,
               "' rank --threads 1 --connect 127.0.0.1:", port_, " ", options, " </dev/null 2>'",
               folder(errors), "' & ");
  }
  /// More texts than any machine writes before a process is killed.
  std::string many_texts() const {
    std::ofstream prompts(folder("prompts.txt"));
    for (int line = 0; line < 2000; ++line) prompts << "The old woman said " << line << "\n";
    return cat("generate --device cpu --threads 1 --tensor-parallel 2 --batch '",
               folder("prompts.txt"), "' --parallel 1 --ignore-eos --max-new-tokens 400");
  }
  /// Does it to the last process in the background, $rank, once rank 0 has written something.
  std::string once_written(const std::string& action) const {
    return cat("rank=$!; (until [ -s '", folder("stdout"), "' ]; do sleep 0.05; done; ", action,
               ") & ");
  }
  /// Waits for the file: the processes end by themselves.
  std::string errors_of(const char* errors, const std::string& part) const {
    std::string text;
    for (int tries = 0; tries < 600; ++tries) {
      text = slurp(folder(errors));
      if (text.ends_with("\n") && text.find(part) != std::string::npos) break;
      usleep(100000);
    }
    return text;
  }

  const std::uint16_t port_ = TcpListener({"127.0.0.1", 0}).port();
  const std::string address_ = cat(" --rank-address 127.0.0.1:", port_);
  const std::string common_ =
      "generate --device cpu --threads 1 --prompt 'The old woman said' --tree-size 6 "
      "--tensor-parallel 2 --max-new-tokens ";
};

TEST_F(CliRanks, TextsAreThoseOfOneProcess) {
  for (const char* sampling : {"24", "24 --temperature 0.8 --seed 3 --acceptance coupled"}) {
    const Result wanted = run(common_ + sampling);
    const Result split = lead(common_ + sampling + " --stats", rank("rank.err"));
    EXPECT_EQ(split.code, 0) << split.err << slurp(folder("rank.err"));
    EXPECT_EQ(split.out, wanted.out);
    EXPECT_NE(split.err.find("target           split over 2 devices"), std::string::npos)
        << split.err;
    EXPECT_EQ(slurp(folder("rank.err")),
              cat("coppice: joined 127.0.0.1:", port_, " as rank 1 of 2\n"));
  }
}

TEST_F(CliRanks, AProcessThatIsKilledEndsTheGeneration) {
  const Result r = lead(many_texts(), rank("rank.err") + once_written("kill -9 $rank"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("of 2000 lines: tensor parallel: rank 1 of 2: the connection "),
            std::string::npos)
      << r.err;
  EXPECT_EQ(r.out.find("\"error\""), std::string::npos);
}

// Texts that were not written are no errors: the next run writes them.
TEST_F(CliRanks, ABatchGoesOnAfterALoss) {
  const std::string file = folder("texts"), waiting = folder("texts.waiting");
  std::int64_t written = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string kill =
        cat("rank=$!; (until [ $(cat '", file, "' '", waiting, "' | wc -l) -gt ", written,
            " ]; do sleep 0.05; done 2>/dev/null; kill -9 $rank) & ");
    const Result r = lead(many_texts() + " --output '" + file + "'", rank("rank.err") + kill);
    EXPECT_EQ(r.code, 1);
    if (attempt == 1) {
      EXPECT_NE(r.err.find(cat(written, " of 2000 lines are there already")), std::string::npos);
    }
    const std::string texts = slurp(file) + slurp(waiting);
    EXPECT_EQ(texts.find("\"error\""), std::string::npos);
    const std::int64_t before = std::exchange(written, std::ranges::count(texts, '\n'));
    EXPECT_GT(written, before);
    EXPECT_NE(r.err.find(cat("coppice: stopped after ", written,
                             " of 2000 lines: tensor parallel: rank 1 of 2: ")),
              std::string::npos)
        << r.err;
    EXPECT_TRUE(r.err.ends_with("; start it again with the same options to go on\n")) << r.err;
  }
}

TEST_F(CliRanks, AProcessThatHangsEndsTheGeneration) {
  const Result r =
      lead(many_texts() + " --rank-timeout 3",
           rank("rank.err") + once_written("kill -STOP $rank; sleep 8; kill -CONT $rank"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("tensor parallel: nothing came from rank 1 of 2 for 3 s; see what holds it "
                       "up, and start again"),
            std::string::npos)
      << r.err;
  const std::string errors = errors_of("rank.err", "nothing came");
  EXPECT_NE(errors.find("nothing came from rank 1"), std::string::npos) << errors;
}

TEST_F(CliRanks, AChatEndsWithALostRank) {
  std::ofstream messages(folder("messages"));
  for (int message = 0; message < 2000; ++message) messages << "The old woman said\n/reset\n";
  messages.close();
  const Result r = lead(cat("chat --no-template --device cpu --threads 1 --tensor-parallel 2 <'",
                            folder("messages"), "'"),
                        rank("rank.err") + once_written("kill -9 $rank"));
  EXPECT_EQ(r.code, 1);
  const std::string line = "coppice: tensor parallel: rank 1 of 2: the connection ";
  EXPECT_NE(r.err.find(line), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find(line), r.err.rfind(line)) << r.err;
}

TEST_F(CliRanks, AServerEndsWithALostRank) {
  const std::string record = cat("echo $! >'", folder("pid"), "'; ");
  std::future<Result> served = std::async(std::launch::async, [&] {
    return lead("serve --port 0 --device cpu --threads 1 --tensor-parallel 2 --log none",
                rank("rank.err") + record);
  });
  const std::string said = "http://127.0.0.1:";
  std::string out;
  while (served.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready &&
         out.find(" (model") == std::string::npos) {
    out = slurp(folder("stdout"));
  }
  ASSERT_NE(out.find(said), std::string::npos) << slurp(folder("stderr"));
  const int port = std::stoi(out.substr(out.find(said) + said.size()));
  const int pid = std::stoi(slurp(folder("pid")));
  Client client(static_cast<std::uint16_t>(port));
  ASSERT_TRUE(client.send(request_text("POST", "/v1/completions",
                                       R"({"prompt": "The old woman said", "max_tokens": 400,
                                           "ignore_eos": true, "stream": true, "n": 64})")));
  EXPECT_NE(client.read_some(), "");
  kill(pid, SIGKILL);
  const Reply reply = client.read();
  EXPECT_NE(reply.body.find("tensor parallel: rank 1 of 2: the connection "), std::string::npos)
      << reply.body.substr(0, 1000);
  const Result r = served.get();
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("texts can be written: tensor parallel: rank 1 of 2: "), std::string::npos)
      << r.err;
}

// No request comes that would fail by it.
TEST_F(CliRanks, AnIdleServerEndsWithALostRank) {
  for (const auto& [action, why] : {std::pair("kill -9 $rank", "rank 1 of 2: the connection "),
                                    std::pair("kill -STOP $rank; sleep 8; kill -CONT $rank",
                                              "nothing came from rank 1 of 2")}) {
    std::ofstream(folder("stdout")).close();
    const Result r = lead(
        "serve --port 0 --device cpu --threads 1 --tensor-parallel 2 --log none --rank-timeout 4",
        rank("rank.err") + once_written(action) + "timeout -s KILL 100 env ");
    EXPECT_EQ(r.code, 1) << action;
    EXPECT_NE(r.err.find(cat("texts can be written: tensor parallel: ", why)), std::string::npos)
        << action << r.err;
  }
}

TEST_F(CliRanks, WaitsAreShown) {
  const std::string often = "export COPPICE_PROGRESS_EVERY=0.5; ";
  const Result first = run(cat("rank --connect 127.0.0.1:", port_, " --rank-timeout 2"), often);
  EXPECT_EQ(first.code, 1);
  EXPECT_NE(first.err.find(cat("coppice: waiting for rank 0 at 127.0.0.1:", port_, ", about ")),
            std::string::npos)
      << first.err;
  const Result zero = lead(common_ + "4 --rank-timeout 2", often);
  EXPECT_EQ(zero.code, 1);
  EXPECT_NE(
      zero.err.find(cat("coppice: waiting for 1 of 2 ranks at 127.0.0.1:", port_, ", about ")),
      std::string::npos)
      << zero.err;
}

TEST_F(CliRanks, RankZeroThatIsKilledEndsTheOthers) {
  (void)lead(many_texts(), rank("rank.err") + "timeout -s KILL 8 env ");
  const std::string errors = errors_of("rank.err", "connection");
  EXPECT_NE(errors.find("coppice: tensor parallel: rank 0 at 127.0.0.1:"), std::string::npos)
      << errors;
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 2) << errors;  // and that it joined
}

TEST_F(CliRanks, RankZeroThatHangsEndsTheOthers) {
  const std::string pid = folder("pid");
  (void)lead(many_texts(), rank("rank.err", "--rank-timeout 3") +
                               once_written(cat("kill -STOP $(cat '", pid,
                                                "'); sleep 9; kill -KILL $(cat '", pid, "')")) +
                               cat("sh -c 'echo $$ >\"", pid, "\"; exec \"$@\"' sh env "));
  const std::string errors = errors_of("rank.err", "rank 0 at");
  EXPECT_NE(errors.find(cat("coppice: tensor parallel: nothing came from rank 0 at 127.0.0.1:",
                            port_, " for 3 s; see what holds it up, and start again")),
            std::string::npos)
      << errors;
}

TEST_F(CliRanks, AnotherModelIsRefusedOnBothSides) {
  const std::string other = cat("--target '", (stories() / "draft").string(), "'");
  const Result r = lead(common_ + "4", rank("rank.err", other));
  EXPECT_EQ(r.code, 1);
  const std::string line = "rank 1 of 2 has another model (fingerprint ";
  EXPECT_NE(r.err.find(line), std::string::npos) << r.err;
  EXPECT_NE(errors_of("rank.err", line).find(line), std::string::npos) << slurp(folder("rank.err"));
}

TEST_F(CliRanks, WhatARankCannotBeIsSaidOnBothSides) {
  const Result r = lead(common_ + "4", rank("rank.err", "--devices 0"));
  EXPECT_EQ(r.code, 1);
  const std::string line = "devices: it names a GPU, and rank 0 is on a CPU; leave it out";
  EXPECT_NE(r.err.find("tensor parallel: rank 1 of 2 failed: " + line), std::string::npos) << r.err;
  EXPECT_NE(errors_of("rank.err", line).find(line), std::string::npos) << slurp(folder("rank.err"));
}

TEST_F(CliRanks, TheRankOfLeastMemoryIsNamed) {
  const Result r = lead(common_ + "4 --kv-tokens 4000000",
                        cat("(ulimit -v 4000000; ", rank("rank.err"), ") ; "));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.err.find("too little memory"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("; rank 1 of 2 has the least"), std::string::npos) << r.err;
}

TEST_F(CliRanks, WhatCannotBeIsRefused) {
  expect_error("generate --device cpu --prompt x --draft-tensor-parallel 4", 2,
               "draft-tensor-parallel 4: the draft's 2 heads are no multiple of it");
  const std::string one = "generate --device cpu --prompt x --rank-address ";
  expect_error(one + "127.0.0.1", 2, "rank-address '127.0.0.1': use HOST:PORT");
  expect_error(one + "127.0.0.1:70000 --tensor-parallel 2", 2, "use HOST:PORT");
  expect_error(one + "127.0.0.1:0 --tensor-parallel 2", 2, "with a port of 1 to 65535");
  expect_error(one + "'' --tensor-parallel 2", 2, "--rank-address '': it is empty");
  expect_error(one + "127.0.0.1:7300 --tensor-parallel 2 --rank-key ''", 2,
               "--rank-key '': it is empty");
  expect_error("rank --connect 127.0.0.1:0", 2, "with a port of 1 to 65535");
  expect_error(one + "127.0.0.1:7300", 2, "say how many share the target");
  for (const char* reachable :
       {"0.0.0.0", "[::]", "10.0.0.1", "127.example.com", "127.0.0.1.nip.io"}) {
    expect_error(cat(one, reachable, ":7300 --tensor-parallel 2"), 2, "give a rank-key");
  }
  expect_error(one + "127.0.0.1:7300 --tensor-parallel 2 --draft-tensor-parallel 2", 2,
               "the draft is whole on rank 0");
  expect_error(one + "192.0.2.1:7300 --tensor-parallel 2 --rank-key env:HOME", 1,
               "cannot listen there");
  expect_error(one + "127.0.0.1:7300 --tensor-parallel 2 --rank-timeout 0", 2, "rank-timeout 0");
  std::ofstream(folder("long.key")) << std::string(5000, 'k');
  std::ofstream(folder("raw.key"), std::ios::binary) << std::string(16, '\xc7') << '\x01';
  for (const std::string& command :
       {one + "127.0.0.1:7300 --tensor-parallel 2", cat("rank --connect 127.0.0.1:", port_)}) {
    expect_error(cat(command, " --rank-key '", folder("long.key"), "'"), 2,
                 "rank-key: the key has 5000 bytes; use at most 1024");
    expect_error(cat(command, " --rank-key '", folder("raw.key"), "'"), 2,
                 "rank-key: the key is no text");
  }
  expect_error("generate --device cpu --prompt x --rank-key env:HOME", 2, "give rank-address, too");
  expect_error("rank", 2, "--connect HOST:PORT is missing");
  const std::string joins = cat("rank --connect 127.0.0.1:", port_, " ");  // nobody is there
  expect_error(joins + "--threads -1", 2, "threads -1: use 1 to 1024");
  expect_error(joins + "--threads 2000", 2, "threads 2000: use 1 to 1024");
  expect_error(joins + "--gpu-memory-fraction 2", 2, "gpu-memory-fraction 2: use");
  expect_error(joins + "--devices 0,1", 2, "devices: 2 GPUs are listed, and a rank has one");
  expect_error("rank --connect nowhere", 2, "use HOST:PORT");
  expect_error(cat("rank --connect 127.0.0.1:", port_, " --rank-timeout 0.3"), 1,
               "nobody listens at 127.0.0.1:");
  expect_error(cat(common_, "4", address_, " --rank-timeout 0.3"), 1,
               "1 of 2 ranks came within 0.3 s");
}

TEST_F(Cli, EveryPolicyRepeatsTheGreedyText) {
  const std::string common =
      "generate --prompt 'The old woman said' --max-new-tokens 24 --cpu-dtype f32 --format json ";
  std::ofstream(folder("shape.json")) << R"({"paths": [[0], [1], [0, 0]]})";
  const auto plain = nlohmann::json::parse(run(common + "--policy none").out);
  const std::vector<std::pair<std::string, int>> policies = {
      {"static --tree '" + folder("shape.json") + "'", 3},
      {"specinfer --widths 3,2,1", 15},
      {"specinfer", 20},
      {"sequoia --tree-size 12 --tree-depth 4", 12},
      {"expand-rerank --tree-size 9 --beam-width 3", 9},
      {"dyspec --tree-size 9 --plain-values", 9},
      {"specinfer --widths 10,9", 100},  // more than an engine's usual 64
  };
  for (const auto& [policy, size] : policies) {
    const Result r = run(common + "--policy " + policy);
    ASSERT_EQ(r.code, 0) << r.err;
    const auto json = nlohmann::json::parse(r.out);
    EXPECT_EQ(json["tokens"], plain["tokens"]) << policy;
    EXPECT_EQ(json["policy"], policy.substr(0, policy.find(' ')));
    EXPECT_EQ(json["tree_size"], size);
    EXPECT_LT(json["steps"], 24);
  }
  const Result drawn =
      run("tree --prompt 'It was' --policy static --tree '" + folder("shape.json") + "'");
  EXPECT_NE(drawn.out.find("3 draft tokens in 2 draft passes"), std::string::npos) << drawn.err;
}

TEST_F(Cli, SaysWhatWasProbablyMeant) {
  expect_error("generat", 2, "did you mean 'generate'?");
  expect_error("zzzzzz", 2, "is no command; use one of generate");
  expect_error("generate --tempratur 1", 2, "did you mean --temperature?");
  expect_error("generate --zzzzzzzzzz 1", 2, "option '--zzzzzzzzzz' is unknown; see --help");
  expect_error("generate 'It was'", 2, "'It was' belongs to no option; give a text to continue");
  expect_error("generate --prompt It was", 2,
               "'was' belongs to no option; give a text to continue");
  expect_error("advise 4", 2, "'4' belongs to no option; give values as --option VALUE");
  expect_error("info a b", 2, "takes one model");
  expect_error("audit --samples 9223372036854775807", 2, "whole number from 1 to 100000000");
}

TEST_F(Cli, NamesReachTheTerminalEscaped) {
  const auto expect_plain = [](const std::string& text) {
    EXPECT_TRUE(is_valid_utf8(text));
    for (const char* acts : {"\x1b", "\x07", "\u009b", "\u202e"}) {
      EXPECT_EQ(text.find(acts), std::string::npos) << text;
    }
  };
  const std::filesystem::path dir = folder("a\x1b[2Jb\u009bc\u202e\xff");
  write_tiny_model(dir, TinyModel());
  std::ofstream(dir / "config.json")
      << R"({"architectures": ["\u001b]0;x\u0007"], "model_type": "\u009b2J\u202e\n"})";
  const Result described = run("info '" + dir.string() + "'");
  EXPECT_EQ(described.code, 1) << "what cannot be run is a failure";
  EXPECT_NE(described.err.find("the lines \"cannot run\" say why"), std::string::npos);
  EXPECT_EQ(described.out.find("computed in"), std::string::npos) << described.out;
  EXPECT_NE(described.out.find("\\x1b[2Jb\\u009bc\\u202e\\xff"), std::string::npos)
      << described.out;
  expect_plain(described.out);
  for (const std::string& tail :
       {"generate --prompt x --target '" + dir.string() + "'", "info '" + dir.string() + "/no'",
        "generate --prompt x --tree '" + dir.string() + "' --policy static",
        std::string("generate --device \"$(printf 'a\\033[2J\\nb')\" --prompt x")}) {
    const Result refused = run(tail);
    EXPECT_NE(refused.code, 0) << tail;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    expect_plain(refused.err);
  }
}

TEST_F(Cli, PolicyErrors) {
  const std::string x = "generate --prompt x ";
  expect_error(x + "--widths 2,2", 2, "widths: it belongs to policy specinfer, not to dyspec");
  expect_error(x + "--policy chain --tree a.json", 2, "tree: it belongs to policy static or");
  expect_error(x + "--policy specinfer --beam-width 2", 2, "expand-rerank, not to specinfer");
  expect_error(x + "--plain-values", 2, "give a tree-size, or leave it out");
  expect_error(x + "--policy sequoia --plain-values", 2,
               "plain-values: it belongs to policy dyspec or");
  expect_error(x + "--policy custom", 2, "is unknown; use one of");
  expect_error(x + "--policy specinfer --widths 2,x", 2, "--widths 'x': use a whole number");
  expect_error(x + "--policy specinfer --widths ''", 2, "--widths '': it is empty");
  expect_error(x + "--policy specinfer --widths 2,0", 2, "--widths '0': use a whole number from 1");
  expect_error(x + "--policy specinfer --widths 50,50", 2, "more than 2048 draft tokens");
  expect_error(x + "--policy specinfer --widths 2 --tree-size 8", 2, "the widths say");
  expect_error(x + "--policy sequoia --tree-depth -3", 2, "tree-depth -3");
  expect_error(x + "--policy sequoia --tree-size 5000", 2, "from 1 to 2048, or auto");
  expect_error(x + "--policy static", 2, "policy static needs one");
  expect_error(x + "--policy static --tree ''", 2, "--tree '': it is empty");
  expect_error(x + "--policy static --tree '" + folder("none.json") + "'", 1, "no such file");
  expect_error(x + "--policy static --tree /tmp", 1, "is a folder; name a file");
  std::ofstream(folder("bad.json")) << R"({"paths": [[0], [0)";
  expect_error(x + "--policy static --tree '" + folder("bad.json") + "'", 1, "not valid JSON");
  std::ofstream(folder("bad.json"), std::ios::trunc).close();
  expect_error(x + "--policy sequoia --tree '" + folder("bad.json") + "'", 1, "not valid JSON");
  std::ofstream(folder("bad.json")) << R"({"paths": []})";
  expect_error(x + "--policy static --tree '" + folder("bad.json") + "'", 1, "its tree is empty");
  expect_error(x + "--policy sequoia --tree '" + folder("bad.json") + "'", 1,
               "\"acceptance\" is missing");
  nlohmann::json star;
  for (int rank = 0; rank < 2100; ++rank) star["paths"].push_back({rank});
  std::ofstream(folder("bad.json")) << star;
  expect_error(x + "--policy static --tree '" + folder("bad.json") + "'", 2,
               "a tree of 2100 draft tokens, of which an engine takes at most 2048");
  expect_error(x + "--policy expand-rerank --temperature 0.8 --acceptance rejection", 2,
               "would bias the text");
  expect_error(x + "--policy expand-rerank --sampled-children", 2, "without sampled children");
}

TEST_F(Cli, Info) {
  const Result r = run("info --device cpu '" + (stories() / "target").string() + "'");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("LlamaForCausalLM"), std::string::npos);
  EXPECT_NE(r.out.find("4,096"), std::string::npos);
  EXPECT_NE(
      r.out.find(
          "on the CPU      weights BF16 as stored, activations and sums F32\n--cpu-dtype bf16 "),
      std::string::npos);
  const auto memory = [](const Result& result) {
    const std::string name = "CPU memory      ";
    const auto at = result.out.find(name);
    return at == std::string::npos ? -1.0 : std::atof(result.out.c_str() + at + name.size());
  };
  const std::string target =
      "info --device cpu '" + (stories() / "target").string() + "' --cpu-dtype ";
  // 16.6 M parameters, and the table of 4096 x 512 that its head shares in the file.
  // They are stored, and stay, in BF16. Logits of a tree of 64 nodes and its root come on top.
  const Result small = run(target + "f32 --kv-tokens 16");
  EXPECT_NEAR(memory(small), 2 * (16.6 + 2.1) + 0.2 + 1.1, 0.2);
  EXPECT_NE(small.out.find("at a time       one text, 65 rows judged in a pass\n"),
            std::string::npos);
  const Result many = run(target + "f32 --parallel 64");
  EXPECT_NE(many.out.find("at a time       up to 64 texts, 512 rows judged in a pass\n"),
            std::string::npos);
  // 64 contexts of 512 tokens, 10 KB each, and the logits.
  EXPECT_GT(memory(many), memory(small) + 64 * 512 * 0.010);
  const std::string draft = " --draft '" + (stories() / "draft").string() + "'";
  const Result both = run(target + "f32" + draft);
  EXPECT_NE(both.out.find("and the draft's "), std::string::npos) << both.out << both.err;
  EXPECT_GT(memory(both), memory(run(target + "f32")));
  const Result machine = run("info");
  EXPECT_EQ(machine.code, 0) << machine.err;
  EXPECT_EQ(machine.out.rfind("processor       ", 0), 0u) << machine.out;
  expect_error("info a b", 2, "takes one model");
  expect_error("info '" + folder("nowhere") + "'", 1, "nowhere");
}

TEST_F(Cli, UsageErrors) {
  expect_error("", 2, "no command");
  expect_error("dance", 2, "dance");
  expect_error("generate --prompt x --wings", 2, "wings");
  expect_error("generate --prompt x --tempera 1", 2, "tempera");  // no guessing
  expect_error("generate --prompt", 2, "prompt");
  expect_error("generate --prompt x y", 2, "");
  expect_error("generate --prompt ''", 2, "empty");
  expect_error("generate < /dev/null", 2, "empty");
  expect_error("generate --prompt x --prompt-ids 1", 2, "only one");
  expect_error("generate --prompt-ids 1,x", 2, "--prompt-ids 'x': use a whole number");
  expect_error("generate --prompt-ids 1,2,", 2, "--prompt-ids '1,2,': an item is empty");
  expect_error("generate --prompt-ids ''", 2, "--prompt-ids '': it is empty");
  for (const char* words : {"serve --api-key",
                            "serve --host",
                            "serve --allow-origin",
                            "serve --chat-template",
                            "serve --model-name",
                            "rank --connect",
                            "rank --target",
                            "generate --prompt x --cost-table",
                            "generate --prompt x --target",
                            "generate --prompt x --draft",
                            "chat --template-name",
                            "study --prompts x --out y --trace",
                            "generate --prompt x --regex",
                            "generate --prompt x --grammar",
                            "chat --json-schema",
                            "generate --batch",
                            "generate --prompt x --device",
                            "plan --out",
                            "plan --grow-map",
                            "man --out"}) {
    const std::string said = words;
    expect_error(said + " ''", 2, said.substr(said.rfind("--")) + " '': it is empty; give it");
  }
  expect_error("generate --prompt x --choice ''", 2, "admits the empty text alone");
  expect_error("generate --prompt-ids 1,99999", 2, "99999");
  expect_error("generate --prompt-ids 99999999999999", 2, "99999999999999");
  expect_error("generate --prompt-file '" + folder("none.txt") + "'", 1, "none.txt");
  expect_error("generate --prompt-file /tmp", 1, "folder");
  expect_error("generate --prompt \"$(printf 'a\\377b')\"", 2, "UTF-8");
  std::ofstream(folder("bad.txt")) << "a\377b";
  expect_error("generate --prompt-file '" + folder("bad.txt") + "'", 2,
               "bad.txt': not valid UTF-8");
  expect_error("generate --prompt x --temperature -1", 2, "temperature");
  expect_error("generate --prompt x --temperature nan", 2, "temperature");
  expect_error("generate --prompt x --temperature warm", 2,
               "--temperature 'warm': use a number from 0 (always the most probable token) to 100");
  expect_error("generate --prompt x --max-new-tokens 1e3", 2,
               "--max-new-tokens '1e3': use a whole number");
  expect_error("generate --prompt x --policy sequoia --acceptance-vector 0.9,abc", 2,
               "--acceptance-vector 'abc': use a number from 0 to 1, or name a file");
  expect_error(
      "generate --prompt x --policy sequoia --acceptance-vector '" + folder("no.json") + "'", 1,
      "no such file");
  expect_error("generate --prompt x --top-p 0", 2, "top-p");
  expect_error("generate --prompt x --top-k -3", 2, "top-k");
  expect_error("generate --prompt x --policy wood", 2,
               "--policy 'wood' is unknown; use one of dyspec, dyspec-threshold, chain, static, "
               "specinfer, sequoia, expand-rerank, none");
  expect_error("generate --prompt x --acceptance maybe", 2, "'maybe'");
  expect_error("generate --prompt x --tree-size 0", 2, "tree-size");
  expect_error("generate --prompt x --tree-size 5000", 2, "tree-size");
  expect_error("generate --prompt x --seed -1", 2, "seed");
  expect_error("generate --prompt x --format xml", 2, "'xml'");
  expect_error("generate --prompt x --stop ''", 2, "stop");
  if (!has_cuda_device()) {
    expect_error("generate --prompt x --device cuda", 1, "cuda");
    expect_error("info " + (stories() / "target").string() + " --device cuda", 1, "cuda");
  }
  expect_error("generate --prompt x --gpu-memory-fraction 0", 2, "gpu-memory-fraction");
  for (const char* option : {"gpu-memory", "host-memory"}) {
    for (const char* size : {"24X", "G", "0", "-1G", "1e3", "24GiBs", "99999999T"}) {
      expect_error(cat("generate --prompt x --", option, " ", size), 2,
                   "use an amount of memory, such as 24GiB");
    }
  }
  expect_error("generate --prompt x --host-memory 30", 2,
               "--host-memory '30': less than 1 MiB; it is in bytes; give a unit, such as 30GiB");
  expect_error("generate --prompt x --gpu-memory 30KiB", 2, "less than 1 MiB; give more");
  expect_error(
      "serve --api-key s3", 2,
      "--api-key 's3': no such file; name a file of keys, or a variable as env:NAME, never "
      "the key itself");
  expect_error("rank --connect 127.0.0.1:1 --gpu-memory-fraction 7", 2,
               "gpu-memory-fraction 7: use a number above 0, up to 1");
  for (const char* option : {"gpu-layers", "draft-gpu-layers"}) {
    expect_error(cat("generate --prompt x --", option, " some"), 2, ", auto or all");
    expect_error(cat("generate --prompt x --", option, " -2"), 2, ", auto or all");
  }
  expect_error("generate --prompt x --tensor-parallel 0", 2, " or auto");
  expect_error("generate --prompt x --tensor-parallel two", 2, " or auto");
  expect_error("generate --prompt x --draft-tensor-parallel 0", 2, "draft-tensor-parallel");
  expect_error("generate --prompt x --devices 0,b", 2, "devices");
  expect_error("generate --prompt x --device cpu --devices 0", 2, "devices: it names GPUs");
  expect_error("generate --prompt x --device cpu --tensor-parallel 3", 2, "4 heads");
  expect_error("generate --prompt x --device cpu --tensor-parallel 99", 2, "tensor_parallel 99");
  expect_error("generate --prompt x --device abacus", 2, "abacus");
  expect_error("generate --prompt x --cpu-dtype f8", 2, "f8");
  expect_error("generate --prompt x --kv-dtype int8", 2, "'int8'");
  expect_error("generate --prompt x --threads -2", 2, "threads");
  expect_error("generate --prompt x --max-new-tokens -1", 2, "max-new-tokens");
  expect_error("generate --prompt x --draft somewhere", 2, "--target");
  expect_error("tree --prompt x --draft none", 2, "draft");
  expect_error("tree --prompt x --policy none", 2, "--policy none");
  expect_error("generate --prompt x --logprobs", 2, "--format json");
  expect_error("generate --prompt x --top-logprobs 3", 2, "--top-logprobs needs --logprobs");
  expect_error("generate --prompt x --logit-bias 15", 2, "use TOKEN=BIAS");
  expect_error("generate --prompt x --logit-bias 15=inf", 2, "logit-bias");
  expect_error("generate --prompt x --presence-penalty 3", 2, "use a number from -2 to 2");
  expect_error("generate --prompt x --min-new-tokens 300", 2, "min-new-tokens");
  expect_error("generate --prompt x --stop-tokens a", 2, "stop-tokens");
  expect_error("generate --kv-tokens 16 --prompt \"$(yes word | head -60)\"", 2, "kv_tokens");
  // Longer than the context of 512.
  expect_error("generate --prompt \"$(yes 'many words in a row' | head -400)\"", 2, "context");
}

TEST_F(Cli, Failures) {
  expect_error("generate --prompt x --target '" + folder("no model") + "'" + " --draft none", 1,
               "no model");
  std::filesystem::create_directory(folder("empty"));
  expect_error("generate --prompt x --draft none --target '" + folder("empty") + "'", 1,
               "config.json");
  TinyModel model;
  write_tiny_model(folder("tiny"), model);
  // Without a tokenizer: ids work, text does not.
  expect_error("generate --prompt x --draft none --target '" + folder("tiny") + "'", 1,
               "tokenizer.model");
  const Result ids =
      run("generate --prompt-ids 1,2,3 --max-new-tokens 4 --ignore-eos --draft none --target '" +
          folder("tiny") + "'");
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(std::count(ids.out.begin(), ids.out.end(), ','), 3) << ids.out;
  // A draft of another vocabulary.
  expect_error("generate --prompt x --target '" + (stories() / "target").string() + "' --draft '" +
                   folder("tiny") + "'",
               1, "vocabulary");
  std::filesystem::resize_file(folder("tiny") + "/model.safetensors", 5000);
  expect_error("generate --prompt-ids 1 --draft none --target '" + folder("tiny") + "'", 1,
               "model.safetensors");
  expect_error("generate --prompt x --cost-table /proc/nowhere/costs.json", 1,
               "/proc/nowhere/costs.json");
}

TEST_F(Cli, FullDiskIsOneLine) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const std::string command = "'" + std::string(COPPICE_BINARY) +
                              "' generate --prompt 'One day' --max-new-tokens 8 >/dev/full 2>'" +
                              folder("err") + "'";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(slurp(folder("err")).find("standard output"), std::string::npos);
  // Pages, too, of which nothing is to be kept.
  for (const char* page : {"man", "help", "generate --help"}) {
    const std::string full =
        cat("'", COPPICE_BINARY, "' ", page, " >/dev/full 2>'", folder("err"), "'");
    EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), 1) << page;
    EXPECT_EQ(slurp(folder("err")),
              "coppice: standard output: No space left on device; free some space or redirect "
              "elsewhere\n");
  }
}

TEST_F(Cli, PlainDecodingNamesNoDraftAndNoRule) {
  const std::string plain =
      "generate --prompt 'One day' --max-new-tokens 3 --policy none --seed 4 "
      "--temperature 0.5 --device cpu --stats ";
  EXPECT_NE(run(plain).err.find("  as used          none, temperature 0.5, seed 4, cpu f32\n"),
            std::string::npos);
  EXPECT_NE(
      run(plain + "--acceptance coupled").err.find("none, coupled, temperature 0.5, seed 4, cpu"),
      std::string::npos);
}

TEST_F(Cli, ClosedPipeEndsQuietly) {
  const std::string command =
      "{ '" + std::string(COPPICE_BINARY) +
      "' generate --prompt 'One day' --max-new-tokens 300 --ignore-eos 2>'" + folder("err") +
      "'; echo $? >'" + folder("code") + "'; } | head -c 5 >/dev/null";
  ASSERT_NE(std::system(command.c_str()), -1);
  EXPECT_EQ(slurp(folder("code")), "0\n");
  EXPECT_EQ(slurp(folder("err")), "");
}

TEST_F(Cli, InterruptKeepsWhatWasWritten) {
  // Plain decoding of many tokens takes long enough to be interrupted.
  TinyModel model;
  model.eos_tokens = {};
  model.context_length = 200000;
  write_tiny_model(folder("long"), model);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::freopen(folder("out").c_str(), "w", stdout) == nullptr ||
        std::freopen(folder("err").c_str(), "w", stderr) == nullptr) {
      _exit(99);
    }
    execl(COPPICE_BINARY, COPPICE_BINARY, "generate", "--prompt-ids", "1,2", "--max-new-tokens",
          "100000", "--draft", "none", "--target", folder("long").c_str(), "--kv-tokens", "100100",
          "--stats", static_cast<char*>(nullptr));
    _exit(98);
  }
  // Interrupt once some text is there.
  for (int i = 0; i < 600 && slurp(folder("out")).size() < 20; ++i) usleep(50000);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const std::string out = slurp(folder("out"));
  EXPECT_GE(out.size(), 20u);
  EXPECT_EQ(out.back(), '\n');
  EXPECT_NE(slurp(folder("err")).find("cancelled"), std::string::npos) << slurp(folder("err"));
}

TEST_F(Cli, AuditSaysWhetherSpeculationIsLossless) {
  TinyModel model;
  model.vocab_size = 16;
  model.layers = 1;
  const TinyPair pair(model, 0.5);
  const std::string pair_words = " --target '" + (pair.path() / "target").string() + "' --draft '" +
                                 (pair.path() / "draft").string() +
                                 "' --device cpu --threads 1 --cpu-dtype f32";
  const std::string quick = " --samples 1500 --smallest-bias 0.2 --compared-tokens 16";
  const Result good =
      run("audit --policy dyspec --tree-size 6 --temperature 1 --format json" + pair_words + quick);
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  const auto json = nlohmann::json::parse(good.out);
  EXPECT_EQ(json["lossless"], true);
  EXPECT_EQ(json["self_check"], true);
  EXPECT_EQ(json["laws"].size(), 2u);  // both acceptances
  EXPECT_EQ(json["seed"], 1);

  // So few samples show no planted fault: nothing is shown then, and the exit code says so.
  std::ofstream(folder("prompts.jsonl")) << R"({"tokens": [1, 4, 2]})"
                                         << "\n";
  const Result few =
      run("audit --policy chain --tree-size 2 --acceptance rejection --samples 4 "
          "--compared-tokens 4 --prompts '" +
          folder("prompts.jsonl") + "'" + pair_words);
  EXPECT_EQ(few.code, 3) << few.out << few.err;
  EXPECT_NE(few.out.find("NOT shown lossless: no bias was found, but the samples were too few"),
            std::string::npos)
      << few.out;
  EXPECT_NE(few.out.find("not tested"), std::string::npos) << few.out;
  const std::string unchecked =
      "audit --policy chain --tree-size 2 --acceptance rejection --compared-tokens 4 "
      "--no-self-check" +
      pair_words;
  EXPECT_EQ(run(unchecked + " --samples 1").code, 3);
  EXPECT_EQ(run(unchecked + " --samples 1500").code, 0);
  expect_error(unchecked + " --prompt-tokens 256", 2, "--prompt-tokens 256");
  std::ofstream(folder("prompts.jsonl"), std::ios::app) << R"({"tokens": [1, 16]})"
                                                        << "\n";
  expect_error(unchecked + " --prompts '" + folder("prompts.jsonl") + "'", 2, "line 2: token 16");

  expect_error("audit --temperature 0", 2, "above 0");
  expect_error("audit --smallest-bias 1", 2, "between 0 and 1");
  expect_error("audit --smallest-bias 0.2 --no-self-check", 2, "--smallest-bias does nothing");
  expect_error("audit --time-limit 0", 2, "use seconds above 0");
  expect_error("audit --time-limit 9 --samples 9", 2, "--time-limit does nothing");
  const Result help = run("audit --help");
  for (const char* code : {"0: lossless", "1: a bias", "2: wrong usage", "3: not decided"}) {
    EXPECT_NE(help.out.find(code), std::string::npos) << code;
  }
  expect_error("audit --temperature nan", 2, "nan");
  expect_error("audit --limit 2000000000", 2, "use 1000 or fewer");
  expect_error("audit --policy none", 2, "does not speculate");
  expect_error("audit --samples 0", 2, "use a whole number from 1");
  expect_error("audit --limit 0", 2, "use 1 or more");
  expect_error("audit --prompt-tokens 0", 2, "use 1 or more");
  expect_error("audit --compared-tokens 0", 2, "use 1 or more");
  expect_error("audit --format xml", 2, "text or json");
  expect_error("audit --draft none --target x", 2, "needs a draft");
  expect_error("audit --policy expand-rerank --acceptance rejection", 2, "bias");
  expect_error("audit --prompts '" + folder("missing") + "'", 1, "missing");
}

// Off a terminal, too.
TEST_F(Cli, LongCommandsSayHowFarTheyAre) {
  std::ofstream(folder("prompts.txt")) << "It was late\nThe captain\n";
  const std::string prompts = " --prompts '" + folder("prompts.txt") + "'";
  const std::string common = " --device cpu --threads 1 --limit 2 ";
  const std::string few = common + "--max-new-tokens 8 ";
  const TinyPair pair;
  const std::string tiny = " --device cpu --threads 1 --limit 2 --prompt-tokens 8 --target '" +
                           (pair.path() / "target").string() + "' --draft '" +
                           (pair.path() / "draft").string() + "' ";
  const std::pair<std::string, std::string> commands[] = {
      {"record --threads 1 --limit 2 --max-new-tokens 8 --nodes 8 --out '" + folder("r.rec") + "'" +
           prompts,
       "recording"},
      {"plan --ranks 4 --out '" + folder("plan.json") + "'" + few, "measuring acceptance by rank"},
      {"plan --ranks 4 --out '" + folder("more.json") + "'" + few, "writing prompts"},
      {"advise --no-check --no-cost-cache --acceptance-vector 0.5,0.2 --max-new-tokens 24" + tiny,
       "sampling speeds"},
      // As many samples as take some time.
      {"audit --policy chain --tree-size 2 --acceptance rejection --samples 2000 --compared-tokens "
       "4" +
           tiny,
       "planted fault 1 of 10: residual not renormalised"},
      {"study --policies chain --tree-sizes 2 --progress 0.001 --out '" + folder("study") + "'" +
           few + prompts,
       "studying"},
      {"generate --format json --prompt 'It was late' --temperature 1 --max-new-tokens 60 "
       "--device cpu --threads 1",
       "generating"},
      {"workload few-shot --prompt-tokens 60 --branches 2 --iterations 20", "replaying"}};
  for (const auto& [command, what] : commands) {
    const Result r = run(command, "COPPICE_PROGRESS_EVERY=0.001 ");
    const auto said = r.err.find("coppice: " + what + ": ");
    ASSERT_NE(said, std::string::npos) << command << "\n" << r.err;
    EXPECT_NE(r.err.find(" left\n", said), std::string::npos) << command << "\n" << r.err;
  }
  const std::string& generate = commands[6].first;
  for (const char* seldom : {"", "COPPICE_PROGRESS_EVERY=0 "}) {
    EXPECT_EQ(run(generate, seldom).err.find('%'), std::string::npos) << seldom;
  }
}

TEST_F(Cli, AdviseRecommendsACommandThatRuns) {
  const TinyPair pair({}, 0.1);
  const std::string pair_words = " --target '" + (pair.path() / "target").string() + "' --draft '" +
                                 (pair.path() / "draft").string() +
                                 "' --device cpu --threads 1 --cpu-dtype f32";
  const std::string command =
      "advise --limit 1 --prompt-tokens 8 --max-new-tokens 24 "
      "--temperature 0.9" +
      pair_words;
  const Result r = run(command + " --format json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  for (const char* name : {"pays", "command", "plain", "candidates", "checks", "advised"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json["checks"].size(), 6u);  // plain, two sampled ones, automatic, two with lookup
  const std::string advised = json["command"];
  EXPECT_EQ(advised.rfind("coppice generate --policy ", 0), 0u) << advised;
  EXPECT_NE(advised.find("--temperature 0.9"), std::string::npos) << advised;
  const Result advised_run =
      run(advised.substr(advised.find(' ') + 1) + " --prompt-ids 1,2 --max-new-tokens 4");
  EXPECT_EQ(advised_run.code, 0) << advised << "\n" << advised_run.err;
  ASSERT_EQ(json["draft_formats"].size(), 4u);
  std::size_t chosen = 0;
  for (const auto& one : json["draft_formats"]) {
    EXPECT_GT(one.value("speedup", 0.0), 0.0) << one;
    chosen += one["name"] == json["draft_format"];
  }
  EXPECT_EQ(chosen, 1u);
  const std::string format = json["draft_format"];
  // What is fastest may do without the draft.
  const auto drafts = [](const std::string& words) {
    return words.find("--policy none") == words.npos && words.find("--draft none") == words.npos;
  };
  if (!drafts(advised)) {
    EXPECT_EQ(advised.find(" --draft-weights "), std::string::npos) << advised;
  } else if (format == "self:q4_k") {
    EXPECT_NE(advised.find(" --draft self:q4_k"), std::string::npos) << advised;
  } else {
    EXPECT_EQ(advised.find(" --draft-weights " + format) != std::string::npos,
              format != "as stored")
        << advised;
  }
  // Weights that are named are not asked about.
  const Result text = run(command + " --no-check --draft-weights q4_k");
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out.find("draft weights"), std::string::npos) << text.out;
  const auto at = text.out.find("  coppice generate ");
  ASSERT_NE(at, std::string::npos) << text.out;
  const std::string words = text.out.substr(at);
  EXPECT_EQ(words.find(" --draft-weights q4_k") != std::string::npos, drafts(words)) << words;
  EXPECT_NE(text.out.find("Advised"), std::string::npos);
  EXPECT_EQ(text.out.find("Run alternately"), std::string::npos);

  expect_error(command + " --kv-tokens 16", 2, "raise --kv-tokens");
  expect_error("advise --prompt-tokens 240" + pair_words, 2, "lower --prompt-tokens");
  expect_error("advise --limit 0", 2, "use 1 or more");
  expect_error("advise --limit 2000000000", 2, "use 1000 or fewer");
  expect_error("advise --max-new-tokens 3", 2, "or more");
  expect_error("advise --draft none --target x", 2,
               "needs a draft model; give --draft MODEL, or "
               "--draft self:q4_k");
  expect_error("advise --policy chain", 2, "policy");
  expect_error("advise --acceptance never", 2, "rejection or coupled");
  expect_error("advise --format xml", 2, "text or json");
}

}  // namespace
}  // namespace coppice::testing

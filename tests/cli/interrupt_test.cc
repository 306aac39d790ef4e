// Ctrl-C of many texts, and what the next run makes of what is there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command_runs.h"
#include "cli/screen.h"

namespace coppice::testing {
namespace {

class InterruptedTexts : public Cli {
 protected:
  using Json = nlohmann::json;

  void write(const char* name, const std::string& text) const {
    std::ofstream(folder(name), std::ios::binary) << text;
  }
  // A model that writes for as long as it is let.
  std::string endless_model(std::int32_t layers = TinyModel().layers) const {
    TinyModel model;
    model.layers = layers;
    model.eos_tokens = {};
    model.context_length = 200000;
    write_tiny_model(folder("long"), model);
    return "--draft none --device cpu --threads 1 --kv-tokens 250000 --target '" + folder("long") +
           "' ";
  }
  static std::vector<std::string> lines_in(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
    return lines;
  }
};

TEST_F(InterruptedTexts, SamplesThatHaveNotBegunAreLeftOut) {
  const std::string command = "COPPICE_PROGRESS_AFTER=0 '" + std::string(COPPICE_BINARY) +
                              "' generate " + endless_model() +
                              "--prompt-ids 1,2 --max-new-tokens 100000 --n 3000 --parallel 2 "
                              "--temperature 1 --seed 3 ";
  int status = -1;
  const std::string seen =
      talk_on_terminal("exec env " + command, {{"generating: ", "\x03"}}, status);
  ASSERT_TRUE(WIFEXITED(status)) << seen;
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_NE(seen.find("--- sample 1 of 3000, stream 0, stopped ---"), std::string::npos) << seen;
  EXPECT_NE(seen.find("--- sample 2 of 3000, stream 1, stopped ---"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("--- sample 3 "), std::string::npos) << seen;
  EXPECT_NE(seen.find("coppice: stopped after 0 of 3000 samples; 2 more had begun"),
            std::string::npos)
      << seen;
  EXPECT_NE(seen.find("  texts            2"), std::string::npos) << seen;
  const std::string json =
      talk_on_terminal("exec env " + command + "--format json", {{"generating: ", "\x03"}}, status);
  EXPECT_EQ(WEXITSTATUS(status), 130);
  std::size_t cancelled = 0;
  for (auto at = json.find("\"cancelled\""); at != json.npos;
       at = json.find("\"cancelled\"", at + 1))
    ++cancelled;
  EXPECT_EQ(cancelled, 2u) << json;
}

// Interrupts a prompt that takes long, which nothing is heard of.
TEST_F(InterruptedTexts, WithinAPrompt) {
  std::string ids = "1";
  for (int i = 0; i < 59999; ++i) ids += ",2";
  write("ids", ids);
  const std::string command = "'" + std::string(COPPICE_BINARY) + "' generate " + endless_model() +
                              "--prompt-ids \"$(cat '" + folder("ids") +
                              "')\" --max-new-tokens 100000 --format json >'" + folder("text") +
                              "' 2>'" + folder("child") + "'";
  int status = 0;
  // Before it is watched for, Ctrl-C ends the program.
  for (unsigned wait = 50000; wait < 10000000; wait *= 2) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), static_cast<char*>(nullptr));
      _exit(98);
    }
    usleep(wait);
    kill(child, SIGINT);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) break;
  }
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130) << slurp(folder("child"));
  const Json text = Json::parse(slurp(folder("text")));
  EXPECT_EQ(text["finish_reason"], "cancelled");
  EXPECT_EQ(text["prompt_tokens"], 60000);
  EXPECT_EQ(text["tokens"].size(), 0u);
}

// In the middle of a pass, or of trees of many, whose layers are copied or read before use: what
// was written stands, and is what a model writes that keeps its layers.
TEST_F(InterruptedTexts, WithLayersThatAreStreamed) {
  const std::string words = "generate " + endless_model(5) +
                            "--prompt-ids 1,2 --temperature 0.6 --acceptance coupled --seed 3 "
                            "--lookup text --tree-size 6 --format json ";
  for (const std::string placement : {"--gpu-layers 1 ", "--gpu-layers 1 --host-memory 1GiB "}) {
    int status = -1;
    const std::string seen = talk_on_terminal(
        "exec env COPPICE_PROGRESS_AFTER=0 '" + std::string(COPPICE_BINARY) + "' " + words +
            placement + "--max-new-tokens 100000 >'" + folder("streamed") + "'",
        {{"generating: ", "\x03"}}, status);
    ASSERT_TRUE(WIFEXITED(status)) << seen;
    EXPECT_EQ(WEXITSTATUS(status), 130) << seen;
    const Json json = Json::parse(slurp(folder("streamed")));
    EXPECT_EQ(json["finish_reason"], "cancelled");
    EXPECT_EQ(json["target_layers"]["streamed_from"],
              placement.find("host") == placement.npos ? "memory" : "file");
    ASSERT_GT(json["tokens"].size(), 0u);
    const Result whole = run(words + cat("--max-new-tokens ", json["tokens"].size()));
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_EQ(Json::parse(whole.out)["tokens"], json["tokens"]);
  }
}

// Costs alone are measured for more than 4 seconds.
TEST_F(InterruptedTexts, AdviceEndsAtOnce) {
  const std::string command = "exec env COPPICE_PROGRESS_AFTER=0 '" + std::string(COPPICE_BINARY) +
                              "' advise --device cpu --threads 1 --limit 1 --no-cost-cache "
                              "--acceptance-vector 0.5,0.2";
  int status = -1;
  double seconds = 0.0;
  const std::string seen =
      talk_on_terminal(command, {{"measuring costs, for some seconds", "\x03"}}, status, &seconds);
  ASSERT_TRUE(WIFEXITED(status)) << seen;
  EXPECT_EQ(WEXITSTATUS(status), 130) << seen;
  EXPECT_NE(seen.find("interrupted before there was anything to advise"), std::string::npos)
      << seen;
  EXPECT_LT(seconds, 2.0);
}

TEST_F(InterruptedTexts, WhatEndedBeforeItsTurnIsKept) {
  write("lines.jsonl", R"({"tokens": [1, 2], "max_new_tokens": 100000})"
                       "\n"
                       R"({"tokens": [1, 2], "max_new_tokens": 2})"
                       "\n"
                       R"({"tokens": [3], "max_new_tokens": 3})"
                       "\n");
  const std::string command = "'" + std::string(COPPICE_BINARY) + "' generate " + endless_model() +
                              "--batch '" + folder("lines.jsonl") + "' --output '" +
                              folder("texts") + "' 2>'" + folder("child") + "'";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), static_cast<char*>(nullptr));
    _exit(98);
  }
  for (int i = 0; i < 600 && lines_in(slurp(folder("texts.waiting"))).size() < 2; ++i) {
    usleep(50000);
  }
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(slurp(folder("texts")), "");
  EXPECT_NE(slurp(folder("child"))
                .find("stopped after 2 of 3 lines; start it again with the same options to go on"),
            std::string::npos)
      << slurp(folder("child"));
  const std::vector<std::string> waiting = lines_in(slurp(folder("texts.waiting")));
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(Json::parse(waiting[0])["index"], 1);
  EXPECT_EQ(Json::parse(waiting[1])["tokens"].size(), 3u);
}

// As a kill may leave it: nothing in order, two lines and a torn one that wait.
TEST_F(InterruptedTexts, TheNextRunTakesWhatWaits) {
  std::string prompts;
  for (int i = 0; i < 4; ++i) prompts += "{\"prompt\": \"It was late\"}\n";
  write("lines.jsonl", prompts);
  const std::string command = "generate --batch '" + folder("lines.jsonl") +
                              "' --device cpu --threads 1 --tree-size 4 --acceptance coupled "
                              "--temperature 1 --max-new-tokens 6 --output '" +
                              folder("texts") + "'";
  ASSERT_EQ(run(command).code, 0);  // with a random seed
  EXPECT_FALSE(std::filesystem::exists(folder("texts.waiting"))) << "all are in order";
  const std::string whole = slurp(folder("texts"));
  const std::vector<std::string> lines = lines_in(whole);
  ASSERT_EQ(lines.size(), 4u);
  const auto tokens = [](const std::string& line) { return Json::parse(line).at("tokens"); };

  write("texts", "");
  write("texts.waiting", lines[3] + lines[1] + lines[2].substr(0, 40));
  const Result second = run(command + " --stats");
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err.rfind("coppice: 2 of 4 lines are there already\n", 0), 0u) << second.err;
  EXPECT_NE(second.err.find("  texts            2\n"), std::string::npos) << second.err;
  const std::vector<std::string> again = lines_in(slurp(folder("texts")));
  ASSERT_EQ(again.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tokens(again[i]), tokens(lines[i])) << i;
  EXPECT_EQ(again[1], lines[1]) << "not computed again";
  EXPECT_EQ(again[3], lines[3]);
  EXPECT_FALSE(std::filesystem::exists(folder("texts.waiting")));

  // Nothing is missing but what waits.
  write("texts", lines[0] + lines[1]);
  write("texts.waiting", lines[3] + lines[2]);
  EXPECT_EQ(run(command).err, "coppice: 4 of 4 lines are there already\n");
  EXPECT_EQ(slurp(folder("texts")), whole);

  // The output itself may be gone: what waits is still of this batch, and only of this.
  const std::string waits = lines[3] + lines[1];
  write("texts.waiting", waits);
  for (const char* there : {"", lines[0].c_str()}) {
    write("texts", there);
    expect_error(command + " --top-k 5 --seed 1", 2, "was made from another prompt");
    EXPECT_EQ(slurp(folder("texts")), there);
    EXPECT_EQ(slurp(folder("texts.waiting")), waits);
  }
  std::filesystem::remove(folder("texts"));
  expect_error(command + " --top-k 5", 2,
               "texts.waiting': text 1 was made from another prompt, or with other options");
  EXPECT_EQ(slurp(folder("texts.waiting")), waits);
  std::filesystem::remove(folder("texts"));
  const std::string told = run(command).err;
  EXPECT_EQ(told.rfind("coppice: 2 of 4 lines are there already\n", 0), 0u) << told;
  const std::vector<std::string> third = lines_in(slurp(folder("texts")));
  ASSERT_EQ(third.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tokens(third[i]), tokens(lines[i])) << i;
  EXPECT_EQ(third[3], lines[3]) << "not computed again";
  EXPECT_FALSE(std::filesystem::exists(folder("texts.waiting")));

  write("texts", lines[0]);
  write("texts.waiting", "a letter\nto keep");
  const std::string remedy = "move it away or remove it";
  expect_error(command, 1, "texts.waiting' line 1: no line of a batch; " + remedy);
  EXPECT_EQ(slurp(folder("texts.waiting")), "a letter\nto keep");
  write("texts.waiting", "a letter without an end");
  expect_error(command, 1, "texts.waiting' line 1: no line of a batch; " + remedy);
  for (const char* own : {R"({"index":"of words"})", "{\"index\":3}\n"}) {
    for (const bool gone : {false, true}) {
      write("texts.waiting", own);
      if (gone) std::filesystem::remove(folder("texts"));
      expect_error(command, 1, "texts.waiting' line 1: changed after it was written");
      EXPECT_EQ(slurp(folder("texts.waiting")), own);
    }
  }
  // Planted: what it leads to is somebody's, if only a free name.
  write("texts", lines[0]);
  for (const char* led_to : {"own", "free"}) {
    std::filesystem::remove(folder("texts.waiting"));
    std::filesystem::create_symlink(folder(led_to), folder("texts.waiting"));
    if (led_to[0] == 'o') write("own", lines[2]);
    expect_error(command, 1, "texts.waiting': not a regular file; " + remedy);
  }
  EXPECT_EQ(slurp(folder("own")), lines[2]);
  EXPECT_FALSE(std::filesystem::exists(folder("free")));
  std::filesystem::remove(folder("texts.waiting"));
  std::filesystem::create_directory(folder("texts.waiting"));
  expect_error(command, 1, "texts.waiting': not a regular file; " + remedy);
}

TEST_F(InterruptedTexts, SamplesAtTemperatureZeroAreTold) {
  const std::string fixed = "generate --device cpu --tree-size 4 --max-new-tokens 2 ";
  const std::string told = "at temperature 0";
  EXPECT_NE(run(fixed + "--prompt x --n 2").err.find(told + " all 2 samples are the same text"),
            std::string::npos);
  EXPECT_EQ(run(fixed + "--prompt x --n 2 --temperature 1").err.find(told), std::string::npos);
  EXPECT_EQ(run(fixed + "--prompt x").err.find(told), std::string::npos);
  write("lines.jsonl", "{\"prompt\": \"x\", \"n\": 2}\n{\"prompt\": \"x\"}\n");
  EXPECT_NE(run(fixed + "--batch '" + folder("lines.jsonl") + "'")
                .err.find("1 line asks for several samples at temperature 0"),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::testing

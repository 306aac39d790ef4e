// How options may be spelt, and what is said of those that are not.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/command_runs.h"

namespace coppice::testing {
namespace {

class OptionWords : public Cli {};

TEST_F(OptionWords, LlamaCppsShortOnesMeanTheSame) {
  const std::string target = "'" + (stories() / "target").string() + "'",
                    draft = "'" + (stories() / "draft").string() + "'";
  std::ofstream(folder("prompt")) << "It was late\n";
  const auto tokens = [&](const std::string& tail) {
    const Result r =
        run("generate --device cpu --tree-size 4 --acceptance coupled --format json " + tail);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code == 0 ? nlohmann::json::parse(r.out)["tokens"] : nlohmann::json();
  };
  const auto expected = tokens("--target " + target + " --draft " + draft +
                               " --prompt 'It was late' --max-new-tokens 7 --threads 1 --seed 5 "
                               "--temperature 0.9");
  EXPECT_EQ(expected.size(), 7u);
  EXPECT_EQ(
      tokens("-m " + target + " -md " + draft + " -p 'It was late' -n 7 -t 1 -s 5 --temp 0.9"),
      expected);
  EXPECT_EQ(tokens("-m=" + target + " -md=" + draft + " -f '" + folder("prompt") +
                   "' -n=7 -t=1 -s=5 --temp=0.9"),
            expected);
  EXPECT_NE(run("generate --help").out.find("\nShort: -m for --target, -md for --draft, "),
            std::string::npos);
  EXPECT_EQ(run("completion --help").out.find("Short:"), std::string::npos);
}

// A value may look like any of that.
TEST_F(OptionWords, ValuesAreLeftAlone) {
  const std::string fixed = "generate --device cpu --max-new-tokens 2 --format json ";
  for (const char* prompt : {"-m", "-zebra", "-5"}) {
    const Result r = run(fixed + "--prompt '" + prompt + "'");
    EXPECT_EQ(r.code, 0) << r.err;
  }
  expect_error(fixed + "--prompt x --top-k -3", 2, "top-k -3");
  expect_error(fixed + "--prompt x --temp -1", 2, "temperature -1");
  expect_error(fixed + "-p", 2, "--prompt");
}

TEST_F(OptionWords, OneErrorLineSaysWhatWasProbablyMeant) {
  expect_error("generate -prompt x", 2, "option '-prompt' is unknown; did you mean --prompt?");
  expect_error("generate --prompt x -sed 1", 2, "option '-sed' is unknown; did you mean --seed?");
  expect_error("generate -p x -b 4096", 2, "option '-b' is unknown; see --help");
  expect_error("generate -p x -n7", 2, "option '-n7' is unknown");
  expect_error("info -p x", 2, "option '-p' is unknown");
  expect_error("info -c 3", 2, "option '-c' is unknown; coppice calls it --kv-tokens;");
  expect_error("generate -p x -n3", 2, "option '-n3' is unknown; see --help");
  expect_error("generate -p x --tepm 1", 2, "did you mean --temp?");
  expect_error("generate -p x --tempratur 1", 2, "did you mean --temperature?");
  expect_error("generate -p x --policy dyspac", 2,
               "--policy 'dyspac' is unknown; did you mean dyspec? Use one of dyspec, ");
  expect_error("generate -p x --device gpu", 2, "--device 'gpu' is unknown; did you mean cuda?");
  expect_error("generate -p x --acceptance coupld", 2, "did you mean coupled?");
  expect_error("generate -p x --kv-dtype fp16", 2, "did you mean f16?");
  expect_error("generate -p x --kv-dtype bfloat16", 2, "did you mean bf16?");
  expect_error("generate -p x --format jsno", 2, "--format 'jsno' is unknown; did you mean json?");
  expect_error("tree -p x --format dto", 2, "did you mean dot?");
  expect_error("study --out x --prompts y --format makrdown", 2, "did you mean markdown?");
  expect_error("study --out x --prompts y --policies chian", 2, "did you mean chain?");
  expect_error("genrate", 2, "did you mean 'generate'?");
}

// What llama.cpp and vLLM call them.
TEST_F(OptionWords, NamesOfOtherProgramsAreTranslated) {
  const std::pair<const char*, const char*> names[] = {
      {"--model", "--target"},
      {"--model-draft", "--draft"},
      {"--n-predict", "--max-new-tokens"},
      {"--max-tokens", "--max-new-tokens"},
      {"--ctx-size", "--kv-tokens"},
      {"--repeat-penalty", "--repetition-penalty"},
      {"--file", "--prompt-file"},
      {"--draft-max", "--tree-size"},
      {"-np", "--parallel"},
      {"--gpu-memory-utilization", "--gpu-memory-fraction"}};
  for (const auto& [typed, ours] : names) {
    for (const char* value : {" 3", "=3"}) {
      expect_error(
          std::string("generate ") + typed + value, 2,
          std::string("option '") + typed + "' is unknown; coppice calls it " + ours + ";");
    }
  }
  expect_error("generate -p x -ngl 99", 2, "coppice calls it --device, which takes all layers;");
  expect_error("generate -p x --n-gpu-layers 99", 2, "coppice calls it --device");
  // Not what the command does not have.
  expect_error("info --n-predict 3", 2, "option '--n-predict' is unknown; see --help");
}

TEST_F(OptionWords, NumbersTooLargeAreToldTheLimit) {
  expect_error("generate -p x --kv-tokens 99999999999", 2,
               "--kv-tokens '99999999999': use a whole number of at most 2147483647;");
  expect_error("generate -p x -n -99999999999", 2, "use a whole number of at least -2147483648;");
  expect_error("generate -p x --top-k 3e9", 2, "--top-k '3e9': use a whole number;");
  expect_error("generate -p x --batch y --progress 1e999", 2, "use a number of at most 1.7e308;");
  expect_error("generate -p x --tree-size 0", 2,
               "--tree-size 0: use 1 to 1024, or auto; plain "
               "decoding is --draft none");
}

TEST_F(OptionWords, HelpOfACommand) {
  for (const char* command : {"generate", "study compare"}) {
    const Result r = run(std::string("help ") + command);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.out, run(std::string(command) + " --help").out);
    EXPECT_FALSE(r.out.empty());
  }
  EXPECT_EQ(run("help").out, run("--help").out);
  expect_error("help genrate", 2, "did you mean 'generate'?");
}

TEST_F(OptionWords, PromptFilesMayBeStandardInput) {
  const std::string fixed = "generate --device cpu --max-new-tokens 3 --seed 1 --tree-size 4 ";
  std::ofstream(folder("prompt")) << "It was late\n";
  const Result file = run(fixed + "-f '" + folder("prompt") + "'"),
               input = run(fixed + "-f - <'" + folder("prompt") + "'");
  EXPECT_EQ(input.code, 0) << input.err;
  EXPECT_EQ(input.out, file.out);
  expect_error(fixed + "-f -", 2, "standard input: it is empty");
}

TEST_F(OptionWords, AFileIsNoModelFolder) {
  const auto refused = [&](const char* name, const char* says) {
    std::ofstream(folder(name)) << "GGUF";
    expect_error("info '" + folder(name) + "'", 1, says);
    expect_error("generate -p x --draft none -m '" + folder(name) + "'", 1, says);
    expect_error("chat --draft none -m '" + folder(name) + "'", 1, says);
  };
  refused("model.gguf", "model.gguf: a file, not a folder; coppice reads no GGUF: name the");
  refused("model.safetensors", "a file, not a folder; name the folder that it lies in");
  expect_error("generate --chat -p x --draft none -m '" + folder("none") + "'", 1,
               "no such folder");
  refused("model.bin", "a file, not a folder; name a Hugging Face model folder");
}

}  // namespace
}  // namespace coppice::testing

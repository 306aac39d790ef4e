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
  EXPECT_EQ(tokens("--model " + target + " --model-draft " + draft + " --file '" +
                   folder("prompt") + "' --n-predict 7 -t 1 -s 5 --temp 0.9 --ctx-size 512"),
            expected);
  EXPECT_EQ(tokens("-m " + target + " -md " + draft +
                   " -c 512 -p 'It was late' --predict=7 -t 1 "
                   "-s 5 --temp 0.9"),
            expected);
  const std::string help = run("generate --help").out;
  EXPECT_NE(help.find("-m, --model for --target"), std::string::npos) << help;
  EXPECT_NE(help.find("-c, --ctx-size for --kv-tokens"), std::string::npos) << help;
  EXPECT_EQ(run("completion --help").out.find("Also:"), std::string::npos);
}

// As llama.cpp: -p, -f and --file turn escapes into what they mean unless --no-escape; our own
// names take backslashes as they are unless --escape.
TEST_F(OptionWords, EscapesAreThoseOfLlamaCpp) {
  const auto tokens = [&](const std::string& tail) {
    const Result r =
        run("generate --device cpu --policy none --max-new-tokens 1 --temperature 0 "
            "--format json --threads 1 " +
            tail);
    EXPECT_EQ(r.code, 0) << tail << r.err;
    return r.code == 0 ? nlohmann::json::parse(r.out)["prompt_tokens"].get<int>() : -1;
  };
  const auto file = [&](const char* name, const std::string& text) {
    std::ofstream(folder(name), std::ios::binary) << text;
    return "'" + folder(name) + "'";
  };
  const std::string escaped = R"(a\n\tb\r\'\"\\n\x41\x4a\xc3\xa9\q\x4\)";
  const std::string meant = "a\n\tb\r'\"\\nAJ\u00e9\\q\\x4\\";
  const std::string given = file("escaped", escaped), spelt = file("meant", meant);
  const int literal = tokens("--prompt-file " + given);
  const int wanted = tokens("--prompt-file " + spelt);
  ASSERT_NE(literal, wanted);
  const std::string text = "\"$(cat " + given + ")\"";
  for (const std::string tail :
       {"-p ", "-p=", "--escape --prompt ", "-e -p ", "--escape --prompt="}) {
    EXPECT_EQ(tokens(tail + text), wanted) << tail;
  }
  EXPECT_EQ(tokens("-p " + text + " -e"), wanted);
  for (const std::string tail : {"--prompt ", "--no-escape -p ", "--no-escape --prompt "}) {
    EXPECT_EQ(tokens(tail + text), literal) << tail;
  }
  for (const char* tail : {"-f ", "--file ", "--file=", "--escape --prompt-file "}) {
    EXPECT_EQ(tokens(tail + given), wanted) << tail;
  }
  EXPECT_EQ(tokens("--no-escape -f " + given), literal);
  EXPECT_EQ(tokens("--escape < " + given), wanted);
  EXPECT_EQ(tokens("< " + given), literal);
  // A word that only looks like an option is a value.
  EXPECT_EQ(tokens("--prompt=-p"), tokens("--prompt '-p'"));

  const std::string command = "generate --device cpu ";
  expect_error(command + "-e --no-escape -p x", 2, "only one of --escape and --no-escape");
  expect_error(command + "-p '\\xff'", 2, "not valid UTF-8");
  expect_error(command + "-e --prompt-ids 1,2", 2, "--escape is for a text");
  expect_error(command + "--no-escape --messages x", 2, "--no-escape is for a prompt");
  expect_error(command + "-e --batch x", 2, "--escape is for a prompt");
  expect_error(command + "-p x --messages x", 2, "only one of --messages, --prompt");
  expect_error("chat -e", 2, "which this command does not have");
  const std::string help = run("generate --help").out;
  for (const char* says : {"--escape", "--no-escape", "llama.cpp's names", "-e for --escape"}) {
    EXPECT_NE(help.find(says), std::string::npos) << says;
  }
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
  expect_error("generate -prompt x", 2,
               "option '-prompt' is unknown; did you mean --prompt? See --help\n");
  expect_error("generate --prompt x -sed 1", 2, "option '-sed' is unknown; did you mean --seed?");
  expect_error("generate -p x -q 4096", 2, "option '-q' is unknown; see --help");
  expect_error("generate -p x -n7", 2, "option '-n7' is unknown");
  expect_error("info -p x", 2, "option '-p' is unknown: it means --prompt, which");
  expect_error("advise -c 3 -r x", 2, "option '-r' is unknown; see --help");
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
  expect_error("study --out x --prompts y --format latxe", 2, "did you mean latex?");
  expect_error("study --out x --prompts y --policies chian", 2, "did you mean chain?");
  expect_error("genrate", 2, "did you mean 'generate'?");
  expect_error("mna", 2, "did you mean 'man'?");
  expect_error("mud", 2, "'mud' is no command; use one of generate, ");
  expect_error("run", 2, "'run' is no command; did you mean 'generate' or 'chat'?");
  expect_error("-m model -p x", 2,
               "'-m' is no command; options follow one, as in coppice generate -m");
}

// What llama.cpp and vLLM call them.
TEST_F(OptionWords, NamesOfOtherProgramsAreTranslated) {
  const std::pair<const char*, const char*> names[] = {
      {"--speculative-model", "--draft;"},
      {"--max-tokens", "--max-new-tokens;"},
      {"--repeat-penalty", "--repetition-penalty, over the whole text"},
      {"--draft-max", "--tree-size, the nodes of a tree of guesses"},
      {"--draft-n", "--tree-size, "},
      {"--draft-min", "--tree-size, which fixes the number"},
      {"--draft-p-min", "--threshold, of --policy dyspec-threshold"},
      {"-cd", "--kv-tokens, for both models"},
      {"-ctk", "--kv-dtype, for keys and values"},
      {"--cache-type-v", "--kv-dtype, for keys and values"},
      {"-cnv", "--chat, or use coppice chat"},
      {"--assistant-model", "--draft;"},
      {"-sysf", "--system, of the text itself"},
      {"--reasoning-budget", "--template-value, with what the template knows"},
      {"--gpu-memory-utilization", "--gpu-memory-fraction;"}};
  for (const auto& [typed, ours] : names) {
    for (const char* value : {" 3", "=3"}) {
      expect_error(std::string("generate ") + typed + value, 2,
                   std::string("option '") + typed + "' is unknown; coppice calls it " + ours);
    }
  }
  for (const char* needless :
       {"-fa", "--flash-attn=on", "-b 512", "-ub 512", "--jinja", "--no-mmap", "-no-cnv", "-cb",
        "--trust-remote-code", "--no-context-shift"}) {
    expect_error(std::string("generate -p x ") + needless, 2, "' is unknown: none is needed: ");
  }
  const std::pair<const char*, const char*> absent[] = {
      {"--lora x", "coppice has no adapters"},
      {"--mmproj x", "text alone"},
      {"--port 1", "it is an option of coppice serve"},
      {"--quantization awq", "run as they are stored; --target-weights"},
      {"--rope-scaling yarn", "the model's config.json or GGUF file says it"},
      {"--chat-template-file x", "in its folder or GGUF file"},
      {"--typical 1", "sampling has --repetition-penalty"}};
  for (const auto& [typed, says] : absent) {
    expect_error(std::string("generate -p x ") + typed, 2, says);
  }
  expect_error("chat -hf someone/something", 2, "coppice downloads nothing; name a Hugging Face");
  expect_error("generate -p x --draft 16", 2,
               "--draft 16: it names the draft's folder or GGUF file; --tree-size 16 sets");
  // Not what the command does not have.
  for (const char* typed : {"--n-predict", "-n"}) {
    expect_error(std::string("info ") + typed + " 3", 2,
                 std::string("option '") + typed +
                     "' is unknown: it means --max-new-tokens, which this command does not have");
  }
}

// Plain decoding has no use for options of speculation, but for those that choose its random
// numbers.
TEST_F(OptionWords, OptionsWithoutEffectAreNamed) {
  const std::string fixed = "generate --device cpu -n 2 --prompt-ids 1,2 ",
                    tiny = "--target '" + folder("tiny") + "' ";
  write_tiny_model(folder("tiny"), TinyModel());
  const auto told = [&](const std::string& options) {
    const Result r = run(fixed + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.err;
  };
  const std::string speculates = "--tree-size 8 --draft-temperature 0.5 --no-cost-cache ";
  const std::string effect = "--tree-size, --draft-temperature and --no-cost-cache have no effect";
  EXPECT_EQ(told(tiny + "--draft none " + speculates),
            "coppice: " + effect + " with --draft none\n");
  EXPECT_EQ(told("--policy none " + speculates), "coppice: " + effect + " with --policy none\n");
  EXPECT_EQ(told(tiny + speculates),
            "coppice: no draft model was given: plain decoding (--draft MODEL, a smaller "
            "one's folder or GGUF file, speeds it up); " +
                effect + "\n");
  EXPECT_EQ(told(tiny),
            "coppice: no draft model was given: plain decoding (--draft MODEL, a smaller "
            "one's folder or GGUF file, speeds it up)\n");
  EXPECT_EQ(told(tiny + "--draft none --lookup text"), "");
  EXPECT_EQ(told(tiny + "--draft none --policy chain"),
            "coppice: --policy has no effect with --draft none\n");
  EXPECT_EQ(told(tiny + "--draft none --acceptance coupled --temperature 1 --seed 3"), "");
  EXPECT_EQ(told("--policy none"), "");
  EXPECT_EQ(told("--no-cost-cache --tree-size 8"), "");
  std::ofstream(folder("prompts")) << R"({"tokens": [1, 2]})" << '\n';
  const Result batch = run("generate --device cpu -n 2 --batch '" + folder("prompts") + "' " +
                           tiny + "--draft none --tree-size 8");
  EXPECT_EQ(batch.err, "coppice: --tree-size has no effect with --draft none\n");
  std::ofstream(folder("prompts")) << R"({"tokens": [1, 2], "policy": "none"})" << '\n';
  const std::string lines = "generate --device cpu -n 2 --batch '" + folder("prompts") + "' ";
  EXPECT_EQ(run(lines).err, "");
  EXPECT_EQ(run(lines + "--tree-size 8").err,
            "coppice: --tree-size has no effect, as no text is to be speculated on\n");
}

TEST_F(OptionWords, PlacementThatHasNoEffectIsNamed) {
  const std::string info =
      "info --device cpu '" + (stories() / "target").string() + "' --kv-tokens 64 ";
  const auto told = [&](const std::string& command) {
    const Result r = run(command);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.err;
  };
  const std::string texts = "generate --device cpu --max-new-tokens 1 --prompt x --tree-size 4 ";
  for (const std::string& command : {info, texts}) {
    EXPECT_EQ(told(command), "");
    EXPECT_EQ(told(command + "--gpu-memory 1GiB"),
              "coppice: --gpu-memory has no effect on the CPU\n");
    EXPECT_EQ(told(command + "--gpu-memory-fraction 0.5"),
              "coppice: --gpu-memory-fraction has no effect on the CPU\n");
    EXPECT_EQ(told(command + "--gpu-layers 99"),
              "coppice: --gpu-layers 99: the model has 5 layers, and all of them stay\n");
    EXPECT_EQ(told(command + "--gpu-layers all"), "");
  }
  EXPECT_EQ(told(texts + "--rank-timeout 9"),
            "coppice: --rank-timeout has no effect: no model is split\n");
  EXPECT_EQ(told(texts + "--rank-timeout 9 --tensor-parallel 2"), "");
  EXPECT_EQ(told(info + "--draft none --draft-tensor-parallel 2 --draft-gpu-layers 1"),
            "coppice: --draft-gpu-layers has no effect: there is no draft\n"
            "coppice: --draft-tensor-parallel has no effect: there is no draft\n");
  EXPECT_EQ(told(texts + "--draft-gpu-layers all --draft-tensor-parallel 2"), "");
}

TEST_F(OptionWords, NumbersTooLargeAreToldTheLimit) {
  expect_error("generate -p x --kv-tokens 99999999999", 2,
               "--kv-tokens '99999999999': use a whole number of at most 2147483647;");
  expect_error("generate -p x -n -99999999999", 2, "use a whole number of at least -2147483648;");
  expect_error("generate -p x --top-k 3e9", 2, "--top-k '3e9': use a whole number;");
  expect_error("generate -p x --batch y --progress 1e999", 2, "use a number of at most 1.7e308;");
  expect_error("generate -p x --tree-size 0", 2,
               "--tree-size 0: use 1 to 2048, or auto; plain "
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
  expect_error(fixed + "-f -", 2, "standard input is empty; give some text, or --prompt TEXT");
}

TEST_F(OptionWords, AFileIsNoModelFolder) {
  const auto refused = [&](const char* name, const char* says) {
    std::ofstream(folder(name)) << "text";
    expect_error("info '" + folder(name) + "'", 1, says);
    expect_error("generate -p x --draft none -m '" + folder(name) + "'", 1, says);
    expect_error("chat --draft none -m '" + folder(name) + "'", 1, says);
  };
  refused("model.gguf", "model.gguf: no GGUF file: it does not begin with");
  refused("model.safetensors", "a file, not a folder; name the folder that it lies in");
  expect_error("generate --chat -p x --draft none -m '" + folder("none") + "'", 1,
               "no such folder");
  refused("model.bin", "a file, not a folder; name a Hugging Face model folder");
}

TEST_F(OptionWords, AFolderOfGgufFilesNamesThem) {
  const std::string dir = folder("downloads");
  std::filesystem::create_directory(dir);
  const auto refused = [&](const std::string& says) {
    for (const std::string command : {"info '", "generate -p x --draft none -m '",
                                      "chat --draft none -m '", "quantise x.gguf '"}) {
      if (command.front() != 'q') expect_error(command + dir + "'", 1, says);
    }
    expect_error("quantise '" + dir + "' '" + folder("x.gguf") + "'", 1, says);
  };
  refused("downloads/config.json: no such file; name a Hugging Face model folder, or a GGUF file");
  std::ofstream(dir + "/mmproj-b.gguf") << "sees";
  std::ofstream(dir + "/b.gguf") << "x";
  refused("downloads: no config.json, but a GGUF file; name it in place of the folder: '" + dir +
          "/b.gguf'");
  std::ofstream(dir + "/a-00001-of-00002.gguf") << "x";
  refused(
      "downloads: no config.json, but 2 GGUF files; name one of them in place of the folder, "
      "such as '" +
      dir + "/a-00001-of-00002.gguf'");
}

// As other programs take it.
TEST_F(OptionWords, AModelWithoutItsOptionIsGivenOne) {
  for (const char* command : {"chat", "generate -p x", "tree -p x"}) {
    expect_error(
        std::string(command) + " 'a model.gguf'", 2,
        "'a model.gguf' belongs to no option; a model is named by --target 'a model.gguf'");
    expect_error(std::string(command) + " '" + folder("") + "'", 2,
                 "a model is named by --target " + folder(""));
  }
  expect_error("generate once upon", 2, "give a text to continue in quotes, as --prompt");
}

TEST_F(OptionWords, AnEmptyPromptIsNamed) {
  for (const char* more : {"", " --chat"}) {
    expect_error(std::string("generate --prompt ''") + more, 2,
                 "coppice: --prompt is empty; give some text");
  }
}

TEST_F(OptionWords, TypesOfWeightsMayBeInCapitals) {
  const std::string model = " --target '" + (stories() / "target").string() + "' ",
                    generate =
                        "generate --device cpu --tree-size 2 -n 2 -p x --format json" + model;
  const auto rounded = [&](const std::string& options, const char* key) {
    const Result r = run(generate + options);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code == 0 ? nlohmann::json::parse(r.out).value(key, "") : "";
  };
  EXPECT_EQ(rounded("--target-weights Q8_0 --draft none", "target_weights"), "Q8_0");
  EXPECT_EQ(rounded("--draft self:Q4_K", "draft_weights"), "Q4_K, Q5_0, Q6_K");
  expect_error(generate + "--target-weights Q4_K_M", 2, "'Q4_K_M' is unknown; did you mean q4_k?");
  EXPECT_EQ(run("quantise '" + (stories() / "draft").string() + "' '" + folder("x.gguf") +
                "' --type Q4_K_M")
                .code,
            0);
}

TEST_F(OptionWords, ADraftThatIsTheTargetIsToldOf) {
  const std::string target = "'" + (stories() / "target").string() + "'",
                    generate = "generate --device cpu --tree-size 2 -n 2 -p x --target ";
  const std::string told =
      "coppice: the draft is the target itself, in no fewer bits, which is "
      "slower than plain decoding; use ";
  const Result same = run(generate + target + " --draft " + target);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err, told + "--draft self:q4_k, or --draft none\n");
  EXPECT_EQ(run(generate + target + " --draft self:q4_k").err, "");
  EXPECT_EQ(run(generate + target + " --draft self:q4_k --target-weights q8_0").err, "");
  const std::string other = "a smaller model of the same tokenizer, or --draft none\n";
  EXPECT_EQ(run(generate + target + " --draft self:q4_k --target-weights q4_k").err, told + other);
  const std::string file = "'" + folder("m.gguf") + "'";
  ASSERT_EQ(run("quantise " + target + " " + file + " --type q8_0").code, 0);
  std::filesystem::create_symlink(folder("m.gguf"), folder("link.gguf"));
  EXPECT_EQ(run(generate + file + " --draft '" + folder("link.gguf") + "'").err, told + other);
  EXPECT_EQ(run(generate + file + " --draft " + target).err, "");
}

TEST_F(OptionWords, ADraftOfAnotherVocabularyIsNamedBesideItsTarget) {
  const std::filesystem::path other = folder("other");
  std::filesystem::copy(stories() / "draft", other);
  std::string pieces = slurp(other / "tokenizer.model");
  ASSERT_NE(pieces.find("captain"), pieces.npos);
  pieces.replace(pieces.find("captain"), 7, "capitan");
  std::ofstream(other / "tokenizer.model", std::ios::binary) << pieces;
  expect_error("generate -p x --target '" + (stories() / "target").string() + "' --draft '" +
                   folder("other") + "'",
               1,
               "; target '" + (stories() / "target").string() + "' has 4096 pieces, draft '" +
                   folder("other") +
                   "' has 4096; use a draft that shares the target's tokenizer, "
                   "or none (--draft none)");
}

}  // namespace
}  // namespace coppice::testing

// `coppice quantise`: the file runs as the model that it was made of.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command_runs.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Quantise : public Cli {
 protected:
  static std::string quoted(const fs::path& path) { return "'" + path.string() + "'"; }
  /// The shipped target or draft as a file of a type.
  std::string made(const std::string& which, const std::string& type) const {
    const std::string file = folder((which + "." + type + ".gguf").c_str());
    const Result r =
        run("quantise " + quoted(stories() / which) + " " + quoted(file) + " --type " + type);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.out.rfind(file + ": ", 0), 0u) << r.out;
    EXPECT_NE(r.out.find(" bits a weight: "), std::string::npos) << r.out;
    return quoted(file);
  }
  /// Token ids of a greedy text.
  Json tokens(const std::string& models) const {
    const Result r = run("generate " + models +
                         " --prompt 'The captain of the ship' --max-new-tokens 60 --format json");
    EXPECT_EQ(r.code, 0) << models << "\n" << r.err;
    return r.code == 0 ? Json::parse(r.out).at("tokens") : Json();
  }
};

TEST_F(Quantise, TextsAreThoseOfTheFolderRoundedAsItIsLoaded) {
  const std::string file = made("target", "q8_0");
  const Json own = tokens("--target " + file + " --draft none --cpu-dtype f32");
  EXPECT_EQ(own.size(), 60u);
  EXPECT_EQ(own, tokens("--target " + quoted(stories() / "target") +
                        " --target-weights q8_0 --draft none --cpu-dtype f32"));
  const std::string coarse = made("target", "q4_0");
  EXPECT_NE(own, tokens("--target " + coarse + " --draft none --cpu-dtype f32")) << "weights count";
}

TEST_F(Quantise, SpeculationWithQuantisedFilesChangesNoToken) {
  for (const std::string type : {"q8_0", "q4_k_m"}) {
    const std::string target = made("target", type), draft = made("draft", type);
    const Json plain = tokens("--target " + target + " --draft none");
    EXPECT_EQ(plain.size(), 60u);
    EXPECT_EQ(tokens("--target " + target + " --draft " + draft), plain) << type;
    EXPECT_EQ(tokens("--target " + target + " --draft " + draft + " --tree-size 32"), plain)
        << type;
  }
}

TEST_F(Quantise, FilesAreDescribedAsFiles) {
  const std::string file = made("target", "q4_k_m");
  const Result r = run("info " + file);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.out.rfind("file            ", 0), 0u) << r.out;
  EXPECT_NE(r.out.find("\ncoppice         runs this model\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("\non a GPU        quantised weights stay packed"), std::string::npos);
  const Result plain = run("info " + quoted(stories() / "target"));
  EXPECT_EQ(plain.out.rfind("folder          ", 0), 0u) << plain.out;
  EXPECT_EQ(plain.out.find("\non a GPU"), std::string::npos) << "16 bits stay 16 bits";
}

TEST_F(Quantise, WhatIsQuantisedIsNotRounded) {
  const std::string file = made("target", "q8_0"), plain = quoted(stories() / "target");
  for (const std::string command : {"generate --prompt x --target ", "info "}) {
    expect_error(command + file + " --target-weights q4_0", 2,
                 "--target-weights q4_0: " + file + " is stored quantised");
    expect_error(command + file + " --draft self:q4_k", 2,
                 "--draft self:q4_k: " + file + " is stored quantised");
    expect_error(command + plain + " --draft " + file + " --draft-weights q4_k", 2,
                 "--draft-weights q4_k: " + file + " is stored quantised");
    for (const std::string none : {"", " --draft none"}) {
      expect_error(command + plain + none + " --draft-weights q4_k", 2,
                   "--draft-weights q4_k: there is no draft");
    }
  }
  EXPECT_EQ(run("info " + file + " --draft self:keep --draft-weights keep").code, 2);
  EXPECT_EQ(run("info " + file + " --draft none --target-weights keep --draft-weights keep").code,
            0);
}

// The file recommends what no option takes: its mistake, not the command's.
TEST_F(Quantise, WrongRecommendationsAreNamedByFileAndKey) {
  const fs::path model = folder("model");
  fs::copy(stories() / "target", model);
  const auto recommends = [&](const std::string& settings) {
    std::ofstream(model / "generation_config.json") << "{\"do_sample\": true, " << settings << "}";
  };
  recommends("\"temperature\": 0.5, \"top_k\": 3, \"top_p\": 1.5");
  const std::string file = folder("m.gguf");
  ASSERT_EQ(run("quantise " + quoted(model) + " " + quoted(file) + " --type q8_0").code, 0);
  const std::string generate = " --draft none --prompt x --chat --no-template --max-new-tokens 1";
  expect_error("generate --target " + quoted(file) + generate, 1,
               "m.gguf: general.sampling.top_p: top-p 1.5: use a number above 0, up to 1; "
               "correct it or give --top-p");
  EXPECT_EQ(run("generate --top-p 0.9 --target " + quoted(file) + generate).code, 0);
  recommends("\"temperature\": -1");
  expect_error("generate --target " + quoted(model) + generate, 1,
               "generation_config.json: temperature: temperature -1: use 0");
}

TEST_F(Quantise, WhatTheFileDoesNotSayHasARemedy) {
  const fs::path model = folder("model");
  fs::copy(stories() / "target", model);
  std::ofstream(model / "generation_config.json")
      << R"({"do_sample": true, "temperature": 0.5, "max_new_tokens": 9, "min_new_tokens": 1,
            "stop_strings": ["x"]})";
  const std::string file = folder("m.gguf");
  const Result r = run("quantise " + quoted(model) + " " + quoted(file) + " --type Q8_0");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err,
            "coppice: the file does not say: stop_strings of generation_config.json; give each as "
            "--stop TEXT\n"
            "coppice: the file does not say: max_new_tokens of generation_config.json; give it as "
            "--max-new-tokens\n"
            "coppice: the file does not say: min_new_tokens of generation_config.json; give it as "
            "--min-new-tokens\n");
  const Result chat =
      run("generate --chat --prompt x --draft none --seed 1 --max-new-tokens 1 "
          "--target " +
          quoted(file));
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(chat.err, "coppice: m.gguf: temperature 0.5, top-k 50\n") << "by its own name";
}

// A file is known again by what is in it.
TEST_F(Quantise, BatchesOfFilesAreResumed) {
  const std::string target = made("target", "q8_0");
  std::ofstream(folder("prompts")) << "The captain\nThe ship\n";
  const std::string batch = "generate --batch " + quoted(folder("prompts")) +
                            " --draft none --max-new-tokens 4 --output " + quoted(folder("texts"));
  const Result first = run(batch + " --target " + target);
  EXPECT_EQ(first.code, 0) << first.err;
  const std::string texts = slurp(folder("texts"));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), '\n'), 2);
  EXPECT_EQ(run(batch + " --target " + target).code, 0);
  EXPECT_EQ(slurp(folder("texts")), texts);
  expect_error(batch + " --target " + made("target", "q4_0"), 2,
               "was made from another prompt, or with other options or models");
}

TEST_F(Quantise, RefusesInOneLine) {
  const std::string draft = quoted(stories() / "draft"), out = folder("out.gguf");
  const std::string call = "quantise " + draft + " ";
  std::ofstream(out) << "mine";
  expect_error(call + quoted(out), 1, "out.gguf: is there; name another file, or add --replace");
  EXPECT_EQ(slurp(out), "mine");
  EXPECT_EQ(run(call + quoted(out) + " --replace --type q8_0").code, 0);
  EXPECT_EQ(run("info " + quoted(out)).code, 0);
  expect_error("quantise " + quoted(out) + " " + quoted(out) + " --replace", 2,
               "is the model itself");
  expect_error("quantise " + quoted(out) + " " + quoted(folder("more.gguf")), 1,
               "is quantised already, to Q8_0");
  expect_error(call + quoted(folder("nowhere/out.gguf")), 1, "No such file or directory");
  expect_error(call + quoted(folder(".")) + " --replace", 1, "Is a directory");
  expect_error(call, 2, "quantise takes a model and a file");
  expect_error(call + "a b", 2, "quantise takes a model and a file");
  expect_error(call + quoted(folder("x.gguf")) + " --type q4_k_s", 2,
               "--type 'q4_k_s' is unknown; did you mean q4_k_m?");
  for (const std::string type : {"fp8", "int4"}) {
    expect_error(call + quoted(folder("x.gguf")) + " --type " + type, 2,
                 "--type " + type + ": GGUF has no such type");
  }
  expect_error(call + quoted(folder("x.gguf")) + " --threads -1", 2, "--threads -1: use 0 to 1024");
  expect_error("quantise " + quoted(folder("none")) + " " + quoted(folder("x.gguf")), 1,
               "no such folder or GGUF file");
  expect_error("quantize " + draft + " x", 2, "did you mean 'quantise'?");
  EXPECT_FALSE(fs::exists(folder("x.gguf")));
  // As on a disk that is full: nothing is left.
  const Result full = run(call + quoted(folder("full.gguf")), "ulimit -f 64; trap '' XFSZ; ");
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("full.gguf: File too large; free some space"), std::string::npos)
      << full.err;
  for (const auto& entry : fs::directory_iterator(folder("."))) {
    EXPECT_EQ(entry.path().filename().string().find("full.gguf"), std::string::npos) << entry;
  }
}

}  // namespace
}  // namespace coppice::testing

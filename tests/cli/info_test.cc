// What `coppice info` says of folders, and of what is wrong with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command_runs.h"

namespace coppice::testing {
namespace {

class Info : public Cli {};

TEST_F(Info, SaysWhetherADraftFits) {
  const std::string target = "'" + (stories() / "target").string() + "'",
                    draft = "'" + (stories() / "draft").string() + "'";
  const Result fits = run("info " + target + " --draft " + draft);
  EXPECT_EQ(fits.code, 0) << fits.err;
  EXPECT_NE(fits.out.find("\npair            token ids mean the same to draft and target\n"),
            std::string::npos)
      << fits.out;
  EXPECT_EQ(run("info -m " + target + " -md " + draft + " --kv-tokens 512").code, 0);
  const Result none = run("info --target " + target + " --draft none");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.out.find("\npair "), std::string::npos);

  TinyModel model;  // of 96 tokens, without a tokenizer
  write_tiny_model(folder("tiny"), model);
  const std::string pair = "info " + target + " --draft '" + folder("tiny") + "'";
  const Result differs = run(pair), json = run(pair + " --format json");
  for (const Result& r : {differs, json}) {
    EXPECT_EQ(r.code, 1);
    EXPECT_NE(r.err.find("does not fit the target: "), std::string::npos) << r.err;
    EXPECT_NE(r.err.find("its vocabulary has 96 rows, the target's has 4096"), std::string::npos);
  }
  EXPECT_NE(differs.out.find("\npair            does not fit the target: draft "),
            std::string::npos);
  const nlohmann::json said = nlohmann::json::parse(json.out);
  EXPECT_FALSE(said.at("pair").at("fits"));
  EXPECT_NE(said.at("pair").at("error").get<std::string>().find("4096"), std::string::npos);

  expect_error("info --draft " + draft, 2, "needs a target");
  expect_error("info " + target + " -m " + target, 2, "takes one model");
  expect_error("info --format json --tree-size 0 " + target, 2, "tree-size 0");
}

TEST_F(Info, ListsSettingsThatAreObeyedAndThoseThatAreNot) {
  using Json = nlohmann::json;
  const std::filesystem::path dir = folder("model");
  write_tiny_model(dir, TinyModel{});
  write_file(dir / "generation_config.json",
             R"({"do_sample": true, "temperature": 0.5, "suppress_tokens": [3], "eos_token_id": 5,
                 "transformers_version": "5.0.0"})");
  write_file(dir / "tokenizer_config.json", R"({"legacy": true, "tokenizer_class": "LlamaTokenizer",
                 "split_special_tokens": true, "model_max_length": 9})");
  const std::string options = "info '" + dir.string() + "' ";
  const Result text = run(options), json_text = run(options + "--format json");
  ASSERT_EQ(json_text.code, 0) << json_text.err;
  for (const char* line :
       {"\nobeyed          generation_config.json: eos_token_id 5; temperature 0.5; top_k 50",
        "\nobeyed          tokenizer_config.json: legacy true\n",
        "\n                (sampling, lengths and stop texts: by chat, serve and generate --chat "
        "alone)"
        "\nnot obeyed ",
        "\nnot obeyed      generation_config.json: suppress_tokens\n",
        "\nnot obeyed      tokenizer_config.json: split_special_tokens\n"}) {
    EXPECT_NE(text.out.find(line), std::string::npos) << line << "\n" << text.out;
  }
  EXPECT_EQ(text.out.find("transformers_version"), std::string::npos);
  const Json settings = Json::parse(json_text.out).at("settings");
  EXPECT_EQ(settings.at("not_obeyed"),
            Json::parse(R"([{"file": "generation_config.json", "name": "suppress_tokens"},
                            {"file": "tokenizer_config.json", "name": "split_special_tokens"}])"));
  const Json temperature = {
      {"file", "generation_config.json"}, {"name", "temperature"}, {"value", "0.5"}};
  const Json& obeyed = settings.at("obeyed");
  EXPECT_NE(std::find(obeyed.begin(), obeyed.end(), temperature), obeyed.end());
  write_file(dir / "generation_config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(run(options).out.find("generate --chat alone"), std::string::npos);
}

TEST_F(Info, NamesTheFirstOfManyKeysThatAreNotObeyed) {
  TinyModel model;
  for (int key = 0; key < 24; ++key) {
    model.fields +=
        (key > 0 ? ", " : "") + std::string("\"tomorrow_") + static_cast<char>('a' + key) + "\": 5";
  }
  model.fields += ", \"" + std::string(5000, 'A') + "\": 5";
  write_tiny_model(folder("model"), model);
  const std::string options = "info '" + folder("model") + "' ";
  const Result text = run(options), json = run(options + "--format json");
  EXPECT_NE(text.out.find("; tomorrow_i; and 15 more\n"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find(std::string(500, 'A')), std::string::npos);
  const auto settings = nlohmann::json::parse(json.out).at("settings");
  EXPECT_EQ(settings.at("not_obeyed").size(), 10u);
  EXPECT_EQ(settings.at("not_obeyed_more"), 15);
}

TEST_F(Info, AsJsonSaysWhatTheTextSays) {
  using Json = nlohmann::json;
  const std::string options = "info '" + (stories() / "target").string() + "' --draft '" +
                              (stories() / "draft").string() +
                              "' --device cpu --kv-tokens 512 --parallel 3 ";
  const Result text = run(options), json_text = run(options + "--format json");
  ASSERT_EQ(json_text.code, 0) << json_text.err;
  const Json json = Json::parse(json_text.out);
  const auto says = [&](const std::string& line) {
    EXPECT_NE(text.out.find(line), std::string::npos) << line << "\n" << text.out;
  };
  const auto number = [&](const char* name) {
    return std::to_string(json.at(name).get<std::int64_t>());
  };
  says("folder          " + json.at("folder").get<std::string>() + "\n");
  says("architecture    " + json.at("architecture").get<std::string>() + " (" +
       json.at("model_type").get<std::string>() + ")\n");
  says("layers          " + number("layers") + ", hidden " + number("hidden_size"));
  says("attention       " + number("heads") + " heads of " + number("head_dim") + ", " +
       number("kv_heads") + " KV head");
  EXPECT_EQ(json.at("context_length"), 512);
  says("context         512 tokens");
  EXPECT_EQ(json.at("vocab_size"), 4096);
  EXPECT_TRUE(json.at("runs"));
  EXPECT_TRUE(json.at("cannot_run").empty());
  says("runs this model");
  says(json.at("tokenizer").at("file").get<std::string>() + " of 4,096 pieces");
  says("bos " + number("bos_token") + ", eos " +
       std::to_string(json.at("eos_tokens").at(0).get<int>()));
  says(std::to_string(json.at("weights").at("tensors").get<int>()) + " tensors, BF16");
  EXPECT_EQ(json.at("weights").at("elements").size(), 1u);
  EXPECT_GE(json.at("weights").at("elements").at("BF16"), json.at("parameters"));
  says("processor       " + json.at("machine").at("processor").get<std::string>() + ", " +
       std::to_string(json.at("machine").at("threads").get<int>()) + " threads");
  const Json& memory = json.at("memory");
  std::int64_t sum = 0;
  for (const Json& use : memory.at("uses")) sum += use.at("bytes").get<std::int64_t>();
  EXPECT_EQ(memory.at("bytes"), sum);
  EXPECT_EQ(memory.at("kv_tokens"), 512);
  says("KV of 512 tokens");
  says("up to 3 texts, " + std::to_string(memory.at("batch_rows").get<int>()) + " rows");
  EXPECT_EQ(memory.at("sequences"), 3);
  EXPECT_EQ(memory.at("uses").at(2).at("bytes").get<std::int64_t>() % (512 * 2), 0);

  const Json machine = Json::parse(run("info --format json").out);
  EXPECT_EQ(machine.size(), 1u);
  EXPECT_EQ(machine.at("machine").at("processor"), json.at("machine").at("processor"));
  EXPECT_EQ(machine.at("machine").contains("gpu_not_used"), !machine.at("machine").at("gpu"));

  // A folder that cannot be run.
  TinyModel model;
  write_tiny_model(folder("tiny"), model);
  std::ofstream(folder("tiny") + "/config.json") << R"({"architectures": ["MambaForCausalLM"]})";
  const Result refused = run("info '" + folder("tiny") + "' --format json");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("\"cannot_run\" says why"), std::string::npos) << refused.err;
  const Json why = Json::parse(refused.out);
  EXPECT_FALSE(why.at("runs"));
  EXPECT_FALSE(why.at("cannot_run").empty());
  EXPECT_TRUE(why.at("tokenizer").contains("error"));
  EXPECT_FALSE(why.contains("memory"));
}

// Layers that are to lie in a file need its disk's room, as generate() needs it.
TEST_F(Info, SaysWhereLayersLieThatMemoryDoesNotHold) {
  using Json = nlohmann::json;
  const std::string target = "info --device cpu '" + (stories() / "target").string() + "' ",
                    streams = target + "--host-memory 30MB ";
  const std::string here = "XDG_CACHE_HOME='" + folder("cache") + "' ";
  const Result text = run(streams, here), json_text = run(streams + "--format json", here);
  ASSERT_EQ(text.code, 0) << text.err;
  ASSERT_EQ(json_text.code, 0) << json_text.err;
  EXPECT_NE(text.out.find("are read from a file in every pass\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\nlayers' file    in " + folder("cache") + "/coppice, where "),
            std::string::npos)
      << text.out;
  EXPECT_EQ(text.out.find("MiB"), std::string::npos) << text.out;
  const Json memory = Json::parse(json_text.out).at("memory");
  EXPECT_EQ(memory.at("layers_folder"), folder("cache") + "/coppice");
  EXPECT_GT(memory.at("layers_folder_free"), 0);
  const auto weights = [](const Json& of) { return of.at("uses").at(0).at("bytes"); };
  EXPECT_LT(weights(memory), 30'000'000);

  const Result full = run(streams, "XDG_CACHE_HOME=/proc ");  // whose file system holds nothing
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("/proc/coppice: layers that memory does not hold take "),
            std::string::npos)
      << full.err;

  // More than is free is what is free, and layers that stay on no card are copied in vain.
  const Result whole = run(target + "--host-memory 100000GiB");
  EXPECT_EQ(whole.code, 0) << whole.err;
  const Result in_vain = run(target + "--gpu-layers 1");
  EXPECT_EQ(in_vain.code, 0) << in_vain.err;
  EXPECT_NE(in_vain.out.find("in vain: gpu-layers is for GPUs\n"), std::string::npos)
      << in_vain.out;
  const Json copied = Json::parse(run(target + "--gpu-layers 1 --format json").out).at("memory"),
             usual = Json::parse(run(target + "--format json").out).at("memory");
  EXPECT_GT(weights(copied), weights(usual));
  EXPECT_FALSE(usual.contains("target_layers"));
}

// Whatever is wrong with the folders: one object, which says so, one line, and exit code 1.
TEST_F(Info, AsJsonDescribesFoldersThatAreBroken) {
  using Json = nlohmann::json;
  const auto described = [&](const std::string& options, const std::string& line) {
    const Result r = run("info --format json " + options);
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_NE(r.err.find(line), std::string::npos) << r.err;
    EXPECT_TRUE(Json::accept(r.out)) << r.out;
    return Json::parse(r.out, nullptr, false);
  };
  const auto says = [](const Json& text, const char* what) {
    EXPECT_NE(text.get<std::string>().find(what), std::string::npos) << text;
  };
  const std::string target = "'" + folder("target") + "'", draft = "'" + folder("draft") + "'";
  const std::filesystem::path weights = folder("draft") + "/model.safetensors";
  write_tiny_model(folder("target"), TinyModel());
  write_tiny_model(folder("draft"), TinyModel());
  ASSERT_EQ(run("info " + target + " --draft " + draft).code, 0);

  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) - 4);
  Json json = described(target + " --draft " + draft, "cannot be run: ");
  EXPECT_TRUE(json.at("runs"));
  EXPECT_FALSE(json.at("pair").at("fits"));
  says(json.at("pair").at("error"), "truncated");
  EXPECT_FALSE(json.contains("memory"));
  json = described(draft, "\"cannot_run\" says why");
  EXPECT_FALSE(json.at("runs"));
  says(json.at("cannot_run").at(0), "truncated");
  says(json.at("weights").at("error"), "truncated");

  // Weights of another model than config.json describes.
  TinyModel wider;
  wider.intermediate_size = 64;
  write_tiny_model(folder("draft"), wider);
  std::ofstream(folder("draft") + "/config.json") << tiny_model_config(TinyModel());
  json = described(target + " --draft " + draft, "cannot be run: ");
  says(json.at("pair").at("error"), "config.json asks for [56, 32]");
  json = described(draft, "says why");
  says(json.at("cannot_run").at(0), "config.json asks for [56, 32]");
  EXPECT_EQ(json.at("weights").at("files"), 1);
  const Result text = run("info " + target + " --draft " + draft);
  EXPECT_EQ(text.code, 1);
  EXPECT_NE(text.out.find("\npair            cannot be run: "), std::string::npos) << text.out;
  EXPECT_EQ(run("info " + draft).out.find("runs this model"), std::string::npos);

  json = described("'" + folder("nowhere") + "'", "says why");
  EXPECT_FALSE(json.at("runs"));
  says(json.at("cannot_run").at(0), "no such folder");
  json = described(target + " --draft '" + folder("nowhere") + "'", "no such folder");
  says(json.at("pair").at("error"), "no such folder");

  json = described(target + " --kv-tokens 1000000000", "too little memory");
  EXPECT_TRUE(json.at("runs"));
  says(json.at("memory").at("error"), "too little memory");
}

}  // namespace
}  // namespace coppice::testing

// `generate --batch` and `--n` as a shell sees them: order, own options, going on, errors.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/checked_lines.h"
#include "base/error.h"
#include "cli/command_runs.h"
#include "cli/screen.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;

// What repeats itself token for token, beside whatever texts: coupled noise, fixed trees.
const std::string fixed = " --device cpu --threads 1 --tree-size 4 --acceptance coupled ";

class Batch : public Cli {
 protected:
  std::string write(const char* name, const std::string& text) {
    std::ofstream(folder(name), std::ios::binary) << text;
    return "'" + folder(name) + "'";
  }

  static std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  static std::vector<Json> tokens_of(const std::vector<Json>& lines) {
    std::vector<Json> tokens;
    for (const Json& line : lines) tokens.push_back(line.at("tokens"));
    return tokens;
  }

  Json one(const std::string& tail) {
    const Result r = run("generate --format json" + fixed + tail);
    EXPECT_EQ(r.code, 0) << tail << "\n" << r.err;
    return r.code == 0 ? Json::parse(r.out) : Json();
  }
};

TEST_F(Batch, WritesALineForEachPromptInOrder) {
  const std::string file = write("prompts.txt", "It was late\nThe captain\r\nIt was late");
  const std::string options = " --temperature 0.9 --seed 5 --max-new-tokens 12";
  const Result r = run("generate --batch " + file + fixed + options + " --stats");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 3u);
  const char* prompts[] = {"It was late", "The captain", "It was late"};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lines[i]["index"], i);
    EXPECT_EQ(lines[i]["stream"], i);
    EXPECT_FALSE(lines[i].contains("id"));
    const Json alone = one(cat("--prompt '", prompts[i], "' --stream ", i, options));
    EXPECT_EQ(lines[i]["tokens"], alone["tokens"]) << i;
    EXPECT_EQ(lines[i]["text"], alone["text"]) << i;
    EXPECT_EQ(lines[i]["new_tokens"], alone["tokens"].size());
    EXPECT_EQ(lines[i]["finish_reason"], alone["finish_reason"]);
    for (const char* name : {"batch_mean", "queue_seconds", "preemptions", "accepted_length"}) {
      EXPECT_TRUE(lines[i].contains(name)) << name;
    }
  }
  EXPECT_NE(lines[0]["tokens"], lines[2]["tokens"]) << "equal prompts get texts of their own";
  EXPECT_NE(r.err.find("  texts            3\n"), std::string::npos) << r.err;
  const Result piped = run("generate --batch - --parallel 1" + fixed + options + " < " + file);
  EXPECT_EQ(tokens_of(lines_of(piped.out)), tokens_of(lines)) << piped.err;
}

TEST_F(Batch, LinesHaveOptionsOfTheirOwn) {
  const std::string file = write(
      "lines.jsonl",
      R"({"prompt": "It was late", "id": "a", "max_new_tokens": 5, "seed": 18446744073709551615})"
      "\n"
      R"({"id": 7, "kind": "tales", "prompt": "The captain", "temperature": 0, "logprobs": true, "tree_size": 2})"
      "\n"
      R"({"prompt": "The captain", "stream": 9, "ignore_eos": true, "policy": "chain"})"
      "\n"
      R"({"prompt": "It was late", "stop": ["e", "x"], "n": 2, "top_k": 40, "tree_size": "3"})"
      "\n"
      R"({"tokens": [1, 300, 301], "repetition_penalty": 1.2})"
      "\n"
      R"({"prompt": "It was", "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"300": 5}, "stop_tokens": [2, 301], "min_new_tokens": 4})"
      "\n");
  const std::string common = " --temperature 0.8 --seed 3 --max-new-tokens 8";
  const Result r = run("generate --batch " + file + fixed + common);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 6u);
  const auto expect = [&](const Json& line, const std::string& tail) {
    EXPECT_EQ(line["tokens"], one(tail)["tokens"]) << tail;
  };
  EXPECT_EQ(lines[0]["id"], "a");
  EXPECT_EQ(lines[0]["seed"], 18446744073709551615u);
  expect(lines[0],
         "--prompt 'It was late' --temperature 0.8 --seed 18446744073709551615 --max-new-tokens 5");
  EXPECT_EQ(lines[1]["id"], 7);
  EXPECT_EQ(lines[1]["tree_size"], 2);
  EXPECT_EQ(lines[1]["logprobs"].size(), 8u);
  EXPECT_FALSE(lines[2].contains("logprobs"));
  expect(lines[1], "--prompt 'The captain' --temperature 0 --max-new-tokens 8");
  EXPECT_EQ(lines[2]["policy"], "chain");
  EXPECT_EQ(lines[2]["stream"], 9);
  expect(lines[2], "--prompt 'The captain' --stream 9 --ignore-eos" + common);
  // Streams 3 and 4: the next line's is behind both samples.
  ASSERT_EQ(lines[3]["samples"].size(), 2u);
  for (std::size_t s = 0; s < 2; ++s) {
    const Json& sample = lines[3]["samples"][s];
    EXPECT_EQ(sample["stream"], 3 + s);
    expect(sample,
           cat("--prompt 'It was late' --stop e --stop x --top-k 40 --stream ", 3 + s, common));
  }
  EXPECT_EQ(lines[4]["stream"], 5);
  expect(lines[4], "--prompt-ids 1,300,301 --repetition-penalty 1.2 --stream 5" + common);
  EXPECT_EQ(lines[5]["presence_penalty"], 0.5);
  EXPECT_EQ(lines[5]["biased_tokens"], 1);
  EXPECT_EQ(lines[5]["min_new_tokens"], 4);
  EXPECT_GE(lines[5]["new_tokens"], 4);
  EXPECT_FALSE(lines[4].contains("presence_penalty"));
  expect(lines[5],
         "--prompt 'It was' --presence-penalty 0.5 --frequency-penalty=-0.5 --logit-bias 300=5 "
         "--stop-tokens 2,301 --min-new-tokens 4 --stream 6" +
             common);
}

// A schema is an object of its line or a text, and properties come in its order.
TEST_F(Batch, LinesHaveConstraintsOfTheirOwn) {
  const std::string schema = R"({"type": "object", "properties": {"zeal": {"type": "boolean"}, )"
                             R"("age": {"enum": [7, 8]}}, "required": ["zeal", "age"], )"
                             R"("additionalProperties": false})";
  const std::string good =
      cat(R"({"prompt": "A cat", "json_schema": )", schema, "}\n",
          R"({"prompt": "A cat", "json_schema": )", Json(schema).dump(), "}\n",
          R"({"prompt": "A cat", "choice": ["no", "yes"]})", "\n", R"({"prompt": "A cat"})", "\n");
  const std::string file =
      write("lines.jsonl", good + R"({"prompt": "A cat", "json_schema": false})" + "\n");
  const std::string common = " --temperature 0 --max-new-tokens 240";
  Result r = run("generate --regex '[0-9]{3}' --batch " + file + fixed + common);
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("line 5: the constraint admits no text at all"), std::string::npos) << r.err;
  r = run("generate --regex '[0-9]{3}' --batch " + write("some.jsonl", good) + fixed + common);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 4u);
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(lines[i]["finish_reason"], "eos");
    const std::string text = lines[i]["text"];
    EXPECT_LT(text.find("zeal"), text.find("age")) << text;
    EXPECT_TRUE(Json::parse(text).at("age").is_number_integer()) << text;
    EXPECT_EQ(lines[i]["constrained"], true);
    EXPECT_TRUE(lines[i].contains("looked_up"));
  }
  EXPECT_EQ(lines[0]["tokens"], lines[1]["tokens"]);
  EXPECT_TRUE(lines[2]["text"] == "no" || lines[2]["text"] == "yes") << lines[2];
  EXPECT_EQ(lines[3]["text"].get<std::string>().size(), 3u) << lines[3];
}

// A line may speculate where the command does not, and in larger trees than an engine's usual 64.
TEST_F(Batch, TheModelsServeAllLines) {
  const std::string file =
      write("lines.jsonl", R"({"prompt": "It was", "policy": "chain", "tree_size": 80})"
                           "\n"
                           R"({"prompt": "It was"})"
                           "\n");
  const Result r = run("generate --policy none --device cpu --max-new-tokens 4 --batch " + file);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> lines = lines_of(r.out);
  EXPECT_EQ(lines[0]["policy"], "chain");
  EXPECT_EQ(lines[0]["tree_size"], 80);
  EXPECT_EQ(lines[1]["policy"], "none");
  EXPECT_EQ(lines[0]["tokens"], lines[1]["tokens"]);
}

TEST_F(Batch, ABadLineIsNamed) {
  struct Bad {
    std::string second, says;
  };
  const std::vector<Bad> all = {
      {R"({"prompt": "x", "temprature": 1})", "did you mean temperature?"},
      {R"({"prompt": "x", "max-new-tokens": 1})", "coppice calls it max_new_tokens"},
      {R"({"prompt": "x", "tree": "f.json"})", "on the command line, as --tree"},
      {R"({"prompt": "x", "temperature": "hot"})", "\"temperature\" is 'hot'; give a number"},
      {R"({"prompt": "x", "temperature": 200})", "line 2: temperature 200"},
      {R"({"prompt": "x", "top_k": 1.5})", "\"top_k\" is 1.5; give a whole number"},
      {R"({"prompt": "x", "top_k": 4294967296})", "give a whole number of at most 2147483647"},
      {R"({"prompt": "x", "seed": -1})", "'-1': use a whole number from 0"},
      {R"({"prompt": "x", "ignore_eos": 1})", "give true or false"},
      {R"({"prompt": "x", "stop": [1]})", "give a text or a list of texts"},
      {R"({"prompt": "x", "stop": null})", "\"stop\" is null; give a text or a list of texts"},
      {R"({"prompt": "x", "stop": {}})", "\"stop\" is {}; give a text or a list of texts"},
      {R"({"prompt": "x", "policy": "oak"})", "'oak' is unknown"},
      {R"({"prompt": "x", "parallel": 4})",
       "key 'parallel' holds for all lines; give it on the command line, as --parallel"},
      {R"({"prompt": "x", "target": "y"})", "on the command line, as --target"},
      {R"({"prompt": "x", "json_schema": 5})", "\"json_schema\" is 5; give a schema"},
      {R"({"prompt": "x", "json_schema": {"contains": {}}})", "#/contains"},
      {R"({"prompt": "x", "json_schema": "cat.json"})", "not a file's name"},
      {R"({"prompt": "x", "json": true, "regex": "a"})", "one constraint"},
      {R"({"prompt": "x", "regex": ""})", "the constraint admits the empty text alone"},
      {R"({"prompt": "x", "model": "y"})", "on the command line, as --target"},
      {R"({"prompt": "x", "kv_tokens": 9})", "on the command line, as --kv-tokens"},
      {R"({"prompt": "x", "max_tokens": 9})",
       "'max_tokens' is unknown; coppice calls it max_new_tokens"},
      {R"({"prompt": "x", "temp": 9})", "coppice calls it temperature"},
      {R"({"text": "x"})", "key 'text' is unknown; coppice calls it prompt"},
      {R"({"promt": "x"})", "key 'promt' is unknown; did you mean prompt? Keys are options"},
      {R"({"prompt": "x", "n": 0})", "--n 0: use 1"},
      {R"({"prompt": "x", "id": [1]})", "\"id\" is [1]"},
      {R"({"prompt": "x", "kind": 3})", "\"kind\" is 3"},
      {R"({"prompt": 5})", "\"prompt\" is 5; give a text"},
      {R"({"prompt": ""})", "give a text"},
      {R"({"tokens": []})", "line 2: \"tokens\" is empty; give at least one token id"},
      {R"({"tokens": [1, -2]})", "list of token ids"},
      {R"({"tokens": [1, 99999999999]})", "no token id"},
      {R"({"prompt": "x", "tokens": [1]})", "more than one prompt"},
      {R"({"id": 1})", "line 2: no prompt"},
      {R"({"messages": []})", "need --chat"},
      {R"({"prompt": "x", "prompt": "y"})", "appears twice"},
      {R"({"prompt": )", "line 2: not valid JSON"},
      {"plain text", "line 2: not a JSON object, as the first line is; write"},
      {"{\"prompt\": \"\xff\"}", "line 2: not valid UTF-8"},
  };
  for (const Bad& bad : all) {
    const std::string file =
        write("bad.jsonl", "{\"prompt\": \"It was\"}\n" + bad.second + "\n{\"prompt\": \"x\"}\n");
    expect_error("generate --batch " + file, 2, bad.says);
    EXPECT_NE(slurp(folder("stderr")).find("bad.jsonl' line 2: "), std::string::npos) << bad.second;
  }
  expect_error("generate --batch " + write("bad.txt", ""), 2, "it is empty");
  expect_error("generate --batch " + write("bad.txt", "\n \n\r\n"), 2,
               "it has blank lines only; give a prompt a line");
  expect_error("generate --batch " + write("bad.txt", "It was\n{\"prompt\": \"x\"}\n"), 2,
               "bad.txt' line 2: a JSON object, which the first line is not");
  // Blank lines are skipped, and counted.
  expect_error(
      "generate --batch " + write("bad.jsonl", "\n{\"prompt\": \"x\"}\n \n\n{\"prompt\": 5}"), 2,
      "bad.jsonl' line 5: \"prompt\" is 5");
  for (const char* array : {"[\"one\", \"two\"]", "[\n  {\"prompt\": \"one\"},\n", " [\n]\n"}) {
    expect_error("generate --batch " + write("bad.json", array), 2,
                 "bad.json': a JSON array; give one JSON object a line instead");
  }
  expect_error("generate --batch '" + folder("missing") + "'", 1, "cannot be read");
  const std::string good = write("good.txt", "It was\n");
  expect_error("generate --batch " + good + " --prompt x", 2, "only one of --batch and --prompt");
  expect_error("generate --batch " + good + " --format text", 2, "JSON lines");
  expect_error("generate --batch " + good + " --parallel 0", 2, "--parallel 0: use 1");
  // Wrong even where no line needs it.
  expect_error("generate --n 0 --batch " + write("own.jsonl", R"({"prompt": "x", "n": 2})"), 2,
               "--n 0: use 1");
  for (const char* seconds : {"nan", "inf", "-1"}) {
    expect_error("generate --batch " + good + " --progress " + seconds, 2,
                 cat("--progress ", seconds, ": use seconds"));
  }
  expect_error("generate --prompt x --output " + good, 2, "needs --batch");
  expect_error("generate --prompt x --parallel 2", 2, "needs --batch or --n");
  expect_error("generate --prompt x --stream -1", 2, "--stream '-1'");
}

TEST_F(Batch, WhatFailsInOneLineSparesTheOthers) {
  const std::string file = write("lines.jsonl", R"({"prompt": "It was"})"
                                                "\n"
                                                R"({"id": "far", "tokens": [1, 1000000]})"
                                                "\n"
                                                R"({"prompt": "The captain"})"
                                                "\n");
  const Result r = run("generate --batch " + file + fixed + "--max-new-tokens 4");
  EXPECT_EQ(r.code, 1);
  EXPECT_EQ(r.err, "coppice: 1 of 3 lines failed; \"error\" in them says why\n");
  const std::vector<Json> lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1]["index"], 1);
  EXPECT_EQ(lines[1]["id"], "far");
  EXPECT_NE(lines[1]["error"].get<std::string>().find("1000000"), std::string::npos) << lines[1];
  EXPECT_FALSE(lines[1].contains("text"));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(lines[i]["stream"], i);
  EXPECT_EQ(lines[0]["new_tokens"], 4);
  EXPECT_EQ(lines[2]["new_tokens"], 4);
}

TEST_F(Batch, GoesOnWhereItStopped) {
  const std::string file = write("prompts.txt",
                                 "{\"prompt\": \"It was late\", \"seed\": 7}\n"
                                 "{\"prompt\": \"The captain\"}\n{\"prompt\": \"One day\"}\n");
  const std::string command = "generate --batch " + file + fixed +
                              "--temperature 1 --max-new-tokens 6 --output '" + folder("texts") +
                              "'";
  const Result first = run(command);  // with a random seed
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "");
  const std::string whole = slurp(folder("texts"));
  const std::vector<Json> lines = lines_of(whole);
  ASSERT_EQ(lines.size(), 3u);

  // As a kill leaves it: a line and a half.
  const std::size_t end = whole.find('\n') + 1;
  write("texts", whole.substr(0, end + 30));
  const Result second = run(command);
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.err, "coppice: 1 of 3 lines are there already\n" + first.err);
  EXPECT_EQ(first.err, cat("seed ", lines[1]["batch_seed"].get<std::uint64_t>(), "\n"));
  const std::string again = slurp(folder("texts"));
  EXPECT_EQ(again.substr(0, end), whole.substr(0, end));
  EXPECT_EQ(tokens_of(lines_of(again)), tokens_of(lines)) << "the random seed is kept";

  const Result third = run(command + " --parallel 2 --no-cost-cache");
  EXPECT_EQ(third.code, 0) << third.err;
  EXPECT_EQ(third.err, "coppice: 3 of 3 lines are there already\n");
  EXPECT_EQ(slurp(folder("texts")), again);

  // More of the batch.
  std::ofstream(folder("prompts.txt"), std::ios::app) << "{\"prompt\": \"It was late\"}\n";
  EXPECT_EQ(run(command).code, 0);
  EXPECT_EQ(slurp(folder("texts")).substr(0, again.size()), again);
  EXPECT_EQ(lines_of(slurp(folder("texts"))).size(), 4u);
}

TEST_F(Batch, NoSeedWhereNoTextFollowsIt) {
  const std::string file = write("prompts.txt", "It was late\nThe captain\n");
  const std::string command =
      "generate --batch " + file + fixed + "--max-new-tokens 3 --output '" + folder("texts") + "'";
  ASSERT_EQ(run(command).code, 0);
  const std::string whole = slurp(folder("texts"));
  for (const Json& line : lines_of(whole)) {
    EXPECT_TRUE(line.at("batch_seed").is_null());
    EXPECT_TRUE(line.at("seed").is_null());
  }
  for (const char* seed : {"", " --seed 8"}) {
    write("texts", whole.substr(0, whole.find('\n') + 1));
    const Result second = run(command + seed);
    EXPECT_EQ(second.code, 0) << second.err;
    EXPECT_EQ(second.err, "coppice: 1 of 2 lines are there already\n");
    EXPECT_EQ(tokens_of(lines_of(slurp(folder("texts")))), tokens_of(lines_of(whole)));
  }

  // One text that follows none, in a file that has a seed.
  const std::string greedy = "{\"prompt\": \"It was late\", \"temperature\": 0}\n";
  write("prompts.txt", greedy + "{\"prompt\": \"The captain\"}\n");
  write("texts", "");
  ASSERT_EQ(run(command + " --temperature 1 --seed 5").code, 0);
  const std::string seeded = slurp(folder("texts"));
  ASSERT_EQ(lines_of(seeded)[0]["batch_seed"], 5);
  EXPECT_TRUE(lines_of(seeded)[0]["seed"].is_null());
  EXPECT_EQ(lines_of(seeded)[1]["seed"], 5);
  write("prompts.txt", greedy);
  const std::string first = seeded.substr(0, seeded.find('\n') + 1);
  for (const char* seed : {"", " --seed 5", " --seed 6"}) {
    write("texts", first);
    const Result again = run(command + " --temperature 1" + seed);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(slurp(folder("texts")), first);
  }
}

TEST_F(Batch, RefusesAnOutputThatIsNotItsOwn) {
  const std::string file = write("prompts.txt", "It was late\nThe captain\n");
  const std::string to = " --output '" + folder("texts") + "'";
  const std::string command =
      "generate --batch " + file + fixed + "--temperature 1 --max-new-tokens 3";
  ASSERT_EQ(run(command + " --seed 1" + to).code, 0);
  const std::string whole = slurp(folder("texts"));
  const auto expect_kept = [&](const std::string& tail, int code, const std::string& says) {
    const std::string before = slurp(folder("texts"));
    expect_error(tail, code, says);
    EXPECT_EQ(slurp(folder("texts")), before) << tail;
  };
  expect_kept(command + " --seed 2" + to, 2, "name another --output");
  expect_kept(command + " --seed 1 --top-k 5" + to, 2, "text 0 was made from another prompt");
  expect_kept(command + " --seed 1 --draft none" + to, 2, "text 0 was made from another prompt");
  write("prompts.txt", "It was late\nThe boat\n");
  expect_kept(command + " --seed 1" + to, 2, "text 1 was made from another prompt");
  write("prompts.txt", "It was late\n");
  expect_kept(command + " --seed 1" + to, 2, "text 1 is there, the batch has 1");
  const std::string changed = "line 1: changed after it was written";
  for (const char* other : {"{\"index\":0,\n", "{\"index\":0,\"stream\":0,\"request\":\"00\"}\n"}) {
    write("texts", other + whole);
    expect_kept(command + to, 1, changed);
  }
  std::string edited = whole;
  edited.replace(edited.find("\"text\":\"") + 8, 1, "X");
  write("texts", edited);
  expect_kept(command + " --seed 1" + to, 1, changed);
  write("texts", whole.substr(0, whole.find('\n')) + " " + whole.substr(whole.find('\n') + 1));
  expect_kept(command + to, 1, changed);
  // Somebody's own line without an end begins as ours do.
  for (const char* own : {R"({"index":"a list of all words"})", R"({"index": 3})", R"({"index":3})",
                          R"({"index":3,"mine":true,"request":"0123456789abcdef"})"}) {
    write("texts", own);
    expect_kept(command + " --seed 1" + to, 1, changed);
  }
  // A torn line of another batch.
  write("texts", whole.substr(0, whole.find('\n') - 1));
  expect_kept(command + " --seed 2" + to, 2, "text 0 was made from another prompt");
  write("texts", "a letter\nto keep");
  expect_kept(command + to, 1, "line 1: no line of a batch");
  write("texts", "to keep");
  expect_kept(command + to, 1, "no line of a batch");
  // More than any memory holds.
  const std::string large = folder("large");
  write("large", "to keep");
  std::filesystem::resize_file(large, std::uintmax_t{1} << 42);
  expect_error(command + " --output '" + large + "'", 1, "line 1: no line of a batch");
  EXPECT_EQ(std::filesystem::file_size(large), std::uintmax_t{1} << 42);
  expect_kept("generate --batch " + file + " --output " + file, 1, "no line of a batch");
  expect_kept("generate --batch " + file + " --output '" + folder_.path().string() + "'", 1,
              "not a regular file");
}

// Wherever in a line a kill came.
TEST_F(Batch, ATornLineIsMended) {
  const std::string command = "generate --batch " + write("prompts.txt", "It was\n") + fixed +
                              "--temperature 1 --max-new-tokens 2 --output '" + folder("texts") +
                              "'";
  ASSERT_EQ(run(command + " --seed 17").code, 0);
  const std::string whole = slurp(folder("texts"));
  ASSERT_EQ(whole.find("{\"index\":0,\"batch_seed\":17,\"request\":\""), 0u) << whole;
  const std::size_t head = whole.find(",\"stream\"");
  for (const std::size_t cut : {std::size_t{1}, std::size_t{11}, std::size_t{25}, std::size_t{27},
                                std::size_t{45}, head - 1, head, whole.size() - 1}) {
    write("texts", whole.substr(0, cut));
    const Result again = run(command + (cut < head ? " --seed 17" : ""));
    EXPECT_EQ(again.code, 0) << cut << again.err;
    const std::vector<Json> lines = lines_of(slurp(folder("texts")));
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0]["tokens"], Json::parse(whole)["tokens"]) << cut;
  }
}

TEST_F(Batch, TextsOfALostModelAreWrittenAgain) {
  const std::string file = write("prompts.txt", "It was late\nThe captain\nA man\n");
  const std::string command =
      "generate --batch " + file + fixed + "--max-new-tokens 6 --output '" + folder("texts") + "'";
  ASSERT_EQ(run(command).code, 0);
  const std::string whole = slurp(folder("texts"));
  for (const char* error :
       {"tensor parallel: rank 1 of 2: the connection was closed; load the model again",
        "/home/somebody/.cache/coppice/layers: became shorter while it was read; start again"}) {
    std::string failed;
    for (const Json& line : lines_of(whole)) {
      nlohmann::ordered_json old = {{"index", line["index"]},
                                    {"batch_seed", line["batch_seed"]},
                                    {"request", line["request"]},
                                    {"error", error}};
      std::string text = old.dump();
      failed +=
          line["index"] == 0 ? whole.substr(0, whole.find('\n') + 1) : with_checksum(text) + "\n";
    }
    write("texts", failed);
    const Result again = run(command);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.err.find("2 of them are written again: the model was lost"), std::string::npos)
        << again.err;
    const std::string texts = slurp(folder("texts"));
    EXPECT_EQ(texts.find("\"error\""), std::string::npos);
    EXPECT_EQ(tokens_of(lines_of(texts)), tokens_of(lines_of(whole)));
  }
}

TEST_F(Batch, TextsThatLackedHostMemoryAreWrittenAgain) {
  const std::string file = write("prompts.txt", "It was late\nThe captain\nA man\n");
  const std::string command =
      "generate --batch " + file + fixed + "--max-new-tokens 6 --output '" + folder("texts") + "'";
  ASSERT_EQ(run(command).code, 0);
  const std::string whole = slurp(folder("texts"));
  std::string failed;
  for (const Json& line : lines_of(whole)) {
    nlohmann::ordered_json old = {{"index", line["index"]},
                                  {"batch_seed", line["batch_seed"]},
                                  {"request", line["request"]},
                                  {"error", "generate: the host's memory ran out; free memory"}};
    if (line["index"] == 1) old["lacked"] = {{"host_memory", true}};
    failed += with_checksum(old.dump()) + "\n";
  }
  write("texts", failed);
  // What a line says of memory counts, not its text.
  const Result again = run(command);
  EXPECT_EQ(again.code, 1) << again.err;
  EXPECT_NE(again.err.find("1 of them is written again: the host's memory ran out before\n"),
            std::string::npos)
      << again.err;
  EXPECT_NE(again.err.find("2 of 3 lines failed"), std::string::npos) << again.err;
  const std::vector<Json> texts = lines_of(slurp(folder("texts")));
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[1]["tokens"], lines_of(whole)[1]["tokens"]);
  for (const std::size_t i : {0, 2}) EXPECT_TRUE(texts[i].contains("error")) << i;
}

TEST_F(Batch, StopsWhereTheLayersFileIsCut) {
  std::string prompts;
  for (int line = 0; line < 2000; ++line) prompts += "The captain\n";
  const std::string file = write("prompts.txt", prompts);
  const std::string cut = cat(
      "export XDG_CACHE_HOME='", folder("cache"), "'; (for i in $(seq 1200); do [ -s '",
      folder("texts"),
      "' ] && break; sleep 0.05; done; for f in /proc/[0-9]*/fd/*; do case \"$(readlink $f)\" in '",
      folder("cache"), "'*layers*) : >$f;; esac; done) 2>/dev/null & ");
  const Result r = run("generate --batch " + file + fixed +
                           "--parallel 2 --gpu-layers 1 --host-memory 1GiB --ignore-eos "
                           "--max-new-tokens 400 --output '" +
                           folder("texts") + "'",
                       cut);
  EXPECT_EQ(r.code, 1);
  const std::string texts = slurp(folder("texts")) + slurp(folder("texts.waiting"));
  EXPECT_EQ(texts.find("\"error\""), std::string::npos);
  EXPECT_NE(r.err.find(cat("coppice: stopped after ", std::ranges::count(texts, '\n'),
                           " of 2000 lines: ", folder("cache"), "/coppice/layers: became shorter")),
            std::string::npos)
      << r.err;
}

// Old lines give way to longer texts, and only to them.
TEST_F(Batch, TextsThatLackedRoomAreWrittenAgainInMore) {
  std::string far = "5";
  for (int i = 0; i < 80; ++i) far += ",5";
  const std::string file = write("lines.jsonl", R"({"prompt": "The captain", "max_new_tokens": 2})"
                                                "\n"
                                                R"({"prompt": "The captain"})"
                                                "\n"
                                                R"({"tokens": [)" +
                                                    far + "]}\n" +
                                                    R"({"prompt": "A man", "n": 2})"
                                                    "\n"
                                                    R"({"prompt": "A man", "max_new_tokens": 3})"
                                                    "\n");
  const std::string command = "generate --batch " + file + fixed +
                              "--seed 1 --temperature 0.5 -n 100 --ignore-eos --output '" +
                              folder("texts") + "' --kv-tokens ";
  const Result small = run(command + "64");
  EXPECT_EQ(small.code, 1) << small.err;
  const std::string before = slurp(folder("texts"));
  const std::vector<Json> ended = lines_of(before);
  ASSERT_EQ(ended.size(), 5u);
  EXPECT_EQ(ended[1]["finish_reason"], "memory");
  EXPECT_EQ(ended[1]["lacked"], (Json{{"kv_tokens", 64}}));
  EXPECT_TRUE(ended[2].contains("error"));
  EXPECT_EQ(ended[2]["lacked"]["kv_tokens"], 64);
  EXPECT_EQ(ended[3]["samples"][1]["finish_reason"], "memory");
  EXPECT_FALSE(ended[4].contains("lacked"));

  for (const char* no_more : {"64", "50"}) {
    const Result same = run(command + no_more);
    EXPECT_EQ(same.code, 1);
    EXPECT_EQ(same.err.find("written again"), std::string::npos) << same.err;
    EXPECT_EQ(slurp(folder("texts")), before);
  }
  // A kill while lines are taken back: the tail waits, and is whole again without more room.
  std::size_t first = before.find('\n') + 1;
  write("texts.waiting", before.substr(first));
  write("texts", before.substr(0, first));
  EXPECT_EQ(run(command + "64").code, 1);
  EXPECT_EQ(slurp(folder("texts")), before);
  EXPECT_FALSE(std::filesystem::exists(folder("texts.waiting")));

  const Result more = run(command + "400");
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_NE(more.err.find("5 of 5 lines are there already\n"), std::string::npos) << more.err;
  EXPECT_NE(more.err.find("3 of them are written again: there is more room now\n"),
            std::string::npos)
      << more.err;
  const std::string after = slurp(folder("texts"));
  const std::vector<Json> whole = lines_of(after);
  ASSERT_EQ(whole.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(whole[i]["index"], i);
    EXPECT_FALSE(whole[i].contains("lacked")) << i;
  }
  EXPECT_EQ(whole[0], ended[0]);
  EXPECT_EQ(whole[4], ended[4]);
  EXPECT_EQ(whole[1]["new_tokens"], 100);
  EXPECT_EQ(whole[2]["new_tokens"], 100);
  EXPECT_EQ(whole[3]["samples"][0]["new_tokens"], 100);
  EXPECT_FALSE(std::filesystem::exists(folder("texts.waiting")));
  EXPECT_EQ(run(command + "512").err, "coppice: 5 of 5 lines are there already\n");
  EXPECT_EQ(slurp(folder("texts")), after);
}

// What failed for another reason would fail again.
TEST_F(Batch, ATokenOutsideTheVocabularyLacksNoRoom) {
  const std::string file = write("lines.jsonl", R"({"tokens": [5, 123456789]})"
                                                "\n"
                                                R"({"tokens": [5]})"
                                                "\n");
  const std::string command = "generate --batch " + file + fixed + "--seed 1 -n 3 --output '" +
                              folder("texts") + "' --kv-tokens ";
  EXPECT_EQ(run(command + "64").code, 1);
  const std::string before = slurp(folder("texts"));
  const std::vector<Json> ended = lines_of(before);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_NE(ended[0]["error"].get<std::string>().find("vocabulary"), std::string::npos);
  EXPECT_FALSE(ended[0].contains("lacked"));
  const Result more = run(command + "400");
  EXPECT_EQ(more.code, 1);
  EXPECT_EQ(more.err.find("written again"), std::string::npos) << more.err;
  EXPECT_EQ(slurp(folder("texts")), before);
}

TEST_F(Batch, ADrawnSeedIsToldAndRepeatsTheTexts) {
  const std::string file = write("two.txt", "The captain\nA man\n");
  const std::string command = "generate --batch " + file + fixed + "--max-new-tokens 5 ";
  const Result drawn = run(command + "--temperature 1");
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  ASSERT_EQ(drawn.err.rfind("seed ", 0), 0u) << drawn.err;
  const Result again =
      run(command + "--temperature 1 --" + drawn.err.substr(0, drawn.err.find('\n')));
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(tokens_of(lines_of(again.out)), tokens_of(lines_of(drawn.out)));
  EXPECT_EQ(run(command).err, "") << "at temperature 0 it does not matter";
  const std::string own = write("own.jsonl", "{\"prompt\": \"A man\", \"seed\": 3}\n");
  EXPECT_EQ(run("generate --temperature 1 -n 2 --batch " + own + fixed).err, "");
}

TEST_F(Batch, SaysThatMemoryEndedTexts) {
  const std::string file = write("two.txt", "The captain\nA man\n");
  const Result ended = run("generate -n 100 --ignore-eos --kv-tokens 64 --batch " + file);
  EXPECT_EQ(ended.code, 0);
  EXPECT_NE(ended.err.find("2 of 2 texts ended early"), std::string::npos) << ended.err;
  const Result whole = run("generate -n 4 --ignore-eos --kv-tokens 64 --batch " + file);
  EXPECT_EQ(whole.err.find("ended early"), std::string::npos) << whole.err;
}

// LongRoPE's factors go by the positions that are loaded: other factors write other texts.
TEST_F(Batch, GoesOnWithTheFactorsItBeganWith) {
  const std::string file = write("prompts.jsonl", R"({"tokens": [1, 40, 30]})"
                                                  "\n");
  const std::string command = "generate --batch " + file + " --output '" + folder("texts") +
                              "' --policy none --temperature 0 --max-new-tokens 4 --device cpu" +
                              " --target '" COPPICE_SOURCE_DIR "/tests/golden/data/phi3_short'";
  const Result first = run(command + " --kv-tokens 48");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(run(command + " --kv-tokens 64").code, 0);
  expect_error(command + " --kv-tokens 200", 2, "text 0 was made from another prompt");
}

TEST_F(Batch, AFullDiskLosesNothing) {
  std::string prompts;
  for (int i = 0; i < 6; ++i) prompts += "It was late\n";
  const std::string command = "generate --batch " + write("prompts.txt", prompts) + fixed +
                              "--seed 1 --max-new-tokens 4 --parallel 2 --output '" +
                              folder("texts") + "'";
  // Files of 2 KiB at most: a line or two.
  const std::string limited = "bash -c \"ulimit -f 2; COPPICE_MODELS='" +
                              stories().parent_path().string() + "' '" + COPPICE_BINARY + "' " +
                              command + " --no-cost-cache\" 2>'" + folder("err") + "'";
  const int status = std::system(limited.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const std::string error = slurp(folder("err"));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  EXPECT_NE(error.find("texts: File too large; free some space and start again"), std::string::npos)
      << error;
  const std::string kept = slurp(folder("texts"));
  ASSERT_FALSE(kept.empty());
  EXPECT_EQ(kept.back(), '\n');
  const std::size_t there = lines_of(kept).size();
  EXPECT_LT(there, 6u);
  const Result rest = run(command);
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(rest.err, cat("coppice: ", there, " of 6 lines are there already\n"));
  EXPECT_EQ(slurp(folder("texts")).substr(0, kept.size()), kept);
  EXPECT_EQ(lines_of(slurp(folder("texts"))).size(), 6u);
}

TEST_F(Batch, AnInterruptLeavesWhatIsWritten) {
  TinyModel model;
  model.eos_tokens = {};
  model.context_length = 200000;
  write_tiny_model(folder("long"), model);
  write("lines.jsonl", R"({"tokens": [1, 2], "max_new_tokens": 2})"
                       "\n"
                       R"({"tokens": [1, 2], "max_new_tokens": 100000})"
                       "\n"
                       R"({"tokens": [3], "max_new_tokens": 100000})"
                       "\n");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::freopen(folder("child").c_str(), "w", stderr) == nullptr) _exit(99);
    execl(COPPICE_BINARY, COPPICE_BINARY, "generate", "--batch", folder("lines.jsonl").c_str(),
          "--output", folder("texts").c_str(), "--draft", "none", "--target",
          folder("long").c_str(), "--kv-tokens", "200200", "--device", "cpu",
          static_cast<char*>(nullptr));
    _exit(98);
  }
  for (int i = 0; i < 600 && slurp(folder("texts")).empty(); ++i) usleep(50000);
  expect_error(
      "generate --batch '" + folder("lines.jsonl") + "' --output '" + folder("texts") + "'", 1,
      "another process writes it");
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(lines_of(slurp(folder("texts"))).size(), 1u);
  EXPECT_NE(slurp(folder("child"))
                .find("stopped after 1 of 3 lines; start it again with the same options to go on"),
            std::string::npos)
      << slurp(folder("child"));
}

TEST_F(Batch, PromptsAndMessagesGoThroughTheChatTemplate) {
  const std::string file =
      write("lines.jsonl", R"({"prompt": "Who goes there?"})"
                           "\n"
                           R"({"messages": [{"role": "user", "content": "Who goes there?"}]})"
                           "\n");
  const Result r = run("generate --chat --batch " + file + fixed + "--seed 1 --max-new-tokens 5");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::vector<Json> lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 2u);
  const Json alone = one("--chat --prompt 'Who goes there?' --seed 1 --max-new-tokens 5");
  EXPECT_EQ(lines[0]["tokens"], alone["tokens"]);
  EXPECT_EQ(lines[0]["prompt_tokens"], alone["prompt_tokens"]);
  EXPECT_EQ(lines[1]["prompt_tokens"], alone["prompt_tokens"]);
  expect_error(
      "generate --chat --batch " + write("bad.jsonl", "{\"messages\": [{\"content\": \"x\"}]}\n"),
      2, "line 1: message 1 has no role");
  expect_error("generate --chat --batch " + write("bad.jsonl", "{\"messages\": 5}\n"), 2,
               "line 1: no list of messages");
  expect_error("generate --chat --batch " + write("bad.jsonl", "{\"tokens\": [5]}\n"), 2,
               "line 1: \"tokens\" are no message");
}

TEST_F(Batch, SamplesAreTheTextsOfTheirStreams) {
  const std::string common = "--prompt 'It was late' --temperature 0.9 --seed 4 --max-new-tokens 7";
  const Json samples = one(common + " --n 3 --stream 2");
  ASSERT_EQ(samples.size(), 3u);
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(samples[s]["stream"], 2 + s);
    EXPECT_EQ(samples[s]["tokens"], one(cat(common, " --stream ", 2 + s))["tokens"]) << s;
  }
  EXPECT_NE(samples[0]["tokens"], samples[1]["tokens"]);
  const Result text = run("generate --n 3 --stream 2 " + fixed + common);
  EXPECT_EQ(text.code, 0) << text.err;
  std::string expected;
  for (std::size_t s = 0; s < 3; ++s) {
    expected += cat(s > 0 ? "\n" : "", "--- sample ", s + 1, " of 3, stream ", 2 + s, " ---\n",
                    samples[s]["text"].get<std::string>(), "\n");
  }
  EXPECT_EQ(text.out, expected);
  // A seed that was not given is told, so that the samples can be written again.
  for (const char* stats : {"", " --stats"}) {
    const Result unseeded =
        run(std::string("generate --prompt x --n 2 --temperature 1 --max-new-tokens 2") + stats);
    EXPECT_NE(unseeded.err.find("seed "), std::string::npos) << unseeded.err;
  }
  expect_error("generate --prompt x --n 0", 2, "--n 0: use 1");
}

TEST_F(Batch, ATerminalSeesHowFarItIs) {
  const std::string file = write("prompts.txt", "It was late\nThe captain\n");
  int status = 0;
  const std::string shown = run_on_terminal(
      "COPPICE_PROGRESS_AFTER=0 '" + std::string(COPPICE_BINARY) + "' generate --batch " + file +
          fixed + "--max-new-tokens 60 --output '" + folder("texts") + "'",
      80, status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_NE(shown.find("writing: "), std::string::npos) << shown;
  EXPECT_NE(shown.find("tokens/s"), std::string::npos) << shown;
  // Elsewhere it is a line every so often.
  std::filesystem::remove(folder("texts"));
  const Result log =
      run("generate --batch " + file + fixed +
          "--max-new-tokens 60 --progress 0.000001 --output '" + folder("texts") + "'");
  EXPECT_NE(log.err.find("coppice: writing: "), std::string::npos) << log.err;
}

}  // namespace
}  // namespace coppice::testing

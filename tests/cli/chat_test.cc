// Chat templates at the command line: generate --chat, and coppice chat over pipes and terminals.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/command_runs.h"
#include "cli/screen.h"
#include "engine/pair.h"

namespace coppice::testing {
namespace {

using Json = nlohmann::json;

class ChatCommand : public Cli {
 protected:
  std::string file(const std::string& name) const { return folder(name.c_str()); }
  std::string written(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }
  /// The shipped target with this text in one of its files.
  std::filesystem::path target_with(const std::string& name, const std::string& text) const {
    const std::filesystem::path target = file("target");
    std::filesystem::create_directory(target);
    for (const auto& entry : std::filesystem::directory_iterator(stories() / "target")) {
      std::filesystem::create_symlink(entry.path(), target / entry.path().filename());
    }
    std::filesystem::remove(target / name);
    written("target/" + name, text);
    return target;
  }
  static std::string command(const std::string& tail) {
    return "COPPICE_MODELS='" + stories().parent_path().string() + "' TERM=xterm '" +
           COPPICE_BINARY + "' " + tail;
  }
  Result talk(const std::string& tail, const std::string& input) const {
    return run(tail + " <'" + written("in", input) + "'");
  }
  Json generated(const std::string& tail) {
    const Result r =
        run("generate --device cpu --cpu-dtype f32 --threads 1 --tree-size 4 "
            "--temperature 0 --format json --max-new-tokens 12 --stop '~' " +
            tail);
    EXPECT_EQ(r.code, 0) << r.err;
    return Json::parse(r.out);
  }
};

// The shipped template writes BOS, the message in quotes, and opens the answer's.
TEST_F(ChatCommand, GenerateAppliesTheTemplateOnce) {
  const Json chat = generated("--chat --prompt 'Where is he?'");
  const std::string raw = written("raw", "\"Where is he?\" said the visitor.\n\"\n");
  const Json plain = generated("--prompt-file '" + raw + "'");
  EXPECT_EQ(chat["prompt_tokens"], plain["prompt_tokens"]);
  EXPECT_EQ(chat["tokens"], plain["tokens"]);
  EXPECT_EQ(generated("--chat --no-template --prompt 'Where is he?'")["tokens"],
            generated("--prompt 'Where is he?'")["tokens"]);
}

TEST_F(ChatCommand, MessagesComeFromAFile) {
  const std::string list = written("list.json", R"([
    {"role": "system", "content": "It was late."}, {"role": "user", "content": "Who?"},
    {"role": "assistant", "content": "I,\" he said."}, {"role": "user", "content": "Why?"}])");
  const std::string raw = written("raw",
                                  "It was late.\n\"Who?\" said the visitor.\n\"I,\" he said.\n"
                                  "\"Why?\" said the visitor.\n\"\n");
  EXPECT_EQ(generated("--messages '" + list + "'")["tokens"],
            generated("--prompt-file '" + raw + "'")["tokens"]);
  const std::string short_list = written("short.json", R"([{"role": "user", "content": "Who?"}])");
  EXPECT_EQ(generated("--system 'It was late.' --messages '" + short_list + "'")["tokens"],
            generated("--system 'It was late.' --chat --prompt 'Who?'")["tokens"]);
}

TEST_F(ChatCommand, EndsWhereNothingCanBeWritten) {
  const std::string chat =
      command("chat --device cpu --threads 1 --tree-size 4 --seed 1 <'" +
              written("lines", "Who?\nWhy?\n") + "' 2>'" + file("told") + "' ");
  for (const char* to : {">/dev/full", ">&-"}) {
    const int status = std::system((chat + to).c_str());
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1) << to;
    const std::string told = slurp(file("told"));
    const auto at = told.find("coppice: standard output: ");
    ASSERT_NE(at, std::string::npos) << told;
    EXPECT_EQ(told.find('\n', at) + 1, told.size()) << told;
  }
}

TEST_F(ChatCommand, SaysWhatMakesRoom) {
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += "Tell me what became of the captain and of all his men\n";
  const std::string options =
      "chat --device cpu --threads 1 --tree-size 4 --temperature 0 --max-new-tokens 100 --stop "
      "'~' ";
  const Result r = talk(options, lines);
  EXPECT_EQ(r.code, 1);  // nobody watches, and not all was answered
  const auto told = r.err.find(", or make room with /undo or /reset\n");
  EXPECT_NE(told, std::string::npos) << r.err;
  // Where nothing was said there is nothing to take back.
  const Result first = talk(options, std::string(9000, 'x') + "\n");
  EXPECT_NE(first.err.find("shorten it\n"), std::string::npos) << first.err;
}

TEST_F(ChatCommand, TypedTextIsNeverASpecialToken) {
  const int plain = generated("--chat --prompt 'one two'")["prompt_tokens"];
  // As special tokens they would be two more; spelt out they are many.
  const int spelt = generated("--chat --prompt 'one </s><s>two'")["prompt_tokens"];
  EXPECT_GT(spelt, plain + 3);
}

TEST_F(ChatCommand, RefusesInOneLine) {
  const std::string none = (stories() / "draft").string();
  expect_error("generate --target '" + none + "' --chat --prompt x", 1, "it has no chat template");
  expect_error("generate --target '" + none + "' --chat --prompt x", 1, "--no-template");
  expect_error("chat --target '" + none + "'", 1, "it has no chat template");
  expect_error("chat --template-name tools", 1,
               "this one chat template and none of the name 'tools'");
  expect_error("generate --system x --prompt y", 2, "--system needs --chat");
  expect_error("generate --chat --prompt-ids 1,2", 2, "--prompt-ids are no message");
  expect_error("generate --messages '" + written("a.json", "{}") + "'", 2, "no list of messages");
  expect_error("generate --messages '" + written("b.json", "[1]") + "'", 2, "has no role");
  expect_error("generate --messages '" + written("e.json", R"([{"role": "user"}])") + "'", 2,
               "message 1 has no content");
  expect_error("generate --messages '" + written("c.json", "[") + "'", 2, "not valid JSON");
  expect_error(
      "generate --messages '" + written("d.json", R"([{"role": "tool", "content": ""}])") + "'", 1,
      "the stories know the roles");
  expect_error("generate --messages /nonexistent", 1, "/nonexistent");
  expect_error("generate --chat --template-value x --prompt y", 2, "use NAME=VALUE");
}

TEST_F(ChatCommand, TalksOverAPipeAndComputesNothingTwice) {
  const std::string saved = file("said.json");
  const std::string options =
      "--device cpu --cpu-dtype f32 --threads 1 --tree-size 4 --temperature 0 "
      "--max-new-tokens 12 --stop '~' ";
  const Result r =
      talk("chat " + options, "/stats\nWho are you?\n\nAnd why?\n/stats\n/save " + saved +
                                  "\n/reset\n//slash\n/nosuch\n/exit\nnever\n");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("no answer yet"), std::string::npos);
  EXPECT_NE(r.err.find("'/nosuch' is no command"), std::string::npos);
  EXPECT_EQ(r.err.find("computed again"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("of 512 tokens"), std::string::npos) << r.err;
  const Json list = Json::parse(slurp(saved));
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0]["content"], "Who are you?");
  EXPECT_EQ(list[3]["role"], "assistant");
  const std::string first = list[1]["content"], second = list[3]["content"];
  EXPECT_EQ(r.out.rfind(first + "\n" + second + "\n", 0), 0u) << r.out;

  // The second answer is the one that the whole conversation, computed at once, leads to.
  Json shorter = list;
  shorter.erase(3);
  EXPECT_EQ(generated("--messages '" + written("three.json", shorter.dump()) + "'")["text"],
            second);
}

TEST_F(ChatCommand, TokensHaveBiasAndEnds) {
  const std::string options = "chat --device cpu --temperature 0 --tree-size 4 --max-new-tokens 6 ";
  const auto said = [&](const std::string& more) {
    const Result r = talk(options + more, "Who are you?\n/exit\n");
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  };
  const std::string usual = said("");
  const std::string same = said("--logit-bias 300=100 ");
  EXPECT_NE(same, usual);
  // One token alone: a stop token ends the text, but not before it may.
  EXPECT_LT(said("--logit-bias 300=100 --stop-tokens 300 ").size(), same.size());
  EXPECT_NE(said("--logit-bias 300=100 --stop-tokens 300 --min-new-tokens 3 "),
            said("--logit-bias 300=100 --stop-tokens 300 "));
  EXPECT_NE(said("--logit-bias 300=3 --frequency-penalty 2 "),
            said("--logit-bias 300=3 --frequency-penalty=-2 "));
}

// Each answer is held to the constraint from its own beginning.
TEST_F(ChatCommand, AnswersAreHeldToAConstraint) {
  for (const char* draft : {"", "--draft none "}) {
    const Result r = talk(cat("chat --device cpu --temperature 1 --seed 5 ", draft,
                              "--choice yes --choice 'no, never'"),
                          "Who are you?\nAnd why?\n/retry\n/exit\n");
    ASSERT_EQ(r.code, 0) << r.err;
    std::istringstream lines(r.out);
    int answers = 0;
    for (std::string line; std::getline(lines, line); ++answers) {
      EXPECT_TRUE(line == "yes" || line == "no, never") << r.out;
    }
    EXPECT_EQ(answers, 3) << r.out;
    EXPECT_EQ(r.err.find("plain decoding"), std::string::npos) << r.err;
  }
}

TEST_F(ChatCommand, SaysWhenATemplateRewritesWhatWasSaid) {
  const auto target =
      target_with("chat_template.jinja",
                  "{% for m in messages %}{{ loop.revindex }}{{ m.content }}\n{% endfor %}");
  const std::string options = "chat --target '" + target.string() +
                              "' --device cpu --threads 1 --policy none --max-new-tokens 4";
  const Result r = talk(options, "one\ntwo\n/stats\n");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("tokens were computed again"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find(" cached)"), std::string::npos) << r.err;

  // One that drops what an answer began with, as those do that drop reasoning: the message before
  // that stays computed.
  written("target/chat_template.jinja",
          "{% for m in messages %}{{ m.role }}: {{ m.content[3:] if m.role == 'assistant' else "
          "m.content }}\n{% endfor %}assistant: ");
  const Result dropped =
      talk(options + " --temperature 0", "one two three four five\nsix\n/stats\n");
  ASSERT_EQ(dropped.code, 0) << dropped.err;
  EXPECT_NE(dropped.err.find("4 tokens were computed again"), std::string::npos) << dropped.err;
  EXPECT_NE(dropped.err.find(" cached)"), std::string::npos) << dropped.err;
}

// A template that shows the last message only never fills the context, however much was said.
TEST_F(ChatCommand, ConversationsGrowNoLongerThanTheContextsBytes) {
  const auto target = target_with("chat_template.jinja", "{{ messages[-1].content[:9] }}");
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += std::string(2000, 'x') + "\n";
  const Result r = talk("chat --target '" + target.string() +
                            "' --device cpu --threads 1 --policy none --max-new-tokens 2",
                        lines + "/reset\nOnce\n");
  EXPECT_EQ(r.code, 1);
  // Three of them and their answers fit into 8192 bytes; what follows /reset is answered.
  int refused = 0;
  std::istringstream told(r.err);
  for (std::string line; std::getline(told, line);) {
    if (line.find("conversation: ") == line.npos) continue;
    ++refused;
    EXPECT_NE(line.find("bytes are too many for the 512 tokens"), line.npos) << line;
    EXPECT_TRUE(line.ends_with(", or make room with /undo or /reset")) << line;
  }
  EXPECT_EQ(refused, 5) << r.err;
}

TEST_F(ChatCommand, TurnsAreTakenBackAndAnsweredAgain) {
  const std::string options =
      "chat --device cpu --cpu-dtype f32 --threads 1 --tree-size 4 --acceptance coupled "
      "--temperature 1 --seed 2 --max-new-tokens 12 --stop '~' ";
  const auto kept = [](const std::string& statistics) {
    const auto at = statistics.find(" cached)");
    return at == statistics.npos ? -1 : std::stoi(statistics.substr(statistics.rfind('(', at) + 1));
  };
  const auto prompt = [](const std::string& statistics) {
    return std::stoi(statistics.substr(statistics.find("new after ") + 10));
  };
  const Result first = talk(options, "Who are you?\n/stats\n");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(kept(first.err), -1);

  // All of the prompt is there, but for its last token and the one whose KV comes with the next.
  const std::string list = file("again.json");
  const Result again = talk(options, "Who are you?\n/retry\n/stats\n/save " + list + "\n");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(kept(again.err), prompt(first.err) - 2) << again.err;
  EXPECT_EQ(prompt(again.err), prompt(first.err));
  EXPECT_EQ(again.err.find("computed again"), std::string::npos) << again.err;
  const Json said = Json::parse(slurp(list));
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(first.out.rfind(std::string(said[1]["content"]), 0), std::string::npos)
      << "another answer";

  const std::string other = file("other.json");
  const Result undone =
      talk(options, "Who are you?\nAnd why was that?\n/undo\nWhere is he?\n/stats\n/save " + other +
                        "\n/undo\n/undo\n/undo\n/retry\n");
  ASSERT_EQ(undone.code, 0) << undone.err;
  EXPECT_NE(undone.err.find("coppice: taken back: 'And why was that?'"), std::string::npos);
  EXPECT_NE(
      undone.err.find("coppice: taken back: 'Where is he?'\ncoppice: taken back: 'Who are "
                      "you?'\ncoppice: nothing was said yet\ncoppice: nothing was said yet\n"),
      std::string::npos)
      << undone.err;
  EXPECT_EQ(undone.err.find("computed again"), std::string::npos) << undone.err;
  EXPECT_GE(kept(undone.err), prompt(first.err)) << undone.err;
  const Json rest = Json::parse(slurp(other));
  ASSERT_EQ(rest.size(), 4u);
  EXPECT_EQ(rest[2]["content"], "Where is he?");

  // What is there after /undo leads to the text that the whole leads to.
  const std::string greedy =
      "chat --device cpu --cpu-dtype f32 --threads 1 --tree-size 4 --temperature 0 "
      "--max-new-tokens 12 --stop '~' ";
  const Result straight = talk(greedy, "Who are you?\nWhere is he?\n/save " + list + "\n");
  const Result around =
      talk(greedy, "Who are you?\nAnd why?\n/undo\nWhere is he?\n/retry\n/save " + other + "\n");
  EXPECT_EQ(straight.code, 0);
  EXPECT_EQ(around.code, 0);
  EXPECT_EQ(slurp(other), slurp(list));
}

TEST_F(ChatCommand, ShowsAndOverridesRecommendedSampling) {
  const std::string options = "chat --device cpu --threads 1 --tree-size 4 --seed 1 ";
  EXPECT_NE(run(options).err.find("temperature 0.7"), std::string::npos);
  const Result r = talk(options + "--temperature 0.25 --max-new-tokens 3", "Hello\n/stats\n");
  EXPECT_EQ(r.err.find("temperature 0.7"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("temperature 0.25"), std::string::npos) << r.err;
}

TEST_F(ChatCommand, CtrlCStopsTheAnswerAndNotTheProgram) {
  const std::string options =
      "chat --device cpu --threads 1 --policy none --temperature 0 --stop '~~~' ";
  const std::string answer =
      talk(options + "--max-new-tokens 8", "Who are you?\n").out.substr(0, 12);
  ASSERT_EQ(answer.size(), 12u);
  int status = -1;
  // The shell in between would die of the Ctrl-C that the program survives.
  const std::string seen = talk_on_terminal("exec env " + command(options + "--max-new-tokens 480"),
                                            {{"> ", "Who are you?\r"},
                                             {answer, "\x03"},
                                             {"stopped", ""},
                                             {"> ", "wrong\x03/stats\r"},
                                             {"context ", "/exit\r"}},
                                            status);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << seen;
  EXPECT_NE(seen.find("stopped"), std::string::npos) << seen;
  EXPECT_NE(seen.find("ended by cancelled"), std::string::npos) << seen;
}

// What is typed while it answers is neither shown within the answer nor lost.
TEST_F(ChatCommand, KeysTypedWhileItAnswersWait) {
  const std::string options =
      "chat --device cpu --threads 1 --policy none --temperature 0 --stop '~~~' ";
  const std::string answer =
      talk(options + "--max-new-tokens 8", "Who are you?\n").out.substr(0, 12);
  ASSERT_EQ(answer.size(), 12u);
  int status = -1;
  const std::string seen = talk_on_terminal(
      "exec env " + command(options + "--max-new-tokens 300"),
      {{"> ", "Who are you?\r"}, {answer, "/undo\r"}, {"taken back", "/exit\r"}}, status);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << seen;
  const auto prompt = seen.find("> ", seen.find(answer));
  ASSERT_NE(prompt, seen.npos) << seen;
  const auto shown = seen.find("/undo", seen.find(answer));  // /help's list comes before
  ASSERT_NE(shown, seen.npos) << seen;
  EXPECT_GT(shown, prompt) << seen;
  EXPECT_NE(seen.find("taken back: 'Who are you?'"), seen.npos) << seen;
}

TEST_F(ChatCommand, ASignalLeavesTheTerminalAsItWas) {
  const std::string options =
      "chat --device cpu --threads 1 --policy none --temperature 0 --stop '~~~' ";
  const std::string answer =
      talk(options + "--max-new-tokens 8", "Who are you?\n").out.substr(0, 12);
  int status = -1;
  for (const char* keys : {"\x1c", "\x03"}) {  // Ctrl-\ ends it, Ctrl-C the answer
    const std::string seen = talk_on_terminal(
        "ulimit -c 0; trap : INT QUIT; env " + command(options + "--max-new-tokens 480") +
            "; stty -a",
        {{"> ", "Who are you?\r"}, {answer, keys}, {"stopped", ""}, {"> ", "\x04"}}, status);
    const auto modes = seen.find("icanon");
    ASSERT_NE(modes, seen.npos) << seen;
    EXPECT_NE(seen.find(" echo ", modes), seen.npos) << seen;
    EXPECT_EQ(seen.find("-echo ", modes), seen.npos) << seen;
  }
}

TEST_F(ChatCommand, CtrlDEndsOnATerminal) {
  int status = -1;
  const std::string seen = talk_on_terminal(command("chat --device cpu --threads 1 --policy none"),
                                            {{"> ", "\x04"}}, status);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << seen;
  EXPECT_NE(seen.find("/reset"), std::string::npos) << seen;
}

// What cannot matter is not told.
TEST_F(ChatCommand, TellsOfFiltersThatAreUsed) {
  const std::string command =
      "generate --device cpu --threads 1 --tree-size 4 --seed 1 --max-new-tokens 2 --chat "
      "--prompt x ";
  EXPECT_EQ(run(command + "--temperature 0").err, "coppice: generation_config.json: stop '\\n'\n");
  EXPECT_EQ(run(command + "--temperature 0.5").err,
            "coppice: generation_config.json: top-k 50, top-p 0.95, stop '\\n'\n");
  EXPECT_EQ(run(command + "--top-p 0.9 --stop x").err,
            "coppice: generation_config.json: temperature 0.7, top-k 50\n");
}

TEST_F(ChatCommand, NamesRecommendationsThatItDoesNotObey) {
  const auto target = target_with("generation_config.json",
                                  R"({"eos_token_id": 2, "suppress_tokens": [66], "max_length": 40,
              "no_repeat_ngram_size": 0, "typical_p": 0.9, "min_new_tokens": 5})");
  const std::string told =  // the fewest are at most the most
      "coppice: generation_config.json: min-new-tokens 2\n"
      "coppice: generation_config.json: not obeyed, since coppice does not know: max_length, "
      "suppress_tokens\n";
  const std::string options = "--target '" + target.string() +
                              "' --draft none --device cpu --threads 1 --max-new-tokens 2 ";
  EXPECT_EQ(run("generate --chat --prompt x " + options).err, told);
  // Raw text is continued by the options alone.
  EXPECT_EQ(run("generate --prompt x " + options).err, "");
  const std::string lines = written("lines.jsonl", "{\"prompt\": \"x\"}\n");
  EXPECT_NE(run("generate --chat --batch '" + lines + "' " + options).err.find(told),
            std::string::npos);
  EXPECT_NE(talk("chat " + options, "x\n").err.find(told), std::string::npos);
}

TEST_F(ChatCommand, HelpSaysWhereItsDefaultsComeFrom) {
  for (const char* command : {"generate", "chat"}) {
    EXPECT_NE(run(std::string(command) + " --help").out.find("generation_config.json"),
              std::string::npos)
        << command;
  }
}

}  // namespace
}  // namespace coppice::testing

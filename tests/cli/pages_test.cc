// What is made of the table of options beside --help: completion for shells, manual pages. And the
// links of the repository's own pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command_runs.h"

namespace coppice::testing {
namespace {

class Pages : public Cli {
 protected:
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  /// As `coppice --help` lists them; "study compare" is one.
  std::vector<std::string> commands() const {
    std::vector<std::string> names;
    for (const std::string& line : lines_of(run("--help").out)) {
      std::istringstream words(line);
      std::string program, name, second;
      words >> program >> name >> second;
      if (program != "coppice" || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != name.npos)
        continue;
      names.push_back(name == "study" && (second == "compare" || second == "merge")
                          ? name + " " + second
                          : name);
    }
    return names;
  }
  /// "--option" as --help of the command lists them.
  std::multiset<std::string> options_of(const std::string& command) const {
    std::multiset<std::string> options;
    for (const std::string& line : lines_of(run(command + " --help").out)) {
      if (line.rfind("  --", 0) != 0) continue;
      options.insert(line.substr(2, line.find_first_of(" ", 2) - 2));
    }
    return options;
  }
  bool has_program(const char* name) const {
    return std::system(cat("command -v ", name, " >/dev/null 2>&1").c_str()) == 0;
  }
  /// What bash offers for the last of the words.
  std::vector<std::string> bash(const std::vector<std::string>& words) const {
    std::string list;
    for (const std::string& word : words) list += cat(" '", word, "'");
    std::ofstream(folder("ask.bash"))
        << "source '" << folder("coppice.bash") << "'\nCOMP_WORDS=(coppice" << list
        << ")\nCOMP_CWORD=" << words.size() << "\n_coppice\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const std::string command = cat("cd '", folder("."), "' && bash '", folder("ask.bash"), "' >'",
                                    folder("asked"), "' 2>'", folder("complaint"), "'");
    EXPECT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(slurp(folder("complaint")), "");
    std::vector<std::string> lines = lines_of(slurp(folder("asked")));
    if (lines.size() == 1 && lines[0].empty()) lines.clear();
    return lines;
  }
  static std::multiset<std::string> set_of(const std::vector<std::string>& words) {
    return {words.begin(), words.end()};
  }
};

TEST_F(Pages, BashCompletesEveryOptionOfEveryCommand) {
  const Result script = run("completion bash");
  ASSERT_EQ(script.code, 0) << script.err;
  std::ofstream(folder("coppice.bash")) << script.out;
  const std::vector<std::string> all = commands();
  ASSERT_GE(all.size(), 14u);
  std::multiset<std::string> first = {"--help", "--version"};
  for (const std::string& command : all) {
    if (command.find(' ') == command.npos) first.insert(command);
    std::vector<std::string> words;
    std::istringstream in(command);
    for (std::string word; in >> word;) words.push_back(word);
    words.emplace_back("--");
    std::multiset<std::string> offered = set_of(bash(words)), listed = options_of(command);
    listed.insert("--help");
    EXPECT_EQ(offered, listed) << command;
  }
  EXPECT_EQ(set_of(bash({""})), first);
  EXPECT_EQ(bash({"gen"}), std::vector<std::string>{"generate"});
}

TEST_F(Pages, BashCompletesValues) {
  std::ofstream(folder("coppice.bash")) << run("completion bash").out;
  using Words = std::vector<std::string>;
  EXPECT_EQ(bash({"generate", "--device", ""}), (Words{"auto", "cpu", "cuda"}));
  EXPECT_EQ(bash({"generate", "--device", "=", "cu"}), (Words{"cuda"}));
  EXPECT_EQ(bash({"generate", "--kv-dtype", "="}), (Words{"auto", "f32", "bf16", "f16"}));
  EXPECT_EQ(bash({"generate", "--policy", "dyspec"}), (Words{"dyspec", "dyspec-threshold"}));
  EXPECT_EQ(bash({"tree", "--format", "d"}), (Words{"dot"}));
  EXPECT_EQ(bash({"generate", "--draft", "non"}), (Words{"none"}));
  EXPECT_EQ(bash({"generate", "--prompt", "--"}), Words{}) << "a text is anything";
  EXPECT_EQ(bash({"study", ""}), (Words{"compare", "merge"}));
  EXPECT_EQ(bash({"completion", ""}), (Words{"bash", "zsh"}));
  EXPECT_EQ(bash({"man", "gen"}), (Words{"generate"}));
  EXPECT_EQ(bash({"help", "gen"}), (Words{"generate"}));
  EXPECT_EQ(bash({"generate", "-m"}), (Words{"-m", "-md"}));
  std::filesystem::create_directory(folder("a model"));
  std::ofstream(folder("a file")) << "x";
  EXPECT_EQ(bash({"generate", "--prompt-file", "a "}).size(), 2u);
  EXPECT_EQ(bash({"generate", "-m", "a "}), (Words{"a model"}));
  std::ofstream(folder("a file.gguf")) << "x";
  std::vector<std::string> models = bash({"generate", "-m", "a "});
  std::sort(models.begin(), models.end());
  EXPECT_EQ(models, (Words{"a file.gguf", "a model"}));
  EXPECT_EQ(bash({"quantise", "--type", "q4_k"}), (Words{"q4_k_m"}));
  EXPECT_EQ(bash({"generate", "--model-draft", "non"}), (Words{"none"})) << "an alias";
  EXPECT_EQ(bash({"info", "a m"}), (Words{"a model"}));
  EXPECT_EQ(bash({"info", "a f"}), (Words{"a file.gguf"}));
}

TEST_F(Pages, ZshCompletesEveryOptionOfEveryCommand) {
  const Result script = run("completion zsh");
  ASSERT_EQ(script.code, 0) << script.err;
  EXPECT_EQ(script.out.rfind("#compdef coppice\n", 0), 0u);
  const std::vector<std::string> lines = lines_of(script.out);
  for (const std::string& command : commands()) {
    std::multiset<std::string> offered;
    bool mine = false;
    for (const std::string& line : lines) {
      if (line.rfind("    ", 0) == 0 && line[4] != ' ') {
        mine = line == "    " + command + ")" || line == "    '" + command + "')";
      }
      if (mine && line.rfind("        '*--", 0) == 0) {
        offered.insert(line.substr(10, line.find_first_of("=[", 10) - 10));
      }
    }
    EXPECT_EQ(offered, options_of(command)) << command;
  }
}

TEST_F(Pages, ZshOffersCommandsOfTwoWords) {
  const std::string script = run("completion zsh").out;
  EXPECT_NE(script.find("        '1:command:(compare merge)'"), std::string::npos);
  EXPECT_NE(script.find(":MODEL:_files -g \"*.gguf\"'"), std::string::npos);
  EXPECT_NE(script.find("    help) _describe command commands ;;"), std::string::npos);
}

TEST_F(Pages, ZshReadsItsScript) {
  if (!has_program("zsh")) GTEST_SKIP() << "there is no zsh";
  std::ofstream(folder("_coppice")) << run("completion zsh").out;
  EXPECT_EQ(std::system(cat("zsh -n '", folder("_coppice"), "'").c_str()), 0);
}

TEST_F(Pages, ManualPagesListEveryOptionOnce) {
  std::filesystem::create_directory(folder("man1"));
  const Result all = run("man --out '" + folder("man1") + "'");
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(slurp(folder("man1/coppice.1")), run("man").out);
  const std::string overview = run("man").out;
  for (const std::string& command : commands()) {
    EXPECT_NE(overview.find("\n.TP\n\\fBcoppice " + command + "\\fR"), std::string::npos);
    const std::string page = run("man " + command).out;
    std::string name = command;
    std::replace(name.begin(), name.end(), ' ', '-');
    EXPECT_EQ(slurp(folder(("man1/coppice-" + name + ".1").c_str())), page) << command;
    std::multiset<std::string> listed;
    const std::vector<std::string> lines = lines_of(page);
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (lines[i - 1] != ".TP") continue;
      std::string plain;
      for (const char c : lines[i]) plain += c == '\\' ? std::string() : std::string(1, c);
      const auto at = plain.rfind("--");  // behind aliases
      listed.insert(
          plain.substr(at, plain.find_first_not_of("abcdefghijklmnopqrstuvwxyz-", at) - at));
    }
    // "\fR" ends a name.
    std::multiset<std::string> expected;
    for (const std::string& option : options_of(command)) expected.insert(option + "f");
    expected.insert("--helpf");
    EXPECT_EQ(listed, expected) << command;
  }
}

TEST_F(Pages, ManualPagesParse) {
  std::filesystem::create_directory(folder("man1"));
  ASSERT_EQ(run("man --out '" + folder("man1") + "'").code, 0);
  const char* check = nullptr;
  if (has_program("mandoc")) {
    check = "! mandoc -T lint -W warning ";
  } else if (has_program("man")) {
    check = "LC_ALL=C.UTF-8 MANROFFSEQ= MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z ";
  } else if (has_program("groff")) {
    check = "groff -man -ww -z -Tutf8 ";
  }
  if (check == nullptr) GTEST_SKIP() << "nothing here reads manual pages";
  for (const auto& page : std::filesystem::directory_iterator(folder("man1"))) {
    // The version stands in the date's place, which mandoc alone asks for.
    const std::string said =
        *check == '!' ? " 2>&1 | grep -v 'missing date' >'" : " >/dev/null 2>'";
    const std::string command =
        cat(check, "'", page.path().string(), "'", said, folder("warnings"), "'");
    EXPECT_EQ(std::system(command.c_str()), 0) << page.path();
    EXPECT_EQ(slurp(folder("warnings")), "") << page.path();
  }
}

TEST_F(Pages, RefuseWhatTheyDoNotKnow) {
  expect_error("completion", 2, "no shell is named; use bash or zsh");
  expect_error("completion fish", 2, "completion: 'fish' is unknown; use bash or zsh");
  expect_error("completion zhs", 2, "completion: 'zhs' is unknown; did you mean zsh?");
  expect_error("man generat", 2, "did you mean 'generate'?");
  expect_error("man generate --out x", 2, "--out writes all pages");
  expect_error("man --out '" + folder("nowhere") + "'", 1, "nowhere");
}

/// A page without its fenced blocks and code, in which brackets are no links.
std::string prose_of(const std::filesystem::path& page) {
  std::istringstream in(slurp(page));
  std::string prose;
  bool fenced = false;
  for (std::string line; std::getline(in, line);) {
    const bool fence =
        line.find("```") != line.npos && line.find_first_not_of(' ') == line.find('`');
    if (fence) fenced = !fenced;
    if (!fence && !fenced) prose += line + "\n";
  }
  return std::regex_replace(prose, std::regex("`[^`\n]*`"), "code");
}

/// The anchors that a page's headings have where Markdown is shown.
std::set<std::string> anchors_of(const std::filesystem::path& page) {
  std::set<std::string> anchors;
  std::istringstream in(slurp(page));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] != '#') continue;
    const std::string heading =
        std::regex_replace(line.substr(std::min(line.size(), line.find_first_not_of("# "))),
                           std::regex("\\[([^\\]]*)\\]\\([^)]*\\)"), "$1");
    std::string anchor;
    for (const char c : heading) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == ' ') anchor += '-';
      if (std::isalnum(byte) || c == '-' || c == '_' || byte >= 0x80)
        anchor += static_cast<char>(std::tolower(byte));
    }
    anchors.insert(anchor);
  }
  return anchors;
}

/// What `page` links to and is not there.
std::vector<std::string> broken_links(const std::filesystem::path& page) {
  std::vector<std::string> broken;
  const std::string prose = prose_of(page);
  const std::regex link(
      "\\]\\(([^)\\s]+)(\\s+\"[^\"]*\")?\\)|^\\[[^\\]]+\\]:\\s+(\\S+)|"
      "(?:href|src)=\"([^\"]+)\"",
      std::regex::ECMAScript | std::regex::multiline);
  for (std::sregex_iterator one(prose.begin(), prose.end(), link), end; one != end; ++one) {
    const std::smatch& match = *one;
    const std::string target = match[1].matched   ? match[1].str()
                               : match[3].matched ? match[3].str()
                                                  : match[4].str();
    if (std::regex_search(target, std::regex("^[a-z]+:"))) continue;
    const std::size_t hash = std::min(target.find('#'), target.size());
    const auto path =
        hash == 0 ? page : page.parent_path() / std::filesystem::path(target.substr(0, hash));
    const bool anchored = hash < target.size() && path.extension() == ".md";
    if (!std::filesystem::exists(path) ||
        (anchored && !anchors_of(path).contains(target.substr(hash + 1)))) {
      broken.push_back(cat(page.string(), ": ", target));
    }
  }
  return broken;
}

TEST(RepositoryPages, LinkToWhatIsThere) {
  const std::filesystem::path root = stories().parent_path().parent_path();
  std::vector<std::filesystem::path> pages = {root / "README.md"};
  for (const char* room :
       {"bench", "drafting", "kernels", "models", "scripts", "src", "tests", "verify"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / room)) {
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
    }
  }
  EXPECT_GE(pages.size(), 20u);
  for (const auto& page : pages) {
    EXPECT_EQ(broken_links(page), std::vector<std::string>{}) << page;
  }
}

TEST_F(Pages, BrokenLinksAreFound) {
  std::ofstream(folder("other.md")) << "# A `code` heading\n## Second, [linked](other.md)\n";
  std::ofstream(folder("page.md"))
      << "[a](other.md) [b](gone.h) [c](other.md#second-linked) [d](other.md#none) `[e](f.h)`\n"
         "![f](gone.svg \"title\") [g](https://example.org/x) [h](other.md#a-code-heading)\n"
         "```\n[&](gone.cc);\n```\n[i](#here)\n# Here\n[j]: lost/\n";
  const std::string page = folder("page.md");
  EXPECT_EQ(broken_links(page),
            (std::vector<std::string>{page + ": gone.h", page + ": other.md#none",
                                      page + ": gone.svg", page + ": lost/"}));
}

}  // namespace
}  // namespace coppice::testing

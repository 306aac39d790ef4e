// What remains on a terminal: the whole text, and nothing of progress lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/screen.h"
#include "engine/pair.h"

namespace coppice::testing {
namespace {

std::string command(const std::string& tail) {
  return "COPPICE_MODELS='" + stories().parent_path().string() +
         "' COPPICE_PROGRESS_AFTER=0 TERM=xterm '" + COPPICE_BINARY + "' " + tail;
}

std::string output_of(const std::string& line) {
  std::string text;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

TEST(Screen, WrapsErasesAndReturns) {
  Screen screen(5);
  screen.write("abcde");
  EXPECT_EQ(screen.rows(), std::vector<std::string>({"abcde"}));
  screen.write("fg\rx\033[K\r\n\033[31mre\xc3\xa9\033[0m");
  EXPECT_EQ(screen.rows(), std::vector<std::string>({"abcde", "x", "re\xc3\xa9"}));
}

class Terminal : public ::testing::TestWithParam<unsigned short> {};

// Costs are measured before the first token, and 40 tokens end within a row.
TEST_P(Terminal, KeepsTheWholeTextAndNoProgress) {
  const unsigned short columns = GetParam();
  const std::string options =
      "generate --prompt 'Once upon a time' --device cpu --cpu-dtype f32 --threads 1 "
      "--max-new-tokens 40 --no-cost-cache";
  const std::string text =
      nlohmann::json::parse(output_of(command(options + " --format json")))["text"];
  ASSERT_GT(text.size(), 100u);

  int status = -1;
  const std::string written = run_on_terminal(command(options), columns, status);
  ASSERT_EQ(status, 0) << written;
  EXPECT_NE(written.find(std::string("loading target").substr(0, columns - 1U)), std::string::npos);
  EXPECT_NE(written.find(std::string("measuring costs").substr(0, columns - 1U)),
            std::string::npos);

  Screen wanted(columns);
  for (const char c : text) wanted.write(c == '\n' ? "\r\n" : std::string_view(&c, 1));
  Screen seen(columns);
  seen.write(written);
  const auto rows = seen.rows(), text_rows = wanted.rows();
  ASSERT_GE(rows.size(), text_rows.size());
  for (std::size_t i = 0; i < text_rows.size(); ++i) EXPECT_EQ(rows[i], text_rows[i]) << written;
  for (const std::string& row : rows) {
    EXPECT_EQ(row.find("loading "), std::string::npos) << row;
    EXPECT_EQ(row.find("measuring"), std::string::npos) << row;
  }
}

// In 12 columns every progress line would wrap.
INSTANTIATE_TEST_SUITE_P(Columns, Terminal, ::testing::Values(100, 12));

// It tells nothing of itself before its end, so that the usual second would hide it.
TEST(TerminalWait, ShowsThatCostsAreMeasured) {
  int status = -1;
  const auto written = [&](const std::string& before) {
    return run_on_terminal("unset COPPICE_PROGRESS_AFTER; export COPPICE_MODELS='" +
                               stories().parent_path().string() + "'; " + before + " '" +
                               COPPICE_BINARY +
                               "' generate --prompt 'It was' --device cpu --max-new-tokens 20 "
                               "--no-cost-cache >/dev/null",
                           100, status);
  };
  const std::string usual = written("");
  EXPECT_EQ(status, 0);
  EXPECT_NE(usual.find("measuring costs of this pair, once, for some seconds"), usual.npos);
  Screen seen(100);
  seen.write(usual);
  for (const std::string& row : seen.rows()) EXPECT_EQ(row.find("measuring"), row.npos) << row;
  const std::string late = written("COPPICE_PROGRESS_AFTER=1000");
  EXPECT_EQ(late.find("measuring"), late.npos) << late;
}

TEST(TerminalObject, StandsAlone) {
  int status = -1;
  const std::string written = run_on_terminal(
      command("generate --prompt 'It was' --device cpu --max-new-tokens 20 --format json"), 100,
      status);
  EXPECT_NE(written.find("generating: "), std::string::npos);
  Screen seen(100);
  seen.write(written);
  EXPECT_EQ(seen.rows()[0].rfind("{\"text\"", 0), 0U) << written;
  for (const std::string& row : seen.rows()) {
    EXPECT_EQ(row.find("generating: "), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace coppice::testing

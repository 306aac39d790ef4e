// The command as a shell runs it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/utf8.h"
#include "engine/pair.h"

namespace coppice::testing {

struct Result {
  int code = -1;
  std::string out, err;
};

inline std::string slurp(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

class Cli : public ::testing::Test {
 protected:
  // `tail` is shell text after the binary's name, `before` in front, such as a limit.
  Result run(const std::string& tail, const std::string& before = "") const {
    const std::string out = folder("stdout"), err = folder("stderr");
    const std::string command = before + "COPPICE_MODELS='" + stories().parent_path().string() +
                                "' '" + std::string(COPPICE_BINARY) + "' </dev/null " + tail +
                                " >'" + out + "' 2>'" + err + "'";
    const int status = std::system(command.c_str());
    Result result;
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = slurp(out);
    result.err = slurp(err);
    return result;
  }

  void expect_error(const std::string& tail, int code, const std::string& says) const {
    const Result r = run(tail);
    EXPECT_EQ(r.code, code) << tail << "\n" << r.err;
    EXPECT_EQ(r.out, "") << tail;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << tail << "\n" << r.err;
    EXPECT_EQ(r.err.rfind("coppice: ", 0), 0u) << r.err;
    EXPECT_NE(r.err.find(says), std::string::npos) << tail << "\n" << r.err;
    EXPECT_TRUE(is_valid_utf8(r.err));
  }

  std::string folder(const char* name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
};

}  // namespace coppice::testing

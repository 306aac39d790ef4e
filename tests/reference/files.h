// What tests of files share: damage, and the one line that must answer it.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "reference/tiny_model.h"

namespace coppice::testing {

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// The message of the Error that `call` throws, "" where it throws none.
template <typename Call>
std::string error_of(Call call, ErrorKind kind = ErrorKind::failure) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    const std::string what = error.what();
    EXPECT_EQ(std::count(what.begin(), what.end(), '\n'), 0) << what;
    return what;
  }
  return "";
}

/// While it lives, no file may grow beyond `bytes`: writing more fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::uintmax_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{static_cast<rlim_t>(bytes), before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace coppice::testing

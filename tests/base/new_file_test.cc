// A large file has its name once it is whole, and not before.
#include "base/new_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "reference/files.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

class NewFiles : public ::testing::Test {
 protected:
  static void write(NewFile& file, std::uint64_t offset, const std::string& text) {
    file.write_at(offset, std::as_bytes(std::span(text)));
  }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }
  const TemporaryFolder folder_;
  const fs::path path_ = folder_.path() / "file";
};

TEST_F(NewFiles, HaveTheirNameOnceTheyAreWhole) {
  {
    NewFile file(path_, 8);
    write(file, 6, "gh");
    write(file, 0, "abcd");  // in any order
    EXPECT_FALSE(fs::exists(path_));
    file.finish(Existing::refuse);
  }
  EXPECT_EQ(bytes_of(path_), std::string("abcd\0\0gh", 8));
  EXPECT_EQ(entries(), 1);
}

TEST_F(NewFiles, LeaveNothingIfTheyAreGivenUp) {
  { const NewFile file(path_, 8); }
  EXPECT_EQ(entries(), 0);
  write_file(path_, "old");
  {
    NewFile file(path_, 4);
    write(file, 0, "new");
  }
  EXPECT_EQ(bytes_of(path_), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(NewFiles, LeaveNothingIfTheirProcessIsKilled) {
  const FileHandle nameless(::open(folder_.path().c_str(), O_WRONLY | O_TMPFILE, 0600));
  if (nameless.get() < 0) GTEST_SKIP() << "this file system has no nameless files";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    NewFile file(path_, 8);
    write(file, 0, "new");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(entries(), 0);
}

TEST_F(NewFiles, ReplaceOnlyWhatTheyMay) {
  write_file(path_, "old");
  fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  {
    NewFile file(path_, 3);
    write(file, 0, "new");
    const std::string refusal = error_of([&] { file.finish(Existing::refuse); });
    EXPECT_NE(refusal.find("file: File exists"), refusal.npos) << refusal;
    EXPECT_EQ(bytes_of(path_), "old");
    file.finish(Existing::replace);
  }
  EXPECT_EQ(bytes_of(path_), "new");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(entries(), 1);

  // A link stays: what it leads to is replaced.
  fs::create_symlink("file", folder_.path() / "link");
  {
    NewFile file(folder_.path() / "link", 1);
    write(file, 0, "x");
    file.finish(Existing::replace);
  }
  EXPECT_TRUE(fs::is_symlink(folder_.path() / "link"));
  EXPECT_EQ(bytes_of(path_), "x");
}

TEST_F(NewFiles, AreRefusedBeforehand) {
  const auto refusal = [&](const fs::path& path, Existing existing = Existing::refuse) {
    return error_of([&] { require_new_file(path, existing, "choose"); });
  };
  EXPECT_EQ(refusal(path_), "");
  write_file(path_, "old");
  EXPECT_NE(refusal(path_).find("file: is there; choose"), std::string::npos);
  EXPECT_EQ(refusal(path_, Existing::replace), "");
  EXPECT_NE(refusal(folder_.path(), Existing::replace).find("Is a directory"), std::string::npos);
  EXPECT_NE(refusal(folder_.path() / "none/file").find("none/file: No such file or directory"),
            std::string::npos);
  fs::create_symlink("nothing", folder_.path() / "lost");
  EXPECT_NE(refusal(folder_.path() / "lost").find("is there"), std::string::npos);
}

TEST_F(NewFiles, FindADiskThatIsTooSmallAtOnce) {
  const FileSizeLimit full(1 << 12);
  const std::string refusal = error_of([&] { NewFile(path_, 1 << 13); });
  EXPECT_NE(refusal.find("file: File too large; free some space, or write elsewhere"), refusal.npos)
      << refusal;
  EXPECT_EQ(entries(), 0);
}

}  // namespace
}  // namespace coppice::testing

#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/appended_file.h"
#include "base/disk.h"
#include "base/error.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  fs::path file(const char* name) const { return folder_.path() / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  static unsigned mode_of(const fs::path& path) {
    struct stat about = {};
    EXPECT_EQ(::lstat(path.c_str(), &about), 0);
    return about.st_mode & 07777;
  }

  const TemporaryFolder folder_;
};

TEST_F(Files, RoomOnADiskIsThatOfTheNearestFolder) {
  const auto near = [](std::int64_t a, std::int64_t b) { return std::abs(a - b) < (1 << 30); };
  const auto space = static_cast<std::int64_t>(fs::space(folder_.path()).available);
  EXPECT_TRUE(near(free_of_disk(folder_.path()), space));
  EXPECT_TRUE(near(free_of_disk(file("not") / "there" / "yet"), space));
  EXPECT_EQ(free_of_disk("/proc/not/there"), 0);  // whose file system holds nothing
}

TEST_F(Files, KeepPermissionsAndLeaveNothingBeside) {
  const mode_t before = ::umask(027);
  coppice::write_file(file("a"), "one");
  ::umask(before);
  EXPECT_EQ(mode_of(file("a")), 0640u);
  fs::permissions(file("a"), fs::perms::owner_read | fs::perms::owner_write);
  coppice::write_file(file("a"), "two");
  EXPECT_EQ(mode_of(file("a")), 0600u);
  EXPECT_EQ(bytes_of(file("a")), "two");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(Files, FollowSymbolicLinks) {
  fs::create_directory(file("below"));
  coppice::write_file(file("below/end"), "old");
  fs::create_symlink("below/end", file("near"));
  fs::create_symlink(file("near"), file("far"));
  coppice::write_file(file("far"), "new");
  EXPECT_TRUE(fs::is_symlink(file("far")));
  EXPECT_TRUE(fs::is_symlink(file("near")));
  EXPECT_FALSE(fs::is_symlink(file("below/end")));
  EXPECT_EQ(bytes_of(file("below/end")), "new");

  fs::create_symlink("below/free", file("dangling"));
  coppice::write_file(file("dangling"), "made");
  EXPECT_TRUE(fs::is_symlink(file("dangling")));
  EXPECT_EQ(bytes_of(file("below/free")), "made");

  fs::create_symlink("circle", file("circle"));
  EXPECT_NE(error_of([&] { coppice::write_file(file("circle"), "x"); }), "");
  EXPECT_TRUE(fs::is_symlink(file("circle")));
}

TEST_F(Files, WriteIntoPipes) {
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  const FileHandle reader = open_file(file("pipe"), O_RDWR);
  fs::create_symlink("pipe", file("link"));
  coppice::write_file(file("pipe"), "one ");
  coppice::write_file(file("link"), "two");
  std::array<char, 16> got{};
  EXPECT_EQ(::read(reader.get(), got.data(), got.size()), 7);
  EXPECT_STREQ(got.data(), "one two");
  EXPECT_EQ(fs::status(file("pipe")).type(), fs::file_type::fifo);
  EXPECT_EQ(names().size(), 2u);
}

TEST_F(Files, WriteIntoDevices) {
  int ours = -1, theirs = -1;
  std::array<char, 256> name{};
  ASSERT_EQ(::openpty(&ours, &theirs, name.data(), nullptr, nullptr), 0);
  const FileHandle first(ours), second(theirs);
  coppice::write_file(name.data(), "row");
  std::array<char, 16> got{};
  EXPECT_EQ(::read(ours, got.data(), got.size()), 3);
  EXPECT_STREQ(got.data(), "row");
  EXPECT_EQ(fs::status(name.data()).type(), fs::file_type::character);
}

// "--csv /dev/stdout > file": at the place that the output has come to.
TEST_F(Files, WriteIntoOpenDescriptors) {
  const FileHandle out = open_file(file("out"), O_WRONLY | O_CREAT);
  ASSERT_TRUE(write_all(out.get(), "before "));
  coppice::write_file(cat("/dev/fd/", out.get()), "between ");
  ASSERT_TRUE(write_all(out.get(), "after"));
  EXPECT_EQ(bytes_of(file("out")), "before between after");
}

// Who shares a pipe or terminal with another program shares its flags, too.
TEST_F(Files, WaitForRoomInNonBlockingPipes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  const FileHandle reader(ends[0]);
  FileHandle writer(ends[1]);
  const std::string text(1 << 20, 'x');  // more than a pipe holds
  bool whole = false;
  std::jthread writing([&] {
    const FileHandle mine = std::move(writer);
    whole = write_all(mine.get(), text);
  });
  std::string got;
  std::array<char, 1 << 16> part{};
  for (;;) {
    pollfd more = {reader.get(), POLLIN, 0};
    ::poll(&more, 1, -1);
    const ssize_t n = ::read(reader.get(), part.data(), part.size());
    if (n == 0) break;
    if (n > 0) got.append(part.data(), static_cast<std::size_t>(n));
  }
  writing.join();
  EXPECT_TRUE(whole);
  EXPECT_EQ(got.size(), text.size());
}

TEST_F(Files, NeverReplaceSocketsOrFolders) {
  const FileHandle socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = file("socket").string();
  ASSERT_LT(name.size(), sizeof address.sun_path);
  name.copy(address.sun_path, name.size());
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(error_of([&] { coppice::write_file(file("socket"), "x"); }), "");
  EXPECT_EQ(fs::status(file("socket")).type(), fs::file_type::socket);

  fs::create_directory(file("folder"));
  EXPECT_NE(error_of([&] { coppice::write_file(file("folder"), "x"); }), "");
  EXPECT_TRUE(fs::is_directory(file("folder")));
  EXPECT_NE(error_of([&] { coppice::write_file(file("nowhere/a"), "x"); }), "");
}

// Names that the program makes up: what somebody else put there is neither followed nor waited for.
TEST_F(Files, OwnOnesTakeNoOtherKindsPlace) {
  coppice::write_own_file(file("a"), "one");
  coppice::write_own_file(file("a"), "two");
  EXPECT_EQ(bytes_of(file("a")), "two");
  coppice::write_file(file("theirs"), "letter");
  fs::create_symlink("theirs", file("link"));
  fs::create_symlink("free", file("dangling"));
  fs::create_directory(file("folder"));
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  for (const char* name : {"link", "dangling", "folder", "pipe"}) {
    try {
      coppice::write_own_file(file(name), "mine");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("; move it away"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(bytes_of(file("theirs")), "letter");
  EXPECT_EQ(names().size(), 6u) << "nothing is left beside, nor made where a link leads";
}

TEST_F(Files, AFullDiskLeavesTheOldOne) {
  coppice::write_file(file("a"), "old");
  {
    const FileSizeLimit full(1000);
    const std::string message =
        error_of([&] { coppice::write_file(file("a"), std::string(2000, 'x'), "buy a disk"); });
    EXPECT_NE(message.find("buy a disk"), std::string::npos) << message;
  }
  EXPECT_EQ(bytes_of(file("a")), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(Files, LinesAreAddedOnlyToWhatWasWritten) {
  const fs::path path = file("lines");
  const auto refusal_after = [&](void (*touch)(const fs::path&), void (*use)(AppendedFile&)) {
    fs::remove(path);
    AppendedFile lines(path, open_locked(path), 0);
    lines.append("one\n");
    lines.sync();
    touch(path);
    return error_of([&] { use(lines); });
  };
  constexpr auto append = +[](AppendedFile& lines) { lines.append("two\n"); };
  constexpr auto sync = +[](AppendedFile& lines) { lines.sync(); };
  for (const auto use : {append, sync}) {
    EXPECT_EQ(refusal_after([](const fs::path&) {}, use), "");
    for (const auto touch : {+[](const fs::path& p) { fs::remove(p); },
                             +[](const fs::path& p) { fs::resize_file(p, 0); },
                             +[](const fs::path& p) { fs::rename(p, p.string() + ".moved"); },
                             +[](const fs::path& p) { coppice::write_file(p, "one\n"); }}) {
      EXPECT_EQ(refusal_after(touch, use),
                path.string() +
                    ": another program changed, moved or removed it meanwhile; restore "
                    "or remove it and start again");
    }
  }
}

TEST_F(Files, WritersAtOnceLeaveOneWholeText) {
  constexpr int writers = 8, times = 20;
  std::vector<pid_t> children;
  for (int w = 0; w < writers; ++w) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int t = 0; t < times; ++t) {
          coppice::write_file(file("a"), std::string(10'000, static_cast<char>('a' + w)));
        }
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const std::string text = bytes_of(file("a"));
  EXPECT_EQ(text, std::string(10'000, text.empty() ? '?' : text[0]));
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
}

TEST_F(Files, ReadOnlyWhatIsARegularFile) {
  coppice::write_file(file("a"), "text");
  EXPECT_EQ(read_file(file("a"), "notes", 4), "text");
  const auto refused = [&](const char* name, std::uintmax_t most) {
    return error_of([&] { read_file(file(name), "notes", most, "make it"); });
  };
  EXPECT_NE(refused("a", 3).find("4 bytes are more than the 3"), std::string::npos);
  EXPECT_NE(refused("none", 9).find("no such file; make it"), std::string::npos);
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_NE(refused("pipe", 9).find("not a regular file; name a file"), std::string::npos);
  fs::create_directory(file("folder"));
  EXPECT_NE(refused("folder", 9).find("is a folder; name a file"), std::string::npos);
}

}  // namespace
}  // namespace coppice::testing

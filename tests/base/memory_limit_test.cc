#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/files.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

TEST(MemoryLimit, IsTheSmallestThatApplies) {
  const TemporaryFolder root;
  const auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories((root.path() / path).parent_path());
    write_file(root.path() / path, text);
  };
  EXPECT_EQ(available_memory(root.path()), INT64_MAX);
  write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 1000 * 1024);
  // ulimit -v, of which a page is in use.
  write("proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax address space  600000  700000  bytes\n");
  write("proc/self/statm", "1 2 3\n");
  EXPECT_EQ(available_memory(root.path()), 600000 - sysconf(_SC_PAGESIZE));
  write("proc/self/limits", "Max address space         unlimited            unlimited     bytes\n");
  // Control groups, version 2: this process's own and those above it.
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "5\n");
  EXPECT_EQ(available_memory(root.path()), 1000 * 1024);
  write("sys/fs/cgroup/a/memory.max", "90000\n");
  write("sys/fs/cgroup/a/memory.current", "50000\n");
  EXPECT_EQ(available_memory(root.path()), 40000);
  write("sys/fs/cgroup/a/memory.stat", "anon 3\ninactive_file 10000\n");
  EXPECT_EQ(available_memory(root.path()), 50000);
  write("sys/fs/cgroup/memory.max", "60\n");
  write("sys/fs/cgroup/memory.current", "70\n");
  EXPECT_EQ(available_memory(root.path()), 0);
  // A limit that slows down instead of killing counts as well.
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.high", "30070\n");
  EXPECT_EQ(available_memory(root.path()), 30000);
  write("sys/fs/cgroup/memory.high", "max\n");
  EXPECT_EQ(available_memory(root.path()), 50000);
  // A path above what a container sees, or that leads nowhere in it: its own group is at the top.
  write("sys/fs/cgroup/memory.max", "1070\n");
  for (const char* path : {"0::/../elsewhere\n", "0::/not/here\n", "0::/\n"}) {
    write("proc/self/cgroup", path);
    EXPECT_EQ(available_memory(root.path()), 1000) << path;
  }
  // Version 1, seen from within its group and from above, and beside version 2.
  fs::remove_all(root.path() / "sys");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n");
  write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1000\n");
  EXPECT_EQ(available_memory(root.path()), 4000);
  write("proc/self/cgroup", "12:cpu,cpuacct:/c\n11:hugetlb,memory:/a/b\n0::/x\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "900\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "500\n");
  EXPECT_EQ(available_memory(root.path()), 400);
  write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "300\n");
  EXPECT_EQ(available_memory(root.path()), 400);
  write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "350\n");
  EXPECT_EQ(available_memory(root.path()), 50);
  write("sys/fs/cgroup/unified/x/memory.max", "20\n");
  write("sys/fs/cgroup/unified/x/memory.current", "0\n");
  EXPECT_EQ(available_memory(root.path()), 20);
}

}  // namespace
}  // namespace coppice::testing

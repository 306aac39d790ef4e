// Lines of progress, by a clock of the test's own.
#include "cli/progress_log.h"

#include <gtest/gtest.h>

#include <sstream>

namespace coppice::cli {
namespace {

TEST(ProgressLog, ALineEverySoOften) {
  std::ostringstream out;
  double now = 100.0;
  ProgressLog log(out, 30.0, [&] { return now; });
  const auto said = [&](double seconds, const char* what, double fraction) {
    now += seconds;
    out.str("");
    log.show(what, fraction);
    return out.str();
  };
  EXPECT_EQ(said(1, "loading", 0.5), "");
  EXPECT_EQ(said(9, "studying", 0.0), "");  // at 110 s
  EXPECT_EQ(said(19, "studying", 0.1), "");
  EXPECT_EQ(said(1, "studying", 0.125), "coppice: studying: 12%, about 140 s left\n");
  EXPECT_EQ(said(29, "studying", 0.2), "");
  EXPECT_EQ(said(1, "studying", 0.25), "coppice: studying: 25%, about 150 s left\n");
  EXPECT_EQ(said(3600, "studying", 0.5), "coppice: studying: 50%, about 61 min left\n");
  EXPECT_EQ(said(40, "summing up", 0.0), "coppice: summing up: 0%\n");
  EXPECT_EQ(said(30, "waiting for 1 of 2 ranks", 0.0), "coppice: waiting for 1 of 2 ranks\n");
  EXPECT_EQ(said(30, "waiting for 1 of 2 ranks", 0.1),
            "coppice: waiting for 1 of 2 ranks, about 5 min left\n");
  // What has just begun tells nothing of its time.
  EXPECT_EQ(said(40, "writing", 0.01), "coppice: writing: 1%\n");
}

TEST(ProgressLog, NoneIfNotWanted) {
  std::ostringstream out;
  double now = 0.0;
  ProgressLog log(out, 0.0, [&] { return now; });
  now = 1e6;
  log.show("studying", 0.5);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace coppice::cli

#include "study/study_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "reference/tiny_model.h"
#include "study/fingerprint.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

template <typename Action>
std::string usage_error(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(StudyFolder, TwoRunsNeverShareIt) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "deep" / "study";
  std::optional<StudyFolder> first(path);
  const std::string error = usage_error([&] { StudyFolder second(path); });
  EXPECT_NE(error.find("another run is working in it"), std::string::npos) << error;
  first.reset();
  EXPECT_NO_THROW(StudyFolder again(path)) << "after the first has ended";
}

TEST(StudyFolder, OtherSettingsAreRefusedByName) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "study";
  const Json settings = {{"limit", 4}, {"temperatures", {0.0, 0.1}}, {"name", "x"}};
  {
    StudyFolder folder(path);
    folder.settle(settings);
    EXPECT_FALSE(folder.continued());
  }
  {
    StudyFolder folder(path);
    Json other = settings;
    other["limit"] = 5;
    EXPECT_NO_THROW(folder.settle(other)) << "no result is bound to the settings";
    EXPECT_FALSE(folder.continued());
    EXPECT_NO_THROW(folder.settle(settings));
    std::ofstream(folder.file("results.jsonl")) << "{}\n";
  }
  {
    StudyFolder folder(path);
    EXPECT_NO_THROW(folder.settle(settings));
    EXPECT_TRUE(folder.continued());
  }
  StudyFolder folder(path);
  Json other = settings;
  other["temperatures"] = {0.0, 0.2};
  std::string error = usage_error([&] { folder.settle(other); });
  EXPECT_NE(error.find("temperatures: it was [0.0,0.1], now [0.0,0.2]"), std::string::npos)
      << error;
  other = settings;
  other.erase("name");
  error = usage_error([&] { folder.settle(other); });
  EXPECT_NE(error.find("name: it was 'x', now not set"), std::string::npos) << error;
  EXPECT_NO_THROW(folder.settle(settings)) << "a refusal changes nothing";
  std::ofstream(folder.file("study.json"), std::ios::trunc) << "{";
  EXPECT_THROW(folder.settle(settings), Error);
}

TEST(StudyFolder, OtherFoldersAreLeftAlone) {
  const coppice::testing::TemporaryFolder scratch;
  std::ofstream(scratch.path() / "letter.txt") << "dear";
  const std::string error = usage_error([&] { StudyFolder folder(scratch.path()); });
  EXPECT_NE(error.find("letter.txt"), std::string::npos) << error;
  EXPECT_FALSE(fs::exists(scratch.path() / "lock"));
  EXPECT_THROW(StudyFolder folder(scratch.path() / "letter.txt"), Error);
  EXPECT_THROW(StudyFolder folder("/proc/nowhere/study"), Error);
}

// What a run leaves that is killed before its settings are written.
TEST(StudyFolder, ABarelyBegunOneGoesOn) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "study";
  fs::create_directory(path);
  std::ofstream(path / "lock").close();
  std::ofstream(path / ".study.json.4711-0.coppice-part") << "{\"lim";
  StudyFolder folder(path);
  folder.settle({{"limit", 4}});
  EXPECT_FALSE(folder.continued());
}

TEST(Fingerprint, SeesChangesOfAModel) {
  const coppice::testing::TemporaryFolder a, b;
  coppice::testing::TinyModel model;
  write_tiny_model(a.path(), model);
  write_tiny_model(b.path(), model);
  const std::string before = fingerprint_of_folder(a.path());
  EXPECT_EQ(before.size(), 16u);
  EXPECT_EQ(before, fingerprint_of_folder(b.path())) << "not of the place";
  model.seed = 2;
  write_tiny_model(b.path(), model);
  EXPECT_NE(before, fingerprint_of_folder(b.path()));
  EXPECT_THROW(fingerprint_of_folder(a.path() / "nowhere"), Error);
}

}  // namespace
}  // namespace coppice::study

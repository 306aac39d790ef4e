#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/checked_lines.h"
#include "base/error.h"
#include "base/fingerprint.h"
#include "reference/files.h"
#include "reference/tiny_model.h"
#include "study/grid/study_file.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

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

/// As study_file_of() makes it, without its models.
StudyFile some_file() {
  StudyFile file;
  file.fixed = {{"max_new_tokens", 64}, {"device", "cpu"}, {"top_p", 1.0}};
  file.inputs = {{"target", {"/models/a", "01", true}},
                 {"draft", {"none", "none", true}},
                 {"tree 'tree.json'", {"tree.json", "aa"}}};
  Cell cell;
  cell.policy = Policy::dyspec;
  cell.plain_values = true;
  cell.tree_size = 16;
  cell.temperature = 0.6;
  cell.widths = {3, 2};
  Cell chain = cell;
  chain.policy = Policy::chain;
  chain.plain_values = false;
  file.plan = {{cell, chain, plain_of(cell)}, {{"a", "x"}}, 3};
  file.runs.push_back({"2026-01-02T03:04:05Z 7", "2026-01-02T03:04:05Z", "1", "0123abc", "Release",
                       "coppice study", "cpu", "f32", "f32", "", "a CPU", "AVX2", 2});
  return file;
}

void add_results(const StudyFolder& folder) {
  std::ofstream(folder.file(results_name)) << with_checksum("{\"a\":1}") << "\n";
}

TEST(StudyFolder, ItsFileComesBackAsItWas) {
  const StudyFile file = some_file();
  const std::string text = to_text(file);
  EXPECT_EQ(to_text(study_file_from(text, "study.json")), text);
  const StudyFile back = study_file_from(text, "study.json");
  for (std::size_t c = 0; c < file.plan.cells.size(); ++c) {
    EXPECT_EQ(back.plan.cells[c].key(), file.plan.cells[c].key());
  }
  EXPECT_EQ(back.runs, file.runs);
  const auto error = [](const std::string& damaged) {
    return testing::error_of([&] { study_file_from(damaged, "study.json"); });
  };
  EXPECT_NE(error("{\"format\": 4}").find("format 4"), std::string::npos);
  EXPECT_NE(error("{\"format\": 4}").find("another folder"), std::string::npos);
  EXPECT_NE(error("{\"format\": 8}").find("\"fixed\" is missing"), std::string::npos);
  EXPECT_NE(error("{"), "");
  const auto error_with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json damaged = nlohmann::json::parse(text);
    damaged[nlohmann::json::json_pointer(pointer)] = value;
    return error(damaged.dump());
  };
  constexpr const char* cannot_be = ", which it cannot be; restore the file";
  for (const nlohmann::json& value :
       {nlohmann::json(), nlohmann::json("x"), nlohmann::json::array({nullptr})}) {
    EXPECT_NE(error_with("/fixed", value).find(cannot_be), std::string::npos) << value;
    EXPECT_NE(error_with("/fixed/constraint", value).find(cannot_be), std::string::npos) << value;
  }
  EXPECT_NE(error_with("/fixed/constraint", {{"kind", 1}, {"texts", ""}}).find(cannot_be),
            std::string::npos);
  EXPECT_EQ(error_with("/plan/rounds", 2.5),
            "study.json: plan: \"rounds\" is 2.5, which it cannot "
            "be; restore the file, or study in another folder");
  EXPECT_NE(error_with("/plan/rounds", std::int64_t{1} << 32).find(cannot_be), std::string::npos);
}

TEST(StudyFolder, OtherSettingsAreRefusedByName) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "study";
  {
    StudyFolder folder(path);
    StudyFile file = some_file();
    folder.settle(file);
    EXPECT_FALSE(folder.continued());
  }
  {
    StudyFolder folder(path);
    StudyFile other = some_file();
    other.fixed["max_new_tokens"] = 5;
    EXPECT_NO_THROW(folder.settle(other)) << "no result is bound to the settings";
    EXPECT_FALSE(folder.continued());
    StudyFile file = some_file();
    folder.settle(file);
    add_results(folder);
  }
  StudyFolder folder(path);
  StudyFile same = some_file();
  EXPECT_NO_THROW(folder.settle(same));
  EXPECT_TRUE(folder.continued());
  const std::string before = testing::bytes_of(folder.file(study_name));
  StudyFile other = some_file();
  other.fixed["max_new_tokens"] = 128;
  other.fixed.erase("top_p");
  other.fixed["top_k"] = 4;
  const std::string error = usage_error([&] { folder.settle(other); });
  EXPECT_NE(error.find("(max_new_tokens: it was 64, now 128; top_k: it was not set, now 4; top_p: "
                       "it was 1.0, now not set)"),
            std::string::npos)
      << error;
  EXPECT_EQ(testing::bytes_of(folder.file(study_name)), before) << "a refusal changes nothing";
}

// What a message shortens must not hide the difference.
TEST(StudyFolder, OtherModelsAndTreesAreToldApart) {
  const std::string deep = "/models/" + std::string(300, 'x') + "/";
  StudyFile before = some_file(), now = some_file();
  before.inputs["target"].path = now.inputs["target"].path = deep + "a";
  EXPECT_TRUE(differences(before, now).empty());
  now.inputs["target"].path = "/moved";
  EXPECT_TRUE(differences(before, now).empty()) << "the same models elsewhere";
  now.inputs["target"] = {deep + "a", "02", true};
  now.inputs["draft"] = {"/d", "03", true};
  now.inputs["tree 'tree.json'"].fingerprint = "bb";
  now.inputs["tree 'more.json'"] = {"more.json", "cc"};
  std::vector<std::string> found;
  for (const Difference& one : differences(before, now)) found.push_back(words_of({one}));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], "draft: it was none, now '/d' (fingerprint 03)");
  EXPECT_NE(found[1].find("(fingerprint 01), now "), std::string::npos) << found[1];
  EXPECT_TRUE(found[1].ends_with("(fingerprint 02)")) << found[1];
  EXPECT_EQ(found[2],
            "tree 'tree.json': it was 'tree.json' (fingerprint aa), now 'tree.json' "
            "(fingerprint bb)");
}

TEST(StudyFolder, InputsAndRunsAreAddedTo) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "study";
  {
    StudyFolder folder(path);
    StudyFile file = some_file();
    folder.settle(file);
    add_results(folder);
  }
  StudyFile more = some_file();
  more.inputs = {{"tree 'more.json'", {"more.json", "cc"}}};
  more.runs.clear();
  more.plan.rounds = 1;
  StudyFolder folder(path);
  folder.settle(more);
  const StudyFile kept = study_file_from(testing::bytes_of(folder.file(study_name)), "study.json");
  EXPECT_EQ(kept.inputs.size(), 4u);
  EXPECT_EQ(kept.runs, some_file().runs);
  EXPECT_EQ(kept.plan.rounds, 1) << "what was asked for last";
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

TEST(StudyFolder, APlantedLockIsNotOpened) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "study", lock = path / "lock";
  fs::create_directory(path);
  const auto expect_refused = [&](const char* says) {
    try {
      StudyFolder folder(path);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
    fs::remove(lock);
  };
  fs::create_symlink(scratch.path() / "free", lock);
  expect_refused("lock: is a symbolic link; move it away");
  EXPECT_FALSE(fs::exists(scratch.path() / "free"));
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  expect_refused("lock: not a regular file; move it away");
}

// What a run leaves that is killed before its settings are written.
TEST(StudyFolder, ABarelyBegunOneGoesOn) {
  const coppice::testing::TemporaryFolder scratch;
  const fs::path path = scratch.path() / "study";
  fs::create_directory(path);
  std::ofstream(path / "lock").close();
  std::ofstream(path / ".study.json.4711-0.coppice-part") << "{\"lim";
  StudyFolder folder(path);
  StudyFile file = some_file();
  folder.settle(file);
  EXPECT_FALSE(folder.continued());
}

// Without results, settings may be mended; runs of the same ones stay known, for a trace may hold
// their texts already.
TEST(StudyFolder, RunsWithoutResultsAreKept) {
  const coppice::testing::TemporaryFolder scratch;
  StudyFolder folder(scratch.path() / "study");
  StudyFile file = some_file(), same = some_file(), other = some_file();
  folder.settle(file);
  same.runs.clear();
  folder.settle(same);
  EXPECT_EQ(same.runs, some_file().runs);
  other.runs.clear();
  other.fixed["max_new_tokens"] = 5;
  folder.settle(other);
  EXPECT_TRUE(other.runs.empty());
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
  write_file(a.path() / "one.gguf", "GGUF 1");
  write_file(b.path() / "other.gguf", "GGUF 1");
  const std::string file = fingerprint_of_folder(a.path() / "one.gguf");
  EXPECT_EQ(file, fingerprint_of_folder(b.path() / "other.gguf"));
  write_file(b.path() / "other.gguf", "GGUF 2");
  EXPECT_NE(file, fingerprint_of_folder(b.path() / "other.gguf"));
}

}  // namespace
}  // namespace coppice::study

// Node traces: what they say of real steps, and what becomes of them when they are damaged.
#include "study/grid/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

using study::Fate;
using study::TracedText;
using study::TraceWriter;

const std::vector<TokenId> prompt = {1, 17, 40, 3, 22, 1, 17, 40, 3, 22, 1, 17, 40};

class TraceFile : public ::testing::Test {
 protected:
  std::filesystem::path file(const char* name = "a.trace") const { return folder_.path() / name; }

  GenerateOptions options(Acceptance acceptance) const {
    GenerateOptions options;
    options.max_new_tokens = 20;
    options.speculation = Dyspec{9, true};
    options.lookup = Lookup::text;
    options.sampling.temperature = 0.9;
    options.seed = 5;
    options.ignore_eos = true;
    options.acceptance = acceptance;
    return options;
  }

  // Two texts, one settled and one sampled; `visit` sees every step.
  void write(const std::function<void(const StepView&)>& visit = {}) {
    Engine engine = Engine::load(pair_.options());
    TraceWriter writer(file());
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::coupled}) {
      TracedText text{name_of(acceptance), "h", "a run", {}};
      inside(engine).observer = [&](const StepView& view) {
        if (!view.is_step()) return;
        text.add(view);
        if (visit) visit(view);
      };
      engine.generate(prompt, options(acceptance));
      writer.append(text);
    }
  }

  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::istringstream text(bytes_of(file()));
    for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  TinyPair pair_;
  TemporaryFolder folder_;
};

// By definition, node by node.
Fate fate_of(const StepView& view, std::int32_t node) {
  const auto& path = view.verdict.path;
  const std::set<std::int32_t> accepted(path.begin(), path.end());
  const auto parent_of = [&](std::int32_t i) {
    return view.tree.parent[static_cast<std::size_t>(i)];
  };
  if (node == 0) return Fate::root;
  std::int32_t chosen = view.tree.nodes();
  for (std::int32_t s = 1; s < view.tree.nodes(); ++s) {
    if (parent_of(s) == parent_of(node) && accepted.contains(s)) chosen = s;
  }
  const bool reached = parent_of(node) == 0 || accepted.contains(parent_of(node));
  if (!reached || node > chosen) return Fate::not_reached;
  return node == chosen ? Fate::accepted : Fate::rejected;
}

TEST_F(TraceFile, SaysOfEveryNodeWhatTheStepShowed) {
  struct Seen {
    TokenId token;
    std::int32_t parent, depth, rank;
    float draft_prob, value, target_prob;
    Fate fate;
    Origin origin;
  };
  std::vector<Seen> seen;
  write([&](const StepView& view) {
    for (std::int32_t i = 0; i < view.tree.nodes(); ++i) {
      const auto n = static_cast<std::size_t>(i);
      const std::int32_t parent = view.tree.parent[n];
      const float target_prob =
          i == 0 ? 1.0f
                 : view.target.distribution(parent)[static_cast<std::size_t>(view.tree.token[n])];
      seen.push_back({view.tree.token[n], parent, view.tree.depth[n], view.tree.rank[n],
                      view.tree.draft_prob[n], static_cast<float>(view.tree.value[n]), target_prob,
                      fate_of(view, i), view.tree.origin[n]});
    }
  });
  const auto texts = lines();
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0]["cell"], "rejection");
  EXPECT_EQ(texts[1]["cell"], "coupled");
  EXPECT_EQ(texts[1]["prompt"], "h");
  std::size_t at = 0;
  std::set<Fate> fates;
  std::size_t looked_up = 0;
  for (const nlohmann::json& text : texts) {
    const nlohmann::json& nodes = text["nodes"];
    std::int32_t step = -1, node = 0;
    for (std::size_t i = 0; i < nodes["token"].size(); ++i, ++at, ++node) {
      ASSERT_LT(at, seen.size());
      const Seen& one = seen[at];
      if (one.fate == Fate::root) {
        ++step;
        node = 0;
      }
      EXPECT_EQ(nodes["step"][i], step);
      EXPECT_EQ(nodes["node"][i], node);
      EXPECT_EQ(nodes["token"][i], one.token);
      EXPECT_EQ(nodes["parent"][i], one.parent);
      EXPECT_EQ(nodes["depth"][i], one.depth);
      EXPECT_EQ(nodes["rank"][i], one.rank);
      EXPECT_EQ(nodes["draft_prob"][i].get<float>(), one.draft_prob) << "to the last bit";
      EXPECT_EQ(nodes["value"][i].get<float>(), one.value);
      EXPECT_EQ(nodes["target_prob"][i].get<float>(), one.target_prob);
      EXPECT_EQ(nodes["fate"][i].get<Fate>(), one.fate);
      EXPECT_EQ(nodes["origin"][i].get<Origin>(), one.origin);
      looked_up += one.origin == Origin::lookup ? 1 : 0;
      fates.insert(one.fate);
    }
  }
  EXPECT_EQ(at, seen.size());
  EXPECT_EQ(fates.size(), 4u);
  EXPECT_GT(looked_up, 0u);
  EXPECT_LT(looked_up, at);
}

TEST_F(TraceFile, GoesOnBehindItsLastWholeLine) {
  write();
  const std::string whole = bytes_of(file());
  write_file(file(), whole + "{\"cell\":\"torn");
  TraceWriter(file()).append({"more", "i", "a run", {}});
  EXPECT_EQ(bytes_of(file()).substr(0, whole.size()), whole);
  ASSERT_EQ(lines().size(), 3u);
  EXPECT_EQ(lines()[2]["cell"], "more");
  write_file(file(), whole.substr(0, 3));  // torn within the first line
  TraceWriter(file()).append({"more", "i", "a run", {}});
  EXPECT_EQ(lines().size(), 1u);
}

TEST_F(TraceFile, OtherFilesAndOtherWritersAreLeftAlone) {
  const auto open = [&] { TraceWriter writer(file()); };
  for (const char* other :
       {"dear\n", "{\"format\":\"coppice-trace\",\"format_version\":2}\n",
        "{\"trace\":3,\"cell\":\"a\",\"prompt\":\"b\",\"nodes\":{}}\n",
        "{\"trace\":4,\"cell\":\"a\"}\n", "{\"trace\":4,\"cell\":7,\"nodes\":{}}\n",
        "{\"cell\":\"a\",\"prompt\":\"a study's result\"}\n"}) {
    write_file(file(), other);
    EXPECT_NE(error_of(open, ErrorKind::usage).find("not there yet"), std::string::npos);
    EXPECT_EQ(bytes_of(file()), other);
  }
  std::filesystem::remove(file());
  {
    const TraceWriter holder(file());
    EXPECT_NE(error_of(open, ErrorKind::usage).find("another run is writing it"),
              std::string::npos);
  }
  EXPECT_EQ(error_of(open, ErrorKind::usage), "") << "after the first has ended";
  const auto folder = [&] { TraceWriter writer(folder_.path()); };
  EXPECT_NE(error_of(folder, ErrorKind::usage).find("not a regular file"), std::string::npos);
}

// Whoever opens it hears what is there, and may refuse before anything is changed.
TEST_F(TraceFile, NamesItsTexts) {
  study::TracedNames seen;
  const auto check = [&](const study::TracedNames& there) {
    seen = there;
    if (there.empty()) throw_usage("a new one");
  };
  EXPECT_EQ(error_of([&] { TraceWriter(file(), check); }, ErrorKind::usage), "a new one");
  EXPECT_FALSE(std::filesystem::exists(file()));
  write();
  write_file(file(), bytes_of(file()) + "{\"trace\":4,\"cell\":\"torn\",\"pro");
  TraceWriter(file(), check);
  EXPECT_EQ(seen, (study::TracedNames{{"rejection", "h", "a run"}, {"coupled", "h", "a run"}}));
}

TEST_F(TraceFile, FullDiskIsAnErrorAndKeepsWhatWasThere) {
  write();
  const std::string before = bytes_of(file());
  TraceWriter writer(file());
  TracedText text{"more", "i", "a run", {}};
  text.nodes.step.assign(1000, 0);
  {
    const FileSizeLimit limit(before.size() + 50);
    const std::string error = error_of([&] { writer.append(text); });
    EXPECT_NE(error.find("free some space"), std::string::npos) << error;
  }
  EXPECT_EQ(bytes_of(file()), before);
  writer.append(text);
  EXPECT_EQ(lines().size(), 3u);
}

}  // namespace
}  // namespace coppice::testing

// Node traces: what they say of real steps, and what becomes of them when they are damaged.
#include "study/grid/trace.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>

#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "study/grid/node_counts.h"

namespace coppice::testing {
namespace {

using study::Fate;
using study::Trace;
using study::TraceNode;
using study::TraceRun;
using study::TraceWriter;

const std::vector<TokenId> prompt = {1, 17, 40, 3, 22};
const std::vector<std::string> runs = {"rejection", "coupled", "more"};
const std::vector<std::string> prompts = {"a", "b", "c", "d", "e", "f", "g", "h"};
constexpr auto keep_all = [](const std::string&, const std::string&) { return true; };

std::vector<std::uint32_t> key_of(const TraceNode& n) { return {n.run, n.prompt, n.step, n.node}; }

class TraceFile : public ::testing::Test {
 protected:
  std::filesystem::path file(const char* name = "a.trace") const { return folder_.path() / name; }

  // Two generations, one settled and one sampled, with what their steps showed.
  void write() {
    Engine engine = Engine::load(pair_.options());
    TraceWriter writer(file(), runs, prompts, keep_all);
    for (std::uint32_t r = 0; r < 2; ++r) {
      TraceRun run(writer.run_of(runs[r]), writer.prompt_of("h"));
      std::uint32_t step = 0;
      inside(engine).observer = [&](const StepView& view) {
        if (!view.is_step()) return;
        run.add(view, study::token_probs(view, view.target_params));
        note(view, r, step++);
      };
      GenerateOptions options;
      options.max_new_tokens = 20;
      options.speculation = Dyspec{9};
      options.sampling.temperature = 0.9;
      options.seed = 5;
      options.ignore_eos = true;
      options.acceptance = r == 0 ? Acceptance::rejection : Acceptance::coupled;
      const Generation text = engine.generate(prompt, options);
      judged_good_ += text.statistics.accepted_length * static_cast<double>(text.statistics.steps);
      writer.append(run);
    }
  }

  // By definition, node by node.
  void note(const StepView& view, std::uint32_t run, std::uint32_t step) {
    const auto& path = view.verdict.path;
    const std::set<std::int32_t> accepted(path.begin(), path.end());
    for (std::int32_t i = 0; i < view.tree.nodes(); ++i) {
      const auto n = static_cast<std::size_t>(i);
      TraceNode node;
      node.run = run;
      node.prompt = 7;
      node.step = step;
      node.node = static_cast<std::uint16_t>(i);
      node.token = view.tree.token[n];
      node.parent = static_cast<std::int16_t>(view.tree.parent[n]);
      node.depth = static_cast<std::uint16_t>(view.tree.depth[n]);
      node.rank = static_cast<std::uint16_t>(view.tree.rank[n]);
      node.draft_prob = view.tree.draft_prob[n];
      node.value = static_cast<float>(view.tree.value[n]);
      if (i > 0) {
        const std::int32_t parent = view.tree.parent[n];
        node.target_prob =
            view.target.distribution(parent)[static_cast<std::size_t>(view.tree.token[n])];
        std::int32_t chosen = view.tree.nodes();
        for (std::int32_t s = 1; s < view.tree.nodes(); ++s) {
          if (view.tree.parent[static_cast<std::size_t>(s)] == parent && accepted.contains(s)) {
            chosen = s;
          }
        }
        const bool reached = parent == 0 || accepted.contains(parent);
        node.fate = !reached || i > chosen ? Fate::not_reached
                    : i == chosen          ? Fate::accepted
                                           : Fate::rejected;
      }
      expected_.push_back(node);
    }
  }

  TinyPair pair_;
  TemporaryFolder folder_;
  std::vector<TraceNode> expected_;
  double judged_good_ = 0.0;
};

TEST_F(TraceFile, SaysOfEveryNodeWhatTheStepShowed) {
  write();
  const Trace trace = study::read_trace(file());
  EXPECT_FALSE(trace.torn);
  EXPECT_EQ(trace.header["runs"], runs);
  EXPECT_EQ(trace.header["prompts"], prompts);
  ASSERT_EQ(trace.nodes.size(), expected_.size());
  std::set<Fate> fates;
  double good = 0.0;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const TraceNode &a = trace.nodes[i], &b = expected_[i];
    EXPECT_EQ(key_of(a), key_of(b));
    EXPECT_EQ(std::vector<std::int32_t>({a.token, a.parent, a.depth, a.rank}),
              std::vector<std::int32_t>({b.token, b.parent, b.depth, b.rank}));
    EXPECT_EQ(std::vector<float>({a.draft_prob, a.value, a.target_prob}),
              std::vector<float>({b.draft_prob, b.value, b.target_prob}));
    EXPECT_EQ(a.fate, b.fate) << i;
    fates.insert(a.fate);
    good += a.fate == Fate::root || a.fate == Fate::accepted ? 1.0 : 0.0;  // the root: its bonus
  }
  EXPECT_EQ(fates.size(), 4u);
  EXPECT_NEAR(good, judged_good_, 1e-6);
}

// As numpy reads it: by the header's names and types alone.
TEST_F(TraceFile, IsWhatItsHeaderSays) {
  write();
  const std::string bytes = bytes_of(file());
  const auto end = bytes.find('\n');
  const auto header = nlohmann::json::parse(bytes.substr(0, end));
  std::map<std::string, std::pair<std::size_t, std::string>> columns;
  std::size_t size = 0;
  for (const auto& column : header.at("dtype")) {
    const std::string type = column.at(1);
    columns[column.at(0)] = {size, type.substr(1, 1)};
    size += static_cast<std::size_t>(std::stoi(type.substr(2)));
  }
  EXPECT_EQ(size, study::trace_record_bytes);
  ASSERT_EQ((bytes.size() - end - 1) % size, 0u);
  ASSERT_EQ((bytes.size() - end - 1) / size, expected_.size());
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const char* record = bytes.data() + end + 1 + i * size;
    const auto number = [&](const char* name, auto type) {
      std::memcpy(&type, record + columns.at(name).first, sizeof type);
      return type;
    };
    EXPECT_EQ(number("token", std::int32_t{}), expected_[i].token);
    EXPECT_EQ(number("parent", std::int16_t{}), expected_[i].parent);
    EXPECT_EQ(number("rank", std::uint16_t{}), expected_[i].rank);
    EXPECT_EQ(number("target_prob", float{}), expected_[i].target_prob);
    EXPECT_EQ(number("fate", std::uint8_t{}), static_cast<std::uint8_t>(expected_[i].fate));
  }
}

TEST_F(TraceFile, CutAnywhereIsAPrefixOrOneError) {
  write();
  const std::string bytes = bytes_of(file());
  const std::size_t body = bytes.find('\n') + 1;
  for (std::size_t length = 0; length < bytes.size(); length += length < body + 200 ? 1 : 97) {
    write_file(file("cut"), bytes.substr(0, length));
    Trace trace;
    const std::string error = error_of([&] { trace = study::read_trace(file("cut")); });
    if (length < body) {
      EXPECT_NE(error.find("cut"), std::string::npos) << length;
      continue;
    }
    EXPECT_EQ(error, "");
    EXPECT_EQ(trace.nodes.size(), (length - body) / study::trace_record_bytes);
    EXPECT_EQ(trace.torn, (length - body) % study::trace_record_bytes != 0);
    for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
      ASSERT_EQ(key_of(trace.nodes[i]), key_of(expected_[i]));
    }
  }
}

TEST_F(TraceFile, WrongHeadersAreOneError) {
  const auto error = [&](const std::string& text) {
    write_file(file("wrong"), text);
    return error_of([&] { study::read_trace(file("wrong")); });
  };
  EXPECT_NE(error_of([&] { study::read_trace(file("missing")); }).find("no such file"),
            std::string::npos);
  EXPECT_NE(error("").find("it is no"), std::string::npos);
  EXPECT_NE(error("{\"format\": ").find("cut off"), std::string::npos);
  EXPECT_NE(error(std::string(100, '\0') + "\n"), "");
  EXPECT_NE(error("{}\n").find("it is no"), std::string::npos);
  EXPECT_NE(error("[1]\n"), "");
  EXPECT_NE(error("{\"format\": 3}\n").find("names no \"format\""), std::string::npos);
  EXPECT_NE(error(R"({"format": "coppice-trace", "format_version": 1})"
                  "\n")
                .find("format version 1"),
            std::string::npos);
  EXPECT_NE(error(R"({"format": "coppice-trace", "format_version": 2, "dtype": [["run", "<u4"]]})"
                  "\n")
                .find("columns"),
            std::string::npos);
}

TEST_F(TraceFile, IsContinuedWithWhatIsKept) {
  write();
  const std::size_t all = study::read_trace(file()).nodes.size();
  write_file(file(), bytes_of(file()) + "torn");
  { const TraceWriter writer(file(), runs, prompts, keep_all); }
  EXPECT_EQ(study::read_trace(file()).nodes.size(), all);
  EXPECT_FALSE(study::read_trace(file()).torn);
  std::size_t second = 0;
  for (const TraceNode& node : expected_) second += node.run == 1 ? 1 : 0;
  {
    const TraceWriter writer(file(), runs, prompts, [](const std::string& run, const std::string&) {
      return run == "coupled";
    });
  }
  const Trace kept = study::read_trace(file());
  EXPECT_EQ(kept.nodes.size(), second);
  for (const TraceNode& node : kept.nodes) EXPECT_EQ(node.run, 1u);
}

// A study that grew, or that asks for less: numbers stay what they were.
TEST_F(TraceFile, NamesAreAddedTo) {
  write();
  const std::size_t all = study::read_trace(file()).nodes.size();
  {
    const TraceWriter writer(file(), {"new", "coupled"}, {"z", "h"}, keep_all);
    EXPECT_EQ(writer.run_of("coupled"), 1u);
    EXPECT_EQ(writer.run_of("new"), 3u);
    EXPECT_EQ(writer.prompt_of("h"), 7u);
    EXPECT_EQ(writer.prompt_of("z"), 8u);
  }
  const Trace more = study::read_trace(file());
  EXPECT_EQ(more.header["runs"].size(), 4u);
  EXPECT_EQ(more.header["runs"][3], "new");
  ASSERT_EQ(more.nodes.size(), all);
  for (std::size_t i = 0; i < all; ++i) EXPECT_EQ(key_of(more.nodes[i]), key_of(expected_[i]));
}

TEST_F(TraceFile, OtherFilesAndOtherWritersAreLeftAlone) {
  const auto open = [&] { TraceWriter(file(), runs, prompts, keep_all); };
  write_file(file(), "dear\n");
  EXPECT_NE(error_of(open, ErrorKind::usage).find("not there yet"), std::string::npos);
  EXPECT_EQ(bytes_of(file()), "dear\n");
  std::filesystem::remove(file());
  write();
  const std::string before = bytes_of(file());
  {
    // Also after it has replaced the file it began with.
    const TraceWriter holder(file(), {"new"}, prompts, keep_all);
    const std::string held = bytes_of(file());
    EXPECT_NE(held, before);
    EXPECT_NE(error_of(open, ErrorKind::usage).find("another run is writing it"),
              std::string::npos);
    EXPECT_EQ(bytes_of(file()), held);
  }
  EXPECT_EQ(error_of(open, ErrorKind::usage), "") << "after the first has ended";
  const auto folder = [&] { TraceWriter(folder_.path(), runs, prompts, keep_all); };
  EXPECT_NE(error_of(folder, ErrorKind::usage).find("not a regular file"), std::string::npos);
}

TEST_F(TraceFile, FullDiskIsAnErrorAndKeepsWhatWasThere) {
  write();
  const std::string before = bytes_of(file());
  TraceWriter writer(file(), runs, prompts, keep_all);
  Engine engine = Engine::load(pair_.options());
  TraceRun run(2, 0);
  inside(engine).observer = [&](const StepView& view) {
    if (!view.is_step()) return;
    run.add(view, study::token_probs(view, view.target_params));
  };
  GenerateOptions options;
  options.max_new_tokens = 20;
  options.speculation = Dyspec{4};
  engine.generate(prompt, options);
  ASSERT_GT(run.bytes().size(), 100u);
  {
    const FileSizeLimit limit(before.size() + 50);
    const std::string error = error_of([&] { writer.append(run); });
    EXPECT_NE(error.find("free some space"), std::string::npos) << error;
  }
  EXPECT_EQ(bytes_of(file()), before);
  writer.append(run);
  EXPECT_EQ(bytes_of(file()), before + std::string(run.bytes()));
}

}  // namespace
}  // namespace coppice::testing

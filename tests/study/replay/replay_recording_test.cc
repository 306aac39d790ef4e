// Recordings as files.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "reference/files.h"
#include "study/files/members.h"
#include "study/replay/recorded_pair.h"
#include "study/replay/recording.h"

namespace coppice::testing {
namespace {

using study::RecordedPosition;
using study::RecordedText;
using study::Recording;

void expect_equal(const RecordedPosition& a, const RecordedPosition& b) {
  EXPECT_EQ(a.parent, b.parent);
  EXPECT_EQ(a.parent_entry, b.parent_entry);
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.first_entry, b.first_entry);
  EXPECT_EQ(a.target_token, b.target_token);
  EXPECT_EQ(a.draft_rest, b.draft_rest);
  EXPECT_EQ(a.target_rest, b.target_rest);
  EXPECT_EQ(a.overlap, b.overlap);
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(a.draft, b.draft);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.settled_rank, b.settled_rank);
  EXPECT_EQ(a.sampled_rank, b.sampled_rank);
}

// Positions of all texts in order.
std::vector<RecordedPosition> positions_of(const Recording& recording) {
  std::vector<RecordedPosition> all;
  for (const RecordedText& text : recording.texts) {
    all.insert(all.end(), text.positions.begin(), text.positions.end());
  }
  return all;
}

// Where the texts begin: behind the header's block.
std::size_t body_of(const std::string& bytes) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data() + study::recording_start.size(), sizeof header);
  return study::recording_start.size() + 3 * sizeof header + header;
}

// A text as version 3 had it: without the prompt's tokens, and nodes without origins.
std::string payload_of_version_3(const RecordedText& text) {
  std::string payload;
  const auto put = [&](const auto* values, std::size_t count) {
    payload.append(reinterpret_cast<const char*>(values), count * sizeof *values);
  };
  const auto number = [&](std::size_t value) {
    const auto narrow = static_cast<std::uint32_t>(value);
    put(&narrow, 1);
  };
  number(static_cast<std::size_t>(text.prompt));
  number(static_cast<std::size_t>(text.prompt_tokens));
  number(text.tokens.size());
  put(text.tokens.data(), text.tokens.size());
  number(text.positions.size());
  for (const RecordedPosition& p : text.positions) {
    number(p.parent.size());
    number(p.token.size());
    RecordedPosition::columns(
        p, p.parent.size(), p.token.size(), false,
        [&](const auto& column, std::size_t count) { put(column.data(), count); });
  }
  return payload;
}

class RecordingFile : public ::testing::Test {
 protected:
  RecordingFile() {
    if (on_cuda()) return;
    Engine engine = Engine::load(pair_.options());
    study::RecordOptions options;
    options.generate.sampling.temperature = 0.8;
    options.generate.seed = 9;
    options.generate.max_new_tokens = 2;
    options.nodes = 4;
    options.top_k = 2;
    recording_ = record_all(engine, options, tiny_prompts(2));
  }
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "recording reads the draft on the host";
  }
  std::filesystem::path file(const char* name = "a.rec") const { return folder_.path() / name; }
  void write() {
    study::RecordingWriter writer(file(), recording_.header);
    for (const RecordedText& text : recording_.texts) writer.append(text);
  }
  std::string error_with(const std::string& bytes) {
    write_file(file("wrong"), bytes);
    return error_of([&] { study::read_recording(file("wrong")); });
  }

  TinyPair pair_;
  TemporaryFolder folder_;
  Recording recording_;
};

TEST_F(RecordingFile, ComesBackAsItWent) {
  write();
  const Recording read = study::read_recording(file());
  EXPECT_FALSE(read.torn);
  EXPECT_EQ(nlohmann::json(read.header), nlohmann::json(recording_.header));
  EXPECT_EQ(read.header.seed, 9u);
  EXPECT_EQ(read.header.dtype + ", KV " + read.header.kv_dtype, "f32, KV f32");
  ASSERT_EQ(read.texts.size(), 2u);
  for (std::size_t t = 0; t < 2; ++t) {
    const RecordedText &a = read.texts[t], &b = recording_.texts[t];
    EXPECT_EQ(a.prompt, static_cast<std::int32_t>(t));
    EXPECT_EQ(a.prompt_tokens, 5);
    EXPECT_EQ(a.prompt_ids, tiny_prompts(2)[t]);
    EXPECT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.length(), 2);
    for (std::size_t p = 0; p < 2; ++p) {
      expect_equal(a.positions[p], b.positions[p]);
      EXPECT_EQ(a.positions[p].nodes(), 4);
      EXPECT_EQ(a.positions[p].target_token[0], a.tokens[p]);
    }
  }
}

TEST_F(RecordingFile, AnOlderOneIsAllTheModels) {
  write();
  const std::string bytes = bytes_of(file());
  std::string old(study::recording_start_3);
  old += bytes.substr(old.size(), body_of(bytes) - old.size());
  for (const RecordedText& text : recording_.texts) {
    old += study::recording_block(payload_of_version_3(text));
  }
  write_file(file("old"), old);
  const Recording read = study::read_recording(file("old"));
  ASSERT_EQ(read.texts.size(), 2u);
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_TRUE(read.texts[t].prompt_ids.empty());
    EXPECT_EQ(read.texts[t].prompt_tokens, 5);
    ASSERT_EQ(read.texts[t].length(), 2);
    for (std::size_t p = 0; p < 2; ++p) {
      RecordedPosition expected = recording_.texts[t].positions[p];
      expected.origin.assign(expected.origin.size(), Origin::model);
      expect_equal(read.texts[t].positions[p], expected);
    }
  }
}

// A text that repeats itself has nodes that only lookup proposes, and names them.
TEST_F(RecordingFile, KnowsWhatWasLookedUp) {
  Engine engine = Engine::load(pair_.options());
  study::RecordOptions options;
  options.generate.max_new_tokens = 2;
  options.nodes = 8;
  options.top_k = 2;
  std::vector<TokenId> prompt = {1};
  for (TokenId i = 0; i < 24; ++i) prompt.push_back(5 + i % 6);
  const Recording recording = through_file(record_all(engine, options, {prompt}));
  const RecordedPosition& first = recording.texts[0].positions[0];
  // What followed 10 is 5.
  const auto of_root = std::span(first.token).first(first.first_entry[1]);
  EXPECT_NE(std::ranges::find(of_root, TokenId{5}), of_root.end());
  std::int64_t looked_up = 0;
  for (std::int32_t node = 1; node < first.nodes(); ++node) {
    const std::size_t entry = first.first_entry[first.parent[node]] + first.parent_entry[node];
    const bool drawn =
        first.settled_rank[entry] != study::no_rank || first.sampled_rank[entry] != study::no_rank;
    EXPECT_EQ(first.origin[node] == Origin::lookup, !drawn) << node;
    looked_up += drawn ? 0 : 1;
  }
  EXPECT_GT(looked_up, 0);
  EXPECT_EQ(first.origin[0], Origin::model);
}

TEST_F(RecordingFile, RowsSumToOne) {
  for (const RecordedPosition& p : positions_of(recording_)) {
    for (std::int32_t node = 0; node < p.nodes(); ++node) {
      const auto n = static_cast<std::size_t>(node);
      double draft = static_cast<double>(p.draft_rest[n]);
      double target = static_cast<double>(p.target_rest[n]);
      for (std::size_t e = p.first_entry[n]; e < p.first_entry[n + 1]; ++e) {
        draft += static_cast<double>(p.draft[e]);
        target += static_cast<double>(p.target[e]);
      }
      EXPECT_NEAR(draft, 1.0, 1e-5);
      EXPECT_NEAR(target, 1.0, 1e-5);
      EXPECT_LE(p.overlap[n], std::min(p.draft_rest[n], p.target_rest[n]));
      EXPECT_GT(p.overlap[n], 0.0f);
    }
  }
}

TEST_F(RecordingFile, CutAnywhereIsAPrefixOrOneError) {
  write();
  const std::string bytes = bytes_of(file());
  const std::size_t body = body_of(bytes);
  const std::vector<RecordedPosition> all = positions_of(recording_);
  std::size_t most = 0;
  for (std::size_t length = 0; length < bytes.size(); length += length < body + 99 ? 1 : 29) {
    write_file(file("cut"), bytes.substr(0, length));
    Recording read;
    const std::string error = error_of([&] { read = study::read_recording(file("cut")); });
    if (length < body) {
      const char* says = length < 18                              ? "it is no"
                         : length < study::recording_start.size() ? "another version"
                                                                  : "cut off";
      EXPECT_NE(error.find(says), std::string::npos) << length << error;
      continue;
    }
    ASSERT_EQ(error, "") << length;
    const std::vector<RecordedPosition> prefix = positions_of(read);
    EXPECT_GE(prefix.size(), most);
    most = prefix.size();
    for (std::size_t i = 0; i < prefix.size(); ++i) EXPECT_EQ(prefix[i].draft, all[i].draft);
    // Whatever is left can be replayed.
    GenerateOptions options;
    options.speculation = Chain{2};
    study::Replayer replayer(read, options);
    for (const RecordedText& text : read.texts) steps_of(replayer, text, 0);
  }
  EXPECT_EQ(most, 2u) << "one of two texts, but for the last byte";
  write_file(file("cut"), bytes);
  EXPECT_EQ(positions_of(study::read_recording(file("cut"))).size(), all.size());
}

// Every byte of every block, its length too, is under a checksum.
TEST_F(RecordingFile, DamageIsFound) {
  write();
  const std::string bytes = bytes_of(file());
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1 + random() % 255));
    EXPECT_NE(error_with(damaged), "") << at;
  }
}

TEST_F(RecordingFile, OfSeveralDamagesTheFirstIsTold) {
  recording_.texts.assign(400, recording_.texts[0]);
  write();
  std::string bytes = bytes_of(file()), before;
  const std::size_t text = (bytes.size() - body_of(bytes)) / 400;
  // From the back, so that the error must come from ever earlier places.
  for (const std::size_t share : {15, 11, 6, 3}) {
    const std::size_t damaged = bytes.size() / 16 * share;
    bytes[damaged] ^= 0x10;
    const std::string error = error_with(bytes);
    EXPECT_NE(error.find("record anew"), std::string::npos) << error;
    EXPECT_NE(error, before);
    const std::size_t place = std::stoull(error.substr(error.find(" byte ") + 6));
    EXPECT_LE(place, damaged);
    EXPECT_GT(place + text, damaged);
    before = error;
  }
}

TEST_F(RecordingFile, WrongHeadersAreOneError) {
  write();
  const std::string bytes = bytes_of(file());
  const std::size_t end = body_of(bytes);
  const auto header = nlohmann::ordered_json(recording_.header);
  const auto with = [&](const char* key, const nlohmann::ordered_json& value) {
    auto changed = header;
    changed[key] = value;
    if (value.is_null()) changed.erase(key);
    std::string file(study::recording_start);
    return error_with(file + study::recording_block(changed.dump()) + bytes.substr(end));
  };
  EXPECT_EQ(with("seed", 4), "");
  for (const auto& [key, value] : header.items()) {
    EXPECT_NE(with(key.c_str(), nullptr).find(key + "\" is missing"), std::string::npos) << key;
    EXPECT_NE(with(key.c_str(), nlohmann::ordered_json::array({1})), "") << key;
  }
  EXPECT_NE(with("nodes", 0).find("\"nodes\""), std::string::npos);
  EXPECT_NE(with("nodes", 1000000).find("\"nodes\""), std::string::npos);
  EXPECT_NE(with("vocab_size", 10).find("outside the vocabulary"), std::string::npos);
  EXPECT_NE(error_with("").find("it is no"), std::string::npos);
  EXPECT_NE(error_with("text\n").find("it is no"), std::string::npos);
  EXPECT_NE(error_with(R"({"format":"coppice-recording","format_version":1)"
                       "\n")
                .find("another version"),
            std::string::npos);
  EXPECT_NE(error_with("coppice-recording 2\n").find("another version"), std::string::npos);
  EXPECT_NE(error_with(std::string(5000, '\xff') + "\n"), "");
}

// Wherever it was killed: what is whole stays, and the end is the same.
TEST_F(RecordingFile, ContinuedAfterAKillItIsTheWholeOne) {
  study::RecordingWriter(file("one"), recording_.header).append(recording_.texts[0]);
  const std::size_t one = bytes_of(file("one")).size();
  write();
  const std::string whole = bytes_of(file());
  for (std::size_t length = 0; length <= whole.size(); length += 37) {
    write_file(file("cut"), whole.substr(0, length));
    study::RecordingWriter writer(file("cut"), recording_.header);
    EXPECT_EQ(writer.texts() == 0, length < one) << length;
    while (writer.texts() < 2) writer.append(recording_.texts[writer.texts()]);
    ASSERT_EQ(bytes_of(file("cut")), whole) << length;
  }
}

TEST_F(RecordingFile, OtherFilesAreLeftAlone) {
  write();
  const std::string whole = bytes_of(file());
  study::RecordingHeader header = recording_.header;
  const auto open = [&] { study::RecordingWriter writer(file(), header); };
  EXPECT_EQ(error_of(open, ErrorKind::usage), "");
  header.seed = 10;
  EXPECT_NE(error_of(open, ErrorKind::usage).find("(seed: it was 9, now 10)"), std::string::npos);
  header = recording_.header;
  header.fingerprint = "other prompts";
  EXPECT_NE(error_of(open, ErrorKind::usage).find("another request (fingerprint"),
            std::string::npos);
  EXPECT_EQ(bytes_of(file()), whole);
  header = recording_.header;
  {
    const study::RecordingWriter holder(file(), header);
    EXPECT_NE(error_of(open, ErrorKind::usage).find("another run"), std::string::npos);
  }
  write_file(file(), "dear");
  EXPECT_NE(error_of(open, ErrorKind::usage).find("no recording of this version"),
            std::string::npos);
  EXPECT_EQ(bytes_of(file()), "dear");
}

TEST_F(RecordingFile, AFullDiskKeepsWhatFits) {
  study::RecordingWriter writer(file("b"), recording_.header);
  writer.append(recording_.texts[0]);
  const std::string before = bytes_of(file("b"));
  {
    const FileSizeLimit limit(before.size() + 100);
    const std::string error = error_of([&] { writer.append(recording_.texts[1]); });
    EXPECT_NE(error.find("free some space and start again"), std::string::npos) << error;
  }
  EXPECT_EQ(study::read_recording(file("b")).texts.size(), 1u);
  EXPECT_EQ(bytes_of(file("b")), before);
}

// A recording is one of these prompts and models.
TEST_F(RecordingFile, ItsHeaderKnowsThePrompts) {
  Engine engine = Engine::load(pair_.options());
  const study::Recorder recorder(engine, {});
  auto prompts = tiny_prompts(2);
  const std::string before = recorder.header(prompts).fingerprint;
  EXPECT_EQ(before, recorder.header(prompts).fingerprint);
  prompts[1].back() = 41;
  EXPECT_NE(before, recorder.header(prompts).fingerprint);
}

TEST_F(RecordingFile, TellsWhatIsMissing) {
  EXPECT_EQ(recording_.missing(), "");
  Recording part = recording_;
  part.texts.pop_back();
  EXPECT_EQ(part.missing(), "holds 1 of 2 texts");
  part.texts[0].positions.pop_back();
  EXPECT_EQ(part.missing(), "holds 1 of 2 texts, 1 of them ended early");
  part = recording_;
  part.texts[1].positions.clear();
  EXPECT_EQ(part.missing(), "holds 2 of 2 texts, 1 of them ended early");
}

TEST_F(RecordingFile, RefusesWhatItCannotRecord) {
  Engine engine = Engine::load(pair_.options());
  const auto refusal = [&](auto change) {
    study::RecordOptions options;
    change(options);
    return error_of([&] { study::Recorder(engine, options); }, ErrorKind::usage);
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_NE(refusal([](auto& o) { o.nodes = 0; }).find("nodes 0"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.nodes = 300; }).find("nodes 300"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.top_k = 0; }).find("entries 0"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.generate.max_new_tokens = 0; }).find("max-new-tokens 0"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.generate.sampling.temperature = -1.0; }).find("temperature"),
            std::string::npos);
  EngineOptions alone = pair_.options();
  alone.draft.clear();
  Engine plain = Engine::load(alone);
  EXPECT_NE(error_of([&] { study::Recorder(plain, {}); }, ErrorKind::usage).find("draft model"),
            std::string::npos);
}

}  // namespace
}  // namespace coppice::testing

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
  std::uint32_t header = 0;
  std::memcpy(&header, bytes.data() + study::recording_start.size() + 4, sizeof header);
  return study::recording_start.size() + 12 + header;
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
    EXPECT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.length(), 2);
    for (std::size_t p = 0; p < 2; ++p) {
      expect_equal(a.positions[p], b.positions[p]);
      EXPECT_EQ(a.positions[p].nodes(), 4);
      EXPECT_EQ(a.positions[p].target_token[0], a.tokens[p]);
    }
  }
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
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    write_file(file("cut"), bytes.substr(0, length));
    Recording read;
    const std::string error = error_of([&] { read = study::read_recording(file("cut")); });
    if (length < body) {
      const bool begins_as_one = length >= study::recording_start.size();
      EXPECT_NE(error.find(begins_as_one ? "cut off" : "it is no"), std::string::npos) << length;
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
    for (const RecordedText& text : read.texts) replayer.replay(text, 0);
  }
  EXPECT_EQ(most, all.size());
}

// Every byte of the first line and of every block is under a checksum, or its change cannot be
// missed.
TEST_F(RecordingFile, DamageIsFound) {
  write();
  const std::string bytes = bytes_of(file());
  const std::size_t body = body_of(bytes);
  const std::size_t all = positions_of(recording_).size();
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1 + random() % 255));
    write_file(file("damaged"), damaged);
    Recording read;
    const std::string error = error_of([&] { read = study::read_recording(file("damaged")); });
    EXPECT_TRUE(at >= body || !error.empty()) << at;
    if (!error.empty()) continue;
    // A longer block than there is: a torn end.
    EXPECT_TRUE(read.torn) << at;
    EXPECT_LT(positions_of(read).size(), all) << at;
  }
}

// A file that several threads read.
TEST_F(RecordingFile, OfSeveralDamagesTheFirstIsTold) {
  RecordedText& text = recording_.texts[0];
  recording_.texts.resize(1);
  const RecordedPosition position = text.positions[0];
  const TokenId token = text.tokens[0];
  text.positions.assign(20000, position);
  text.tokens.assign(20000, token);
  write();
  const std::string whole = bytes_of(file());
  ASSERT_GT(whole.size(), std::size_t{1} << 22);
  const std::size_t blocks = whole.size() - whole.size() % 2;
  EXPECT_EQ(study::read_recording(file()).texts[0].length(), 20000);
  std::string bytes = whole;
  std::string before;
  // From the back, so that the error must come from ever earlier places.
  for (const std::size_t share : {15, 11, 6, 3}) {
    bytes[blocks / 16 * share] ^= 0x10;
    const std::string error = error_with(bytes);
    EXPECT_NE(error.find("record anew"), std::string::npos) << error;
    EXPECT_NE(error, before);
    const std::size_t at = error.find(" byte ") + 6;
    const std::size_t place = std::stoull(error.substr(at));
    EXPECT_LE(place, blocks / 16 * share);
    EXPECT_GT(place + 4096, blocks / 16 * share);
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
    study::put_block(file, study::RecordingBlock::header, changed.dump());
    return error_with(file + bytes.substr(end));
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
                .find("an earlier version"),
            std::string::npos);
  EXPECT_NE(error_with(std::string(5000, '\xff') + "\n"), "");
}

TEST_F(RecordingFile, NeverWritesOverAFileAndKeepsWhatFits) {
  write();
  const auto again = [&] { study::RecordingWriter(file(), recording_.header); };
  EXPECT_NE(error_of(again, ErrorKind::usage).find("there already"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(file()));
  study::RecordingWriter writer(file("b"), recording_.header);
  writer.append(recording_.texts[0]);
  const std::string before = bytes_of(file("b"));
  {
    const FileSizeLimit limit(before.size() + 100);
    const std::string error = error_of([&] { writer.append(recording_.texts[1]); });
    EXPECT_NE(error.find("free some space"), std::string::npos) << error;
    EXPECT_NE(error.find("another --out"), std::string::npos) << error;
  }
  EXPECT_EQ(study::read_recording(file("b")).texts.size(), 1u);
  EXPECT_EQ(bytes_of(file("b")), before);
}

TEST_F(RecordingFile, WithoutATextLeavesNoFile) {
  {
    const FileSizeLimit limit(10);
    const auto open = [&] { study::RecordingWriter(file("b"), recording_.header); };
    EXPECT_NE(error_of(open).find("another --out"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(file("b")));
  {
    study::RecordingWriter writer(file("b"), recording_.header);
    const FileSizeLimit limit(bytes_of(file("b")).size() + 10);
    EXPECT_NE(error_of([&] { writer.append(recording_.texts[0]); }), "");
    EXPECT_TRUE(std::filesystem::exists(file("b")));
  }
  EXPECT_FALSE(std::filesystem::exists(file("b")));
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

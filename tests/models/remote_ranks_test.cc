// Models split over ranks that are linked by TCP, as ranks in other processes are. (Processes as a
// whole: tests/cli.)
#include "models/remote_ranks.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "base/error.h"
#include "models/graph_model.h"
#include "models/model_folder.h"
#include "reference/chain_runner.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"

namespace coppice::remote_ranks_test {

using std::chrono::milliseconds;
using testing::all_rows;
using testing::ChainRunner;
using testing::random_tokens;
using testing::TemporaryFolder;
using testing::TinyModel;

std::unique_ptr<Device> cpu() { return make_cpu_device({.threads = 1}); }

std::string error_line(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

/// Sums that go wrong, or not at all.
class Through : public Communicator {
 public:
  Through(Communicator& inner, std::function<void(float*)> before)
      : inner_(inner), before_(std::move(before)) {}
  void sum(float* values, std::int64_t count) override {
    before_(values);
    inner_.sum(values, count);
  }
  void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows,
                      float* staged, float* all) override {
    inner_.gather_columns(part, widths, rows, staged, all);
  }
  void abort(const std::string& why) noexcept override { inner_.abort(why); }

 private:
  Communicator& inner_;
  const std::function<void(float*)> before_;
};

const RankClaims claims = {"this build", "this model", "a key"};

class Remote : public ::testing::Test {
 protected:
  Remote() { write_tiny_model(folder_.path(), spec_); }

  std::future<std::string> join(const RankClaims& of = claims,
                                const std::function<void(float*)>& before = {},
                                milliseconds patience = milliseconds(20000)) {
    return std::async(std::launch::async, [this, of, before, patience] {
      return error_line([&] {
        JoinedRank rank({"127.0.0.1", listener_.port()}, of, patience);
        const auto device = cpu();
        std::unique_ptr<Communicator> wrapped;
        rank.serve({{}, 1}, *device, [&](const ModelOptions& options, Communicator& communicator) {
          Communicator* used = &communicator;
          if (before) used = (wrapped = std::make_unique<Through>(communicator, before)).get();
          return load_joined(ModelFiles(folder_.path(), options.rounding), *device, options, *used,
                             {});
        });
      });
    });
  }
  std::unique_ptr<RemoteRanks> await(int ranks, milliseconds patience = milliseconds(20000)) {
    return std::make_unique<RemoteRanks>(listener_, ranks, claims, RankDevice{}, patience);
  }
  /// Rank 0 of a model whose others have joined.
  std::unique_ptr<ChainRunner> lead(std::unique_ptr<RemoteRanks> others,
                                    const ModelOptions& options = {.max_rows = 24}) {
    std::vector<std::unique_ptr<Device>> here;
    here.push_back(cpu());
    auto runner =
        std::make_unique<ChainRunner>(std::move(here), [&](std::span<Device* const> devices) {
          return load_leading(ModelFiles(folder_.path(), options.rounding), *devices.front(),
                              std::move(others), options, {});
        });
    runner->model->prepare_pool(runner->pool.layout());
    return runner;
  }
  std::unique_ptr<ChainRunner> threads(int ranks, const ModelOptions& options = {.max_rows = 24}) {
    std::vector<std::unique_ptr<Device>> here;
    for (int rank = 0; rank < ranks; ++rank) here.push_back(cpu());
    return std::make_unique<ChainRunner>(folder_.path(), std::move(here), options);
  }

  const TinyModel spec_;
  const TemporaryFolder folder_;
  TcpListener listener_{{"127.0.0.1", 0}};
  const std::vector<TokenId> tokens_ = random_tokens(20, spec_.vocab_size, 5);
};

TEST_F(Remote, LogitsAreThoseOfThreadsBitForBit) {
  ModelOptions plain, rounded, streams;
  plain.max_rows = rounded.max_rows = streams.max_rows = 24;
  rounded.rounding = WeightFormat::q8_0;
  streams.resident_layers = 1;
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    for (const ModelOptions& options : {plain, rounded, streams}) {
      if (ranks == 4 && options.rounding) continue;  // a rank has no whole blocks
      std::vector<std::future<std::string>> joined;
      for (int rank = 1; rank < ranks; ++rank) joined.push_back(join());
      auto run = lead(await(ranks), options);
      auto wanted = threads(ranks, options);
      EXPECT_EQ(run->model->ranks(), ranks);
      EXPECT_EQ(run->model->weight_bytes_read(), wanted->model->weight_bytes_read());
      EXPECT_EQ(run->model->streamed_bytes(), wanted->model->streamed_bytes());
      for (ChainRunner* const of : {run.get(), wanted.get()}) {
        const std::vector<TokenId> begin(tokens_.begin(), tokens_.begin() + 12),
            end(tokens_.begin() + 12, tokens_.end());
        const auto before = of->chain(begin, {}, {});  // no logits
        EXPECT_TRUE(of->returned_null);
        of->chain(end, before, {0, 3, 7});
      }
      EXPECT_EQ(run->logits, wanted->logits);
      run.reset();
      for (auto& end : joined) EXPECT_EQ(end.get(), "none");
    }
  }
}

TEST_F(Remote, AWrongPartialSumChangesLogits) {
  auto joined = join(claims, [](float* values) { values[0] += 1.0f; });
  auto run = lead(await(2));
  auto wanted = threads(2);
  for (ChainRunner* const of : {run.get(), wanted.get()}) {
    of->chain(tokens_, {}, all_rows(tokens_.size()));
  }
  EXPECT_NE(run->logits, wanted->logits);
}

TEST_F(Remote, AWrongBatchHarmsNothing) {
  auto joined = join();
  auto run = lead(await(2));
  EXPECT_NE(error_line([&] {
              run->chain({1, 2, 100000}, {}, {});
            }).find("outside the vocabulary"),
            std::string::npos);
  run->chain(tokens_, {}, {0});
  run.reset();
  EXPECT_EQ(joined.get(), "none");
}

// --- addresses ----------------------------------------------------------------------------------

TEST(TcpAddresses, LoopbackIsANumberOfThisMachine) {
  for (const char* host : {"127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "localhost"}) {
    EXPECT_TRUE((TcpAddress{host, 1}.is_loopback())) << host;
  }
  for (const char* host : {"127.example.com", "127.0.0.1.example.com", "128.0.0.1", "0.0.0.0",
                           "::", "::2", "::ffff:10.0.0.1", "localhost.example.com", ""}) {
    EXPECT_FALSE((TcpAddress{host, 1}.is_loopback())) << host;
  }
  EXPECT_TRUE(TcpListener({"127.0.0.1", 0}).is_loopback());
  EXPECT_FALSE(TcpListener({"0.0.0.0", 0}).is_loopback());
}

// --- meeting ------------------------------------------------------------------------------------

TEST_F(Remote, StrangersAreWaitedPast) {
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, 'x'), std::string("\0\1", 2)}) {
    TcpSocket stranger = TcpSocket::connect({"127.0.0.1", listener_.port()}, no_deadline);
    stranger.send(bytes_of(text), no_deadline);
  }
  TcpSocket liar = TcpSocket::connect({"127.0.0.1", listener_.port()}, no_deadline);
  RankLink::send(liar, RankLink::Kind::hello, "{\"build\": 7}", no_deadline);
  TcpSocket impatient = TcpSocket::connect({"127.0.0.1", listener_.port()}, no_deadline);
  RankLink::send(impatient, RankLink::Kind::pass, "", no_deadline);
  auto joined = join();
  auto run = lead(await(2));
  run->chain(tokens_, {}, {0});
  run.reset();
  EXPECT_EQ(joined.get(), "none");
}

TEST_F(Remote, SilentConnectionsHoldUpNobody) {
  auto others = std::async(std::launch::async, [&] { return await(2); });
  std::vector<TcpSocket> silent;
  for (int i = 0; i < 100; ++i) {  // more than are listened to at once
    silent.push_back(TcpSocket::connect({"127.0.0.1", listener_.port()}, no_deadline));
    if (i % 2 == 0) silent.back().send(bytes_of("copp"), no_deadline);
  }
  auto joined = join();
  // One after the other they would take 200 s, and 20 s is all that rank 0 waits.
  auto run = lead(others.get());
  run->chain(tokens_, {}, {0});
  run.reset();
  EXPECT_EQ(joined.get(), "none");
}

TEST_F(Remote, OneThatIsLostBeforeAllHaveComeIsNamed) {
  auto others = std::async(std::launch::async, [&] { return error_line([&] { await(3); }); });
  {
    const JoinedRank leaves({"127.0.0.1", listener_.port()}, claims, milliseconds(20000));
    EXPECT_EQ(leaves.rank(), 1);
  }
  EXPECT_EQ(others.get(),
            "tensor parallel: rank 1 of 3: the connection was closed; see why its process ended");
}

TEST_F(Remote, AnotherKeyIsWaitedPastAndNamed) {
  RankClaims other = claims;
  other.key = "b key";
  auto refused = join(other);
  EXPECT_EQ(error_line([&] { await(2, milliseconds(500)); }),
            "tensor parallel: 1 of 2 ranks came within 0.5 s (and a connection that was refused: "
            "its key is another one); start coppice rank for each of the others");
  EXPECT_EQ(refused.get(),
            "tensor parallel: rank 0 has another key; give both the same one (rank-key)");
}

TEST_F(Remote, AnotherBuildOrModelIsRefusedOnBothSides) {
  RankClaims old = claims, other = claims;
  old.build = "an old build";
  other.model = "another model";
  for (const auto& [of, line] :
       {std::pair(old,
                  "tensor parallel: rank 1 of 2 is another build (an old build), rank 0 is this "
                  "build; use the same program for all"),
        std::pair(
            other,
            "tensor parallel: rank 1 of 2 has another model (fingerprint another model), rank "
            "0 has this model; give all of them the same files")}) {
    auto refused = join(of);
    EXPECT_EQ(error_line([&] { await(2); }), line);
    EXPECT_EQ(refused.get(), line);
  }
}

TEST_F(Remote, OneThatIsMissingIsNotWaitedForEver) {
  auto joined = join();
  EXPECT_EQ(error_line([&] { await(3, milliseconds(300)); }),
            "tensor parallel: 2 of 3 ranks came within 0.3 s; start coppice rank for each of the "
            "others");
  EXPECT_NE(joined.get(), "none");
  EXPECT_NE(error_line([] {
              JoinedRank({"127.0.0.1", 1}, claims, milliseconds(200));
            }).find("nobody listens at 127.0.0.1:1; start it with rank-address"),
            std::string::npos);
}

// --- ranks that fail ----------------------------------------------------------------------------

TEST_F(Remote, ARankThatThrowsEndsThePassOnAll) {
  int sums = 0;
  auto fails = join(claims, [&](float*) {
    if (++sums == 3) throw std::runtime_error("the card fell off the bus");
  });
  auto others = await(2);
  auto run = lead(std::move(others));
  const std::string line = "tensor parallel: rank 1 of 2 failed: the card fell off the bus";
  EXPECT_EQ(error_line([&] { run->chain(tokens_, {}, {0}); }), line);
  EXPECT_EQ(error_line([&] { run->chain(tokens_, {}, {0}); }), line + "; load the model again");
  EXPECT_EQ(error_line([&] { run->model->confirm(); }), line);
}

TEST_F(Remote, OneRanksFailureReachesTheOthers) {
  const auto fail = [](float*) { throw std::runtime_error("the card fell off the bus"); };
  std::vector<std::future<std::string>> joined;
  joined.push_back(join(claims, fail));
  joined.push_back(join());
  joined.push_back(join());
  auto run = lead(await(4));
  const std::string line = error_line([&] { run->chain(tokens_, {}, {0}); });
  EXPECT_TRUE(line.starts_with("tensor parallel: rank ") &&
              line.ends_with(" of 4 failed: the card fell off the bus"))
      << line;
  EXPECT_EQ(joined[0].get(), "the card fell off the bus");
  EXPECT_EQ(joined[1].get(), line);
  EXPECT_EQ(joined[2].get(), line);
}

TEST_F(Remote, ARankThatHangsEndsThePass) {
  std::promise<void> release;
  auto hangs = join(claims, [wait = release.get_future().share()](float*) { wait.wait(); });
  auto run = lead(await(2, milliseconds(300)));
  EXPECT_EQ(error_line([&] { run->chain(tokens_, {}, {0}); }),
            "tensor parallel: nothing came from rank 1 of 2 for 0.3 s; see what holds it up, and "
            "start again");
  release.set_value();
  EXPECT_NE(hangs.get().find("nothing came from rank 1"), std::string::npos);
}

TEST_F(Remote, IdleRanksAreWaitedFor) {
  auto joined = join(claims, {}, milliseconds(1000));
  auto run = lead(await(2, milliseconds(1000)));
  std::this_thread::sleep_for(milliseconds(2500));
  run->chain(tokens_, {}, {0});
  run.reset();
  EXPECT_EQ(joined.get(), "none");
}

/// What a rank says that has joined another program than rank 0.
class Impostor : public Remote {
 protected:
  std::string line_of_rank(const std::function<void(TcpSocket&)>& answer) {
    auto joined = join(claims, {}, milliseconds(300));
    std::optional<TcpSocket> socket = listener_.accept(no_deadline);
    std::string come;
    while (!RankLink::take_hello(*socket, come)) (void)socket->wait_to_receive(no_deadline);
    answer(*socket);
    const std::string line = joined.get();
    heard_ = rest_of(*socket);
    return line;
  }
  /// Up to the end of the connection.
  static std::string rest_of(TcpSocket& socket) {
    std::string rest;
    std::array<char, 4096> piece{};
    try {
      while (socket.wait_to_receive(deadline_in(std::chrono::seconds(20)))) {
        rest.append(piece.data(), socket.receive_some(std::as_writable_bytes(std::span(piece))));
      }
    } catch (const Error&) {
    }
    return rest;
  }
  static std::string welcome() {
    return R"({"rank": 1, "ranks": 2, "cuda": false, "compute": 0, "integer_products": false, "kv": 0, "patience": 300})";
  }
  /// Begins a message that announces so many bytes.
  static void announce(TcpSocket& socket, RankLink::Kind kind, std::uint64_t bytes) {
    struct {
      char magic[8] = {'c', 'o', 'p', 'p', 'i', 'c', 'e', '1'};
      RankLink::Kind kind;
      std::uint32_t unused = 0;
      std::uint64_t bytes;
    } const head{.kind = kind, .bytes = bytes};
    socket.send(std::as_bytes(std::span(&head, 1)), no_deadline);
  }
  std::string heard_;  ///< what the rank said after the answer

  static long peak_kibibytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  }
};

TEST_F(Impostor, ARankZeroThatHangsEndsTheOthers) {
  const std::string late =
      cat("tensor parallel: nothing came from rank 0 at 127.0.0.1:", listener_.port(),
          " for 0.3 s; see what holds it up, and start again");
  EXPECT_EQ(line_of_rank([](TcpSocket&) {}), late);
  EXPECT_EQ(line_of_rank([](TcpSocket& socket) {
              RankLink::send(socket, RankLink::Kind::welcome, welcome(), no_deadline);
            }),
            late);
  EXPECT_NE(heard_.find(late), std::string::npos) << "it is told, should it go on";
}

TEST_F(Impostor, AnnouncedBytesTakeNoMemory) {
  constexpr std::uint64_t bytes = std::uint64_t{1} << 33;
  const long before = peak_kibibytes();
  const std::string first =
      line_of_rank([](TcpSocket& socket) { announce(socket, RankLink::Kind::welcome, bytes); });
  EXPECT_NE(first.find("it sent a message that is too long"), std::string::npos) << first;
  const std::string later = line_of_rank([](TcpSocket& socket) {
    RankLink::send(socket, RankLink::Kind::welcome, welcome(), no_deadline);
    announce(socket, RankLink::Kind::load, bytes);
  });
  EXPECT_NE(later.find("it sends nothing"), std::string::npos) << later;
  EXPECT_LT(peak_kibibytes() - before, 256 << 10);
}

TEST_F(Remote, ARankZeroThatLeavesEndsTheOthers) {
  auto joined = join();
  { auto others = await(2); }
  EXPECT_EQ(joined.get(),
            "tensor parallel: rank 0 gave up before the model was loaded; see what it says");
}

// --- messages -----------------------------------------------------------------------------------

TEST(PassMessage, IsWhatWasWritten) {
  const std::vector<TokenId> tokens = {5, 6, 7};
  const std::vector<std::int32_t> positions = {2, 3, 3}, logit_rows = {0, 2};
  const std::vector<KvSlot> slots = {10, 11, 12}, former = {1, no_slot};
  const std::vector<KvSegment> segments = {{former, 0, 3, true, 0},
                                           {std::span(slots).first(1), 0, 3, false, 2},
                                           {{}, 1, 1, false, 3},
                                           {std::span(slots).subspan(1), 1, 3, false, 3}};
  PassMessage sent, received;
  const auto bytes = sent.write(
      {tokens, positions, slots, segments, logit_rows, AttentionDivision::node_chunk}, 77);
  received.read(bytes);
  const PassInputs got = received.inputs();
  const auto same = [](const auto& a, const auto& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  EXPECT_EQ(received.epilogue(), 77u);
  EXPECT_TRUE(same(got.tokens, tokens) && same(got.positions, positions) &&
              same(got.write_slots, slots) && same(got.logit_rows, logit_rows));
  EXPECT_EQ(got.division, AttentionDivision::node_chunk);
  ASSERT_EQ(got.segments.size(), segments.size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const KvSegment &a = got.segments[i], &b = segments[i];
    EXPECT_TRUE(same(a.slots, b.slots) && a.q_begin == b.q_begin && a.q_end == b.q_end &&
                a.former == b.former && a.first_position == b.first_position)
        << i;
  }
  // Bytes that are cut off or follow are refused, and so are sizes beyond them.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(received.read(bytes.first(size)), Error) << size;
  }
  std::vector<std::byte> changed(bytes.begin(), bytes.end());
  changed.push_back(std::byte{0});
  EXPECT_THROW(received.read(changed), Error);
  for (std::size_t field = 8; field < 28; field += 4) {
    changed.assign(bytes.begin(), bytes.end());
    changed[field + 3] = std::byte{0xff};
    EXPECT_THROW(received.read(changed), Error) << field;
  }
}

}  // namespace coppice::remote_ranks_test

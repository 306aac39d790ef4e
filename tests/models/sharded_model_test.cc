// Models split over ranks of the CPU, against a double-precision reference.
#include "models/sharded_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>
#include <tuple>

#include "base/error.h"
#include "kernels/cpu/thread_communicator.h"
#include "models/model_folder.h"
#include "reference/backend.h"
#include "reference/chain_runner.h"
#include "reference/model_reference.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"

namespace coppice::sharded_model_test {

using testing::all_rows;
using testing::ChainRunner;
using testing::ModelReference;
using testing::random_tokens;
using testing::TemporaryFolder;
using testing::TinyModel;

std::vector<std::unique_ptr<Device>> devices(int ranks, DType compute = DType::f32,
                                             DType kv = DType::f32) {
  std::vector<std::unique_ptr<Device>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(make_cpu_device({.threads = 1, .compute = compute, .kv = kv}));
  }
  return all;
}

/// The largest error of the run's logits, in bounds of logit_tolerance().
double error_of(const ChainRunner& run, const std::vector<std::vector<double>>& wanted) {
  double worst = 0.0;
  for (std::size_t row = 0; row < run.logits.size(); ++row) {
    worst =
        std::max(worst, testing::logit_error(run.logits[row], wanted[row], run.model->config(),
                                             run.device->compute_dtype(), run.device->kv_dtype()));
  }
  return worst;
}

std::map<std::string, TinyModel> variants() {
  std::map<std::string, TinyModel> all = testing::tiny_families();
  all["plain"] = {};
  all["tied"].tie_word_embeddings = true;
  all["one kv head"].kv_heads = 1;
  all["no grouping"].kv_heads = 4;
  all["attention bias"].attention_bias = true;
  all["mlp bias"].mlp_bias = true;
  all["bf16"].dtype = DType::bf16;
  all["f16 in two files"].dtype = DType::f16;
  all["f16 in two files"].shards = 2;
  all["one layer"].layers = 1;
  all["odd vocabulary"].vocab_size = 301;
  all["wide FFN"].intermediate_size = 320;  // 5 x 64: ranks have 2 and 3
  return all;
}

class Sharded : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Sharded, ::testing::Values(2, 4),
                         ::testing::PrintToStringParamName());

TEST_P(Sharded, LogitsAreTheModelsInEveryVariant) {
  for (const auto& [name, spec] : variants()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    write_tiny_model(folder.path(), spec);
    const ModelReference reference(folder.path());
    ChainRunner run(folder.path(), devices(GetParam()), {.max_rows = 24});
    const auto tokens = random_tokens(24, spec.vocab_size, 5);
    const auto wanted = reference.logits(tokens);
    run.chain(tokens, {}, all_rows(tokens.size()));
    EXPECT_LE(error_of(run, wanted), 1.0);
    // The same bits in every run, and row by row.
    const auto first = run.logits;
    run.chain(tokens, {}, all_rows(tokens.size()));
    EXPECT_EQ(run.logits, first);
    std::vector<KvSlot> before;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto slots = run.chain({tokens[t]}, before, {0});
      before.insert(before.end(), slots.begin(), slots.end());
      EXPECT_EQ(run.logits[0], first[t]) << "token " << t;
    }
  }
}

TEST_P(Sharded, OtherTypesOfNumbers) {
  const TemporaryFolder folder;
  const TinyModel spec;
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  const auto tokens = random_tokens(24, spec.vocab_size, 6);
  const auto wanted = reference.logits(tokens);
  for (const auto& [compute, kv] :
       {std::pair(DType::f32, DType::bf16), std::pair(DType::f32, DType::f16),
        std::pair(DType::bf16, DType::f32)}) {
    const testing::Backend backend{"cpu", [c = compute] { return testing::cpu(c); }};
    if (!testing::lacking(backend).empty()) continue;
    SCOPED_TRACE(cat(name_of(compute), " with KV in ", name_of(kv)));
    ChainRunner run(folder.path(), devices(GetParam(), compute, kv), {.max_rows = 24});
    run.chain(tokens, {}, all_rows(tokens.size()));
    EXPECT_LE(error_of(run, wanted), 1.0);
  }
}

TEST_P(Sharded, RoundedModels) {
  const TemporaryFolder folder;
  TinyModel spec;
  spec.hidden_size = 256;
  spec.heads = 16;
  spec.kv_heads = 4;
  spec.head_dim = 64;  // 1024 inputs of o_proj, whole blocks of 256 on each of 4 ranks
  spec.intermediate_size = 1280;
  write_tiny_model(folder.path(), spec);
  const auto tokens = random_tokens(16, spec.vocab_size, 7);
  for (const WeightFormat format : {WeightFormat::q8_0, WeightFormat::q4_k, WeightFormat::fp8}) {
    SCOPED_TRACE(std::string(name_of(format)));
    const ModelOptions options{.max_rows = 24, .rounding = format};
    ChainRunner whole(folder.path(), make_cpu_device({.threads = 1}), options);
    ChainRunner run(folder.path(), devices(GetParam()), options);
    whole.chain(tokens, {}, all_rows(tokens.size()));
    run.chain(tokens, {}, all_rows(tokens.size()));
    std::vector<std::vector<double>> wanted;
    for (const auto& row : whole.logits) wanted.emplace_back(row.begin(), row.end());
    EXPECT_LE(error_of(run, wanted), 2.0);  // both err
  }
}

TEST_P(Sharded, PassesWithoutLogitsAndLayersThatVisit) {
  const TemporaryFolder folder;
  TinyModel spec;
  spec.layers = 5;
  write_tiny_model(folder.path(), spec);
  const auto tokens = random_tokens(20, spec.vocab_size, 8);
  ChainRunner stays(folder.path(), devices(GetParam()), {.max_rows = 24});
  ChainRunner visits(folder.path(), devices(GetParam()), {.max_rows = 24, .resident_layers = 1});
  EXPECT_GT(visits.model->streamed_bytes(), 0u);
  for (ChainRunner* run : {&stays, &visits}) {
    const std::vector<TokenId> begin(tokens.begin(), tokens.begin() + 12),
        end(tokens.begin() + 12, tokens.end());
    const auto before = run->chain(begin, {}, {});
    EXPECT_TRUE(run->returned_null);
    run->chain(end, before, {0, 3, 7});
  }
  EXPECT_EQ(visits.logits, stays.logits);
}

// --- planted faults -----------------------------------------------------------------------------

/// Passes on what a communicator is asked for.
class Through : public Communicator {
 public:
  explicit Through(Communicator& inner) : inner_(inner) {}
  void sum(float* values, std::int64_t count) override { inner_.sum(values, count); }
  void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows,
                      float* staged, float* all) override {
    inner_.gather_columns(part, widths, rows, staged, all);
  }
  void abort(const std::string& why) noexcept override { inner_.abort(why); }

 protected:
  Communicator& inner_;
};

/// A model split over two ranks, of which the second does as it is told.
struct Split {
  using Wrap = std::function<std::unique_ptr<Communicator>(Communicator&)>;

  Split(const std::filesystem::path& folder, const std::filesystem::path& second,
        const Wrap& wrap = {}, std::chrono::milliseconds patience = usual_patience,
        std::chrono::milliseconds pass_patience = usual_patience)
      : runner(
            devices(2),
            [&](std::span<Device* const> by_rank) {
              const ModelOptions options{
                  .max_rows = 24, .max_logit_rows = 24, .max_positions = 64, .max_kv_tokens = 100};
              return std::make_unique<ShardedModel>(
                  by_rank, cpu::make_thread_communicators(2, patience), pass_patience,
                  [&](const Shard& shard, Device& device, Communicator& communicator) {
                    const ModelFiles files(shard.rank == 0 ? folder : second);
                    ModelOptions of_rank = options;
                    of_rank.shard = shard;
                    Communicator* used = &communicator;
                    if (shard.rank == 1 && wrap) {
                      wrapped = wrap(communicator);
                      used = wrapped.get();
                    }
                    return std::make_unique<GraphModel>(files.config, files.weights, device,
                                                        of_rank, LoadProgress(), used);
                  });
            },
            100) {}

  /// Logits of a text's last token.
  std::vector<float> run(const std::vector<TokenId>& tokens) {
    const auto slots = runner.chain(tokens, {}, {static_cast<std::int32_t>(tokens.size()) - 1});
    runner.pool.give_back(slots);
    return runner.logits.front();
  }

  std::unique_ptr<Communicator> wrapped;
  ChainRunner runner;
};

class PlantedInRanks : public ::testing::Test {
 protected:
  PlantedInRanks() {
    spec_.vocab_size = 160;
    write_tiny_model(folder_.path(), spec_);
    wanted_ = ModelReference(folder_.path()).logits(tokens_).back();
  }
  /// In bounds.
  double error_of(const std::vector<float>& logits) const {
    return testing::logit_error(logits, wanted_, ModelFiles(folder_.path()).config, DType::f32);
  }
  /// A folder like the first, but that the rows of a tensor are moved on, the last to the front.
  std::filesystem::path with_moved_rows(const std::string& name, std::uint64_t rows) {
    write_tiny_model(other_.path(), spec_);
    std::vector<testing::TensorToWrite> tensors = testing::tiny_model_tensors(spec_);
    for (testing::TensorToWrite& tensor : tensors) {
      if (tensor.name.find(name) == std::string::npos) continue;
      const std::size_t bytes = tensor.bytes.size() / tensor.shape[0] * rows;
      tensor.bytes = tensor.bytes.substr(tensor.bytes.size() - bytes) +
                     tensor.bytes.substr(0, tensor.bytes.size() - bytes);
      ++moved_;
    }
    testing::write_file(other_.path() / "model.safetensors", testing::safetensors_bytes(tensors));
    return other_.path();
  }

  TinyModel spec_;
  const TemporaryFolder folder_, other_;
  const std::vector<TokenId> tokens_ = random_tokens(12, 96, 9);
  std::vector<double> wanted_;
  int moved_ = 0;
};

TEST_F(PlantedInRanks, NothingIsPlanted) {
  EXPECT_LE(error_of(Split(folder_.path(), folder_.path()).run(tokens_)), 1.0);
}

TEST_F(PlantedInRanks, APartialSumIsLeftOut) {
  for (const int left_out : {0, 1, 2, 3}) {
    class LeavesOut final : public Through {
     public:
      LeavesOut(Communicator& inner, int which) : Through(inner), which_(which) {}
      void sum(float* values, std::int64_t count) override {
        if (sums_++ == which_) std::fill_n(values, count, 0.0f);
        Through::sum(values, count);
      }

     private:
      const int which_;
      int sums_ = 0;
    };
    Split split(folder_.path(), folder_.path(),
                [&](Communicator& inner) { return std::make_unique<LeavesOut>(inner, left_out); });
    EXPECT_GT(error_of(split.run(tokens_)), 10.0) << "sum " << left_out;
  }
}

TEST_F(PlantedInRanks, KvHeadsAreTheNeighbours) {
  for (const char* name : {"k_proj", "v_proj"}) {
    moved_ = 0;
    Split split(folder_.path(), with_moved_rows(name, 16));  // a head
    ASSERT_EQ(moved_, 2);
    EXPECT_GT(error_of(split.run(tokens_)), 10.0) << name;
  }
}

TEST_F(PlantedInRanks, TheVocabularysSliceIsShifted) {
  Split split(folder_.path(), with_moved_rows("lm_head", 1));
  ASSERT_EQ(moved_, 1);
  EXPECT_GT(error_of(split.run(tokens_)), 10.0);
}

// --- ranks that fail ----------------------------------------------------------------------------

std::string error_line(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failure);
    return error.what();
  }
  return "none";
}

TEST_F(PlantedInRanks, ARankThatThrowsEndsThePassOnAll) {
  class Throws final : public Through {
   public:
    using Through::Through;
    void sum(float* values, std::int64_t count) override {
      if (sums_++ == 2) throw std::runtime_error("the card fell off the bus");
      Through::sum(values, count);
    }

   private:
    int sums_ = 0;
  };
  Split split(folder_.path(), folder_.path(),
              [](Communicator& inner) { return std::make_unique<Throws>(inner); });
  const std::string line = "tensor parallel: rank 1 of 2 failed: the card fell off the bus";
  EXPECT_EQ(error_line([&] { split.run(tokens_); }), line);
  EXPECT_EQ(error_line([&] { split.run(tokens_); }), line + "; load the model again");
}

TEST_F(PlantedInRanks, ARankThatHangsEndsThePass) {
  class Hangs final : public Through {
   public:
    Hangs(Communicator& inner, std::atomic<bool>& released) : Through(inner), released_(released) {}
    void sum(float* values, std::int64_t count) override {
      while (!released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Through::sum(values, count);
    }

   private:
    std::atomic<bool>& released_;
  };
  // Rank 0 sees that the other one is late, or the watch that the pass has no end.
  for (const auto& [patience, pass_patience, line] :
       {std::tuple(std::chrono::milliseconds(50), std::chrono::milliseconds(60000),
                   "tensor parallel: rank 0 waited 0.05 s for the others; see what holds them up, "
                   "and start again"),
        std::tuple(std::chrono::milliseconds(60000), std::chrono::milliseconds(50),
                   "tensor parallel: a pass did not end within 0.05 s; see which rank hangs, or "
                   "give passes more time (rank-timeout)")}) {
    std::atomic<bool> released = false;
    Split split(
        folder_.path(), folder_.path(),
        [&](Communicator& inner) { return std::make_unique<Hangs>(inner, released); }, patience,
        pass_patience);
    std::thread release([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      released = true;
    });
    EXPECT_EQ(error_line([&] { split.run(tokens_); }), line);
    release.join();
  }
}

// As on a GPU, where the host has long returned.
TEST(RankWatch, NoticesWhatHasNoEnd) {
  std::atomic<bool> finished = true;
  std::promise<void> given_up;
  RankWatch watch(
      std::chrono::milliseconds(50), [&] { return finished.load(); },
      [&] { given_up.set_value(); });
  auto end = given_up.get_future();
  const auto comes_within = [&](int milliseconds) {
    return end.wait_for(std::chrono::milliseconds(milliseconds)) == std::future_status::ready;
  };
  watch.begin();
  watch.end();
  EXPECT_FALSE(comes_within(200));  // idle
  finished = false;
  watch.begin();
  watch.end();
  EXPECT_TRUE(comes_within(60000));
}

TEST_F(PlantedInRanks, AWrongBatchHarmsNothing) {
  Split split(folder_.path(), folder_.path());
  EXPECT_NE(error_line([&] {
              split.run({1, 2, 500});
            }).find("outside the vocabulary"),
            std::string::npos);
  EXPECT_LE(error_of(split.run(tokens_)), 1.0);
}

TEST_F(PlantedInRanks, AFolderThatIsWrongOnOneRankIsNamed) {
  std::filesystem::remove(other_.path() / "config.json");
  EXPECT_NE(error_line([&] { Split(folder_.path(), other_.path()); }).find("config.json"),
            std::string::npos);
}

TEST_F(PlantedInRanks, WhatDoesNotDivideIsRefused) {
  auto three = devices(3);
  const std::vector<Device*> by_rank = {three[0].get(), three[1].get(), three[2].get()};
  try {
    (void)Model::load(folder_.path(), by_rank);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(std::string(error.what()),
              "tensor-parallel 3: the model's 4 heads are no multiple of it; use fewer GPUs");
  }
}

}  // namespace coppice::sharded_model_test

// Models split over GPUs, or over one that has all parts where there is no second one.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/communicator.h"
#include "reference/chain_runner.h"
#include "reference/model_reference.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"

namespace coppice::testing {
namespace {

class ShardedOnGpus : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!has_cuda_device(&why_not)) GTEST_SKIP() << why_not;
  }
  static std::vector<std::unique_ptr<Device>> cards(int count) {
    const bool there = count <= cuda_device_count();
    std::vector<std::unique_ptr<Device>> all;
    for (int card = 0; card < count; ++card) {
      all.push_back(make_cuda_device({.device = there ? card : 0, .record = there}));
    }
    return all;
  }
};

/// Runs body(rank) on a thread and a device for each rank.
void on_both(std::span<Device* const> devices, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const DeviceScope scope(*devices[rank]);
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Few numbers, which GPUs send each other, and many, which NCCL adds: in turn, again and again.
TEST_F(ShardedOnGpus, SumsAreThoseOfAllRanks) {
  auto own = cards(2);
  const std::vector<Device*> by_rank = {own[0].get(), own[1].get()};
  auto communicators = own[0]->make_communicators(by_rank, usual_patience);
  const std::vector<std::int64_t> counts = {4,       4096, 5000,   266240,  6,
                                            1000004, 20,   655360, 1048576, 1200004};
  std::vector<std::vector<std::vector<float>>> sums(2);
  constexpr int turns = 20;
  on_both(by_rank, [&](std::size_t rank) {
    Device& device = *by_rank[rank];
    const DeviceBuffer place = device.allocate(1200004 * sizeof(float), "a test");
    for (int turn = 0; turn < turns; ++turn) {
      for (const std::int64_t count : counts) {
        std::vector<float> values(static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<float>(i + 10000 * rank + static_cast<std::size_t>(turn));
        }
        device.upload(place.data(), values.data(), values.size() * sizeof(float));
        communicators[rank]->sum(place.as<float>(), count);
        device.download(values.data(), place.data(), values.size() * sizeof(float));
        sums[rank].push_back(values);
      }
    }
  });
  EXPECT_EQ(sums[0], sums[1]);
  for (std::size_t call = 0; call < sums[0].size(); ++call) {
    const std::size_t turn = call / counts.size();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sums[0][call].size(); ++i) {
      wrong += sums[0][call][i] != static_cast<float>(2 * (i + turn) + 10000);
    }
    EXPECT_EQ(wrong, 0u) << "sum " << call << " of " << sums[0][call].size();
  }
}

TEST_F(ShardedOnGpus, ColumnsComeSideBySide) {
  auto own = cards(2);
  const std::vector<Device*> by_rank = {own[0].get(), own[1].get()};
  auto communicators = own[0]->make_communicators(by_rank, usual_patience);
  const std::vector<std::int64_t> widths = {3, 5};
  std::vector<float> all(16);
  on_both(by_rank, [&](std::size_t rank) {
    Device& device = *by_rank[rank];
    std::vector<float> part;
    for (int row = 0; row < 2; ++row) {
      for (std::int64_t i = 0; i < widths[rank]; ++i) {
        part.push_back(static_cast<float>(100 * static_cast<int>(rank) + 10 * row + i));
      }
    }
    const DeviceBuffer mine = device.allocate(part.size() * sizeof(float), "a test");
    const DeviceBuffer staged = device.allocate(10 * sizeof(float), "a test");
    const DeviceBuffer together = device.allocate(16 * sizeof(float), "a test");
    device.upload(mine.data(), part.data(), part.size() * sizeof(float));
    communicators[rank]->gather_columns(mine.as<float>(), widths, 2, staged.as<float>(),
                                        together.as<float>());
    if (rank == 0) device.download(all.data(), together.data(), 16 * sizeof(float));
    device.synchronize();
  });
  EXPECT_EQ(all, (std::vector<float>{0, 1, 2, 100, 101, 102, 103, 104,  //
                                     10, 11, 12, 110, 111, 112, 113, 114}));
}

TEST_F(ShardedOnGpus, LogitsAreTheModels) {
  std::map<std::string, TinyModel> all = tiny_families();
  all["plain"] = {};
  all["tied"].tie_word_embeddings = true;
  all["one kv head"].kv_heads = 1;
  all["biases"].attention_bias = all["biases"].mlp_bias = true;
  TinyModel& wide = all["streamed"];
  wide.hidden_size = 512;
  wide.heads = 8;
  wide.kv_heads = 4;
  wide.head_dim = 64;
  wide.intermediate_size = 1408;
  wide.vocab_size = 1000;
  for (auto& [name, spec] : all) {
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(cat(name, " over ", ranks));
      spec.dtype = DType::bf16;
      const TemporaryFolder folder;
      write_tiny_model(folder.path(), spec);
      const auto tokens = random_tokens(24, spec.vocab_size, 5);
      const auto wanted = ModelReference(folder.path()).logits(tokens);
      ChainRunner run(folder.path(), cards(ranks), {.max_rows = 24});
      const std::vector<std::int32_t> rows = {0, 5, 11, 23};
      std::vector<std::vector<float>> first;
      // Queued, recorded, played.
      for (int turn = 0; turn < 5; ++turn) {
        const auto slots = run.chain(tokens, {}, rows);
        run.pool.give_back(slots);
        if (turn == 0) first = run.logits;
        EXPECT_EQ(run.logits, first) << "turn " << turn;
      }
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const auto& row = wanted[static_cast<std::size_t>(rows[r])];
        EXPECT_LE(logit_error(first[r], row, run.model->config(), DType::bf16, DType::bf16), 1.0)
            << "row " << rows[r];
      }
    }
  }
}

}  // namespace
}  // namespace coppice::testing

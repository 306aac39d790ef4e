// The model's graph against a double-precision reference: chains, trees, chunks, subsets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/error.h"
#include "base/token_tree.h"
#include "base/tree_order.h"
#include "models/model.h"
#include "reference/model_reference.h"
#include "reference/naive_device.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::make_naive_device;
using testing::ModelReference;
using testing::TemporaryFolder;
using testing::TinyModel;
using testing::write_tiny_model;

/// A plan without chunks, which the naive device does not read.
AttentionPlan plan_of(const std::vector<VisibleKv>& seen, std::int32_t queries) {
  AttentionPlan plan;
  plan.queries = queries;
  for (const VisibleKv& kv : seen) {
    plan.slot.push_back(kv.slot);
    plan.q_begin.push_back(kv.q_begin);
    plan.q_end.push_back(kv.q_end);
  }
  return plan;
}

struct Runner {
  Runner(const std::filesystem::path& dir, ModelOptions options, std::int32_t slots = 200,
         std::int32_t page_size = 4)
      : device(make_naive_device()),
        model(Model::load(dir, *device, options)),
        pool(*device, model->kv_layout(slots, page_size)) {}

  /// Runs `tokens` after `prefix` (slots of positions 0, 1, ...); returns the new slots.
  std::vector<KvSlot> chain(const std::vector<TokenId>& tokens, const std::vector<KvSlot>& prefix,
                            const std::vector<std::int32_t>& logit_rows) {
    std::vector<KvSlot> slots(tokens.size());
    EXPECT_TRUE(pool.take(slots));
    const auto rows = static_cast<std::int32_t>(tokens.size());
    std::vector<VisibleKv> seen;
    for (const KvSlot slot : prefix) seen.push_back({slot, 0, rows});
    std::vector<std::int32_t> positions;
    for (std::int32_t r = 0; r < rows; ++r) {
      seen.push_back({slots[static_cast<std::size_t>(r)], r, rows});
      positions.push_back(static_cast<std::int32_t>(prefix.size()) + r);
    }
    const AttentionPlan plan = plan_of(seen, rows);
    logits = model->forward({tokens, positions, slots, &plan, logit_rows}, pool);
    return slots;
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  KvPool pool;
  const float* logits = nullptr;
};

/// Bound on the difference of f32 passes (sums in double) from the reference. Each layer rounds
/// the residual stream and what feeds it a handful of times, relative error 2^-24 each, and a
/// later layer can magnify what it is given by a small factor; 100 roundings at the size of the
/// largest logit cover two layers with room, and are 1e4 times below any error in the graph.
double tolerance(const std::vector<double>& logits) {
  double largest = 1.0;
  for (const double value : logits) largest = std::max(largest, std::fabs(value));
  return 100.0 * 0x1.0p-24 * largest;
}

void expect_row(const float* row, const std::vector<double>& wanted, const std::string& what) {
  const double bound = tolerance(wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(row[i], wanted[i], bound) << what << ", token " << i;
  }
}

std::vector<TokenId> random_tokens(std::size_t count, std::int64_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab));
  }
  return tokens;
}

std::vector<std::int32_t> all_rows(std::size_t count) {
  std::vector<std::int32_t> rows(count);
  for (std::size_t r = 0; r < count; ++r) rows[r] = static_cast<std::int32_t>(r);
  return rows;
}

std::map<std::string, TinyModel> variants() {
  std::map<std::string, TinyModel> all;
  all["plain"] = {};
  all["tied"].tie_word_embeddings = true;
  all["explicit head_dim"].head_dim = 12;
  all["one kv head"].kv_heads = 1;
  all["no grouping"].kv_heads = 4;
  all["attention bias"].attention_bias = true;
  all["mlp bias"].mlp_bias = true;
  all["qwen2"].architecture = "Qwen2ForCausalLM";
  all["mistral"].architecture = "MistralForCausalLM";
  all["f16"].dtype = DType::f16;
  all["bf16"].dtype = DType::bf16;
  all["bf16 unaligned"].dtype = DType::bf16;
  all["bf16 unaligned"].header_padding = 3;
  all["f32 unaligned"].header_padding = 2;
  all["sharded"].shards = 3;
  all["theta"].rope_theta = 500000.0;
  all["linear"].rope_scaling = {RopeScaling::Kind::linear, 4.0};
  all["llama3"].rope_scaling = {RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 32};
  all["one layer"].layers = 1;
  all["odd vocabulary"].vocab_size = 37;
  return all;
}

TEST(Forward, ChainAgreesWithTheReferenceInEveryVariant) {
  for (const auto& [name, spec] : variants()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    write_tiny_model(folder.path(), spec);
    const ModelReference reference(folder.path());
    Runner run(folder.path(), {.max_rows = 24});
    const auto tokens = random_tokens(24, spec.vocab_size, 5);
    run.chain(tokens, {}, all_rows(tokens.size()));
    const auto wanted = reference.logits(tokens);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      expect_row(run.logits + t * static_cast<std::size_t>(spec.vocab_size), wanted[t],
                 "row " + std::to_string(t));
    }
  }
}

TEST(Forward, ChunksAndLogitSubsetsChangeNothing) {
  const TemporaryFolder folder;
  const TinyModel spec;
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  const auto tokens = random_tokens(20, spec.vocab_size, 6);
  const auto wanted = reference.logits(tokens);
  Runner run(folder.path(), {.max_rows = 8, .max_logit_rows = 3});
  std::vector<KvSlot> prefix;
  const std::vector<std::pair<std::size_t, std::vector<std::int32_t>>> chunks = {
      {8, {}}, {1, {0}}, {7, {1, 3, 6}}, {4, {3}}};
  for (const auto& [count, rows] : chunks) {
    const std::vector<TokenId> chunk(
        tokens.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
        tokens.begin() + static_cast<std::ptrdiff_t>(prefix.size() + count));
    const auto slots = run.chain(chunk, prefix, rows);
    EXPECT_EQ(run.logits == nullptr, rows.empty());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      expect_row(run.logits + i * static_cast<std::size_t>(spec.vocab_size),
                 wanted[prefix.size() + static_cast<std::size_t>(rows[i])], "chunk");
    }
    prefix.insert(prefix.end(), slots.begin(), slots.end());
  }
}

TEST(Forward, EveryPathOfATreeIsAChain) {
  const TemporaryFolder folder;
  TinyModel spec;
  spec.rope_scaling = {RopeScaling::Kind::llama3, 8.0, 1.0, 4.0, 32};
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    Runner run(folder.path(), {.max_rows = 32});
    const auto prompt = random_tokens(1 + random() % 9, spec.vocab_size, random());
    auto prefix = run.chain(prompt, {}, {});
    // Freed slots among taken ones: tree tokens land scattered.
    if (prefix.size() > 3) {
      std::vector<KvSlot> hole(3);
      ASSERT_TRUE(run.pool.take(hole));
      run.pool.give_back(std::span(hole).first(1));
    }
    TokenTree tree;
    tree.reset(static_cast<TokenId>(random() % 90));
    const int nodes = static_cast<int>(random() % 14);
    for (int i = 0; i < nodes; ++i) {
      const auto parent = static_cast<std::int32_t>(random() % static_cast<unsigned>(tree.nodes()));
      const auto rank =
          static_cast<std::int32_t>(std::count(tree.parent.begin(), tree.parent.end(), parent));
      tree.add(parent, static_cast<TokenId>((random() % 6) * 15 + static_cast<unsigned>(rank)),
               rank, 0.5f, 0.5);
    }
    TreeOrder order;
    order.assign(tree, trial % 2 == 0 ? ChildOrder::drawn : ChildOrder::heavy_path);
    const std::int32_t rows = order.rows();
    std::vector<KvSlot> slots(static_cast<std::size_t>(rows));
    ASSERT_TRUE(run.pool.take(slots));
    std::vector<VisibleKv> seen;
    for (const KvSlot slot : prefix) seen.push_back({slot, 0, rows});
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> positions, wanted_rows;
    for (std::int32_t r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      const auto node = static_cast<std::size_t>(order.node_of_row[row]);
      tokens.push_back(tree.token[node]);
      positions.push_back(static_cast<std::int32_t>(prefix.size()) + tree.depth[node]);
      seen.push_back({slots[row], r, r + order.subtree_rows[row]});
      if (trial % 3 == 0 || r % 2 == 0) wanted_rows.push_back(r);
    }
    const AttentionPlan plan = plan_of(seen, rows);
    const float* logits =
        run.model->forward({tokens, positions, slots, &plan, wanted_rows}, run.pool);
    for (std::size_t i = 0; i < wanted_rows.size(); ++i) {
      std::vector<TokenId> path;
      for (std::int32_t node = order.node_of_row[static_cast<std::size_t>(wanted_rows[i])];
           node >= 0; node = tree.parent[static_cast<std::size_t>(node)]) {
        path.insert(path.begin(), tree.token[static_cast<std::size_t>(node)]);
      }
      path.insert(path.begin(), prompt.begin(), prompt.end());
      expect_row(logits + i * static_cast<std::size_t>(spec.vocab_size),
                 reference.logits(path).back(), "tree row " + std::to_string(wanted_rows[i]));
    }
  }
}

TEST(Forward, RefusesBatchesItCannotRun) {
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), {});
  Runner run(folder.path(), {.max_rows = 4, .max_logit_rows = 2, .max_positions = 8});
  EXPECT_EQ(run.model->max_positions(), 8);
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<std::int32_t> positions = {0, 1}, rows = {0, 1};
  const std::vector<KvSlot> slots = {0, 1};
  const AttentionPlan plan = plan_of({{0, 0, 2}, {1, 1, 2}}, 2);
  const ForwardBatch good = {tokens, positions, slots, &plan, rows};
  EXPECT_NE(run.model->forward(good, run.pool), nullptr);
  const auto refused = [&](const ForwardBatch& batch) {
    EXPECT_THROW(run.model->forward(batch, run.pool), Error);
  };
  const auto with = [&](auto change) {
    ForwardBatch batch = good;
    change(batch);
    refused(batch);
  };
  const std::vector<TokenId> outside = {1, 96}, negative = {-1, 2}, none;
  with([&](ForwardBatch& b) { b.tokens = outside; });
  with([&](ForwardBatch& b) { b.tokens = negative; });
  with([&](ForwardBatch& b) { b.tokens = none; });
  const std::vector<std::int32_t> far = {0, 8}, before = {-1, 0}, one = {0};
  with([&](ForwardBatch& b) { b.positions = far; });
  with([&](ForwardBatch& b) { b.positions = before; });
  with([&](ForwardBatch& b) { b.positions = one; });
  const std::vector<KvSlot> beyond = {0, 200};
  with([&](ForwardBatch& b) { b.write_slots = beyond; });
  with([&](ForwardBatch& b) { b.attention = nullptr; });
  const AttentionPlan longer = plan_of({{0, 0, 3}}, 3);
  with([&](ForwardBatch& b) { b.attention = &longer; });
  const std::vector<std::int32_t> descending = {1, 0}, past = {2}, twice = {1, 1};
  with([&](ForwardBatch& b) { b.logit_rows = descending; });
  with([&](ForwardBatch& b) { b.logit_rows = past; });
  with([&](ForwardBatch& b) { b.logit_rows = twice; });
  const std::vector<std::int32_t> five = {0, 1, 2, 3, 4};
  const std::vector<TokenId> five_tokens = {1, 2, 3, 4, 5};
  with([&](ForwardBatch& b) {
    b.tokens = five_tokens;
    b.positions = five;
    b.write_slots = five;
  });
  KvLayout other = run.pool.layout();
  other.layers = 1;
  KvPool small(*run.device, other);
  EXPECT_THROW(run.model->forward(good, small), Error);
}

}  // namespace
}  // namespace coppice

// The model's graph against a double-precision reference: chains, trees, chunks, subsets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "base/error.h"
#include "base/token_tree.h"
#include "base/tree_order.h"
#include "kernels/random_values.h"
#include "models/model.h"
#include "reference/backend.h"
#include "reference/chain_runner.h"
#include "reference/model_reference.h"
#include "reference/naive_device.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::all_rows;
using testing::Backend;
using testing::ChainRunner;
using testing::cpu;
using testing::make_naive_device;
using testing::ModelReference;
using testing::random_tokens;
using testing::TemporaryFolder;
using testing::TinyModel;
using testing::write_tiny_model;

class Forward : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  std::unique_ptr<ChainRunner> runner(const std::filesystem::path& dir, ModelOptions options) {
    return std::make_unique<ChainRunner>(dir, GetParam().make(), options);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Devices, Forward,
    ::testing::Values(Backend{"naive", make_naive_device},
                      Backend{"f32", [] { return cpu(DType::f32); }},
                      Backend{"bf16", [] { return cpu(DType::bf16); }},
                      Backend{"kv_bf16", [] { return cpu(DType::f32, DType::bf16); }},
                      Backend{"kv_f16", [] { return cpu(DType::f32, DType::f16); }}, testing::cuda),
    [](const auto& backend) { return backend.param.name; });

void expect_row(const ChainRunner& run, std::size_t row, const std::vector<double>& wanted,
                const std::string& what) {
  double squares = 0.0;
  for (const double value : wanted) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(wanted.size()));
  const double bound = testing::logit_tolerance(run.model->config(), run.device->compute_dtype(),
                                                rms, run.device->kv_dtype());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_NEAR(run.logits[row][i], wanted[i], bound) << what << ", token " << i;
  }
}

std::map<std::string, TinyModel> variants() {
  std::map<std::string, TinyModel> all;
  all["plain"] = {};
  all["tied"].tie_word_embeddings = true;
  for (const std::int32_t head_dim : {2, 6, 8, 20, 32, 40}) {
    all["head_dim " + std::to_string(head_dim)].head_dim = head_dim;
  }
  all["biases of odd heads"].head_dim = 12;
  all["biases of odd heads"].attention_bias = true;
  all["halves of odd heads"].head_dim = 12;
  all["halves of odd heads"].dtype = DType::bf16;
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
  all["linear"].rope_scaling = R"({"type": "linear", "factor": 4.0})";
  all["llama3"].rope_scaling = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";
  all["one layer"].layers = 1;
  all["odd vocabulary"].vocab_size = 37;
  all.merge(testing::tiny_families());
  return all;
}

bool cuda_has_heads_of(std::int32_t head_dim) {
  for (const std::int32_t dim : {8, 16, 32, 64, 80, 96, 128, 192, 256}) {
    if (dim == head_dim) return true;
  }
  return false;
}

TEST_P(Forward, ChainAgreesWithTheReferenceInEveryVariant) {
  for (const auto& [name, spec] : variants()) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    write_tiny_model(folder.path(), spec);
    if (GetParam().name == std::string("cuda") && !cuda_has_heads_of(spec.head_dim)) {
      EXPECT_THROW(runner(folder.path(), {.max_rows = 24}), Error);
      continue;
    }
    const ModelReference reference(folder.path());
    const auto owner = runner(folder.path(), {.max_rows = 24});
    ChainRunner& run = *owner;
    const auto tokens = random_tokens(24, spec.vocab_size, 5);
    run.chain(tokens, {}, all_rows(tokens.size()));
    const auto wanted = reference.logits(tokens);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      expect_row(run, t, wanted[t], "row " + std::to_string(t));
    }
  }
}

TEST_P(Forward, TheShippedPairAgreesWithTheReference) {
  for (const char* name : {"target", "draft"}) {
    SCOPED_TRACE(name);
    const auto folder = std::filesystem::path(COPPICE_SOURCE_DIR) / "models/stories" / name;
    const ModelReference reference(folder);
    const auto owner = runner(folder, {.max_rows = 16});
    const auto tokens = random_tokens(10, reference.vocab_size(), 8);
    owner->chain(tokens, {}, {0, 4, 9});
    const auto wanted = reference.logits(tokens);
    for (const std::size_t row : {0, 1, 2}) {
      expect_row(*owner, row, wanted[row == 0 ? 0 : 5 * row - 1], "row " + std::to_string(row));
    }
  }
}

TEST_P(Forward, ChunksAndLogitSubsetsChangeNothing) {
  const TemporaryFolder folder;
  const TinyModel spec;
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  const auto tokens = random_tokens(20, spec.vocab_size, 6);
  const auto wanted = reference.logits(tokens);
  const auto owner = runner(folder.path(), {.max_rows = 8, .max_logit_rows = 3});
  ChainRunner& run = *owner;
  std::vector<KvSlot> prefix;
  const std::vector<std::pair<std::size_t, std::vector<std::int32_t>>> chunks = {
      {8, {}}, {1, {0}}, {7, {1, 3, 6}}, {4, {3}}};
  for (const auto& [count, rows] : chunks) {
    const std::vector<TokenId> chunk(
        tokens.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
        tokens.begin() + static_cast<std::ptrdiff_t>(prefix.size() + count));
    const auto slots = run.chain(chunk, prefix, rows);
    EXPECT_EQ(run.returned_null, rows.empty());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      expect_row(run, i, wanted[prefix.size() + static_cast<std::size_t>(rows[i])], "chunk");
    }
    prefix.insert(prefix.end(), slots.begin(), slots.end());
  }
}

/// Compares trees of up to `most_nodes` nodes and their root.
void expect_paths_to_be_chains(const Backend& backend, const TinyModel& spec, int trials,
                               unsigned most_nodes = 13) {
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  std::mt19937 random(7);
  for (int trial = 0; trial < trials; ++trial) {
    ChainRunner run(folder.path(), backend.make(), {.max_rows = 32});
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
    const int nodes = static_cast<int>(random() % (most_nodes + 1));
    for (int i = 0; i < nodes; ++i) {
      const auto parent = static_cast<std::int32_t>(random() % static_cast<unsigned>(tree.nodes()));
      const auto rank =
          static_cast<std::int32_t>(std::count(tree.parent.begin(), tree.parent.end(), parent));
      tree.add(parent, static_cast<TokenId>((random() % 6) * 15 + static_cast<unsigned>(rank)),
               rank, 0.5f, 0.5);
    }
    TreeOrder order;
    order.assign(tree);
    const std::int32_t rows = order.rows();
    std::vector<KvSlot> slots(static_cast<std::size_t>(rows));
    ASSERT_TRUE(run.pool.take(slots));
    std::vector<KvSegment> seen = {{prefix, 0, rows, true, 0}};
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> positions, wanted_rows;
    for (std::int32_t r = 0; r < rows; ++r) {
      const auto row = static_cast<std::size_t>(r);
      const auto node = static_cast<std::size_t>(order.node_of_row[row]);
      tokens.push_back(tree.token[node]);
      positions.push_back(static_cast<std::int32_t>(prefix.size()) + tree.depth[node]);
      seen.push_back({std::span(slots).subspan(row, 1), r, r + order.subtree_rows[row], false,
                      positions.back()});
      if (trial % 3 == 0 || r % 2 == 0) wanted_rows.push_back(r);
    }
    run.run(tokens, positions, slots, seen, wanted_rows);
    for (std::size_t i = 0; i < wanted_rows.size(); ++i) {
      std::vector<TokenId> path;
      for (std::int32_t node = order.node_of_row[static_cast<std::size_t>(wanted_rows[i])];
           node >= 0; node = tree.parent[static_cast<std::size_t>(node)]) {
        path.insert(path.begin(), tree.token[static_cast<std::size_t>(node)]);
      }
      path.insert(path.begin(), prompt.begin(), prompt.end());
      expect_row(run, i, reference.logits(path).back(),
                 "tree row " + std::to_string(wanted_rows[i]));
    }
  }
}

TEST_P(Forward, EveryPathOfATreeIsAChain) {
  TinyModel spec;
  spec.rope_scaling = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32})";
  expect_paths_to_be_chains(GetParam(), spec, 20);
  for (const auto& [name, family] : testing::tiny_families()) {
    SCOPED_TRACE(name);
    expect_paths_to_be_chains(GetParam(), family, 6);
  }
}

// GPUs have kernels for heads of real sizes, and for windows and caps, that take larger trees.
TEST_P(Forward, LargerTreesWithHeadsOfRealSizes) {
  const auto check = [&](const char* architecture, std::int32_t head_dim, const char* fields) {
    SCOPED_TRACE(architecture);
    TinyModel spec;
    spec.architecture = architecture;
    spec.head_dim = head_dim;
    spec.fields = fields;
    spec.layers = 2;
    expect_paths_to_be_chains(GetParam(), spec, 6, 31);
  };
  check("LlamaForCausalLM", 64, "");
  check("MistralForCausalLM", 64, R"("sliding_window": 4)");
  check("MistralForCausalLM", 96, R"("sliding_window": 5)");
  check("MistralForCausalLM", 128, R"("sliding_window": 6)");
  check("Gemma2ForCausalLM", 128,
        R"("sliding_window": 4, "query_pre_attn_scalar": 128, "attn_logit_softcapping": 2.0,
           "final_logit_softcapping": 3.0)");
  check("Gemma3ForCausalLM", 256,
        R"("sliding_window": 3, "sliding_window_pattern": 2, "query_pre_attn_scalar": 256,
           "rope_local_base_freq": 100.0)");
}

/// Texts in the KV of one model, each with a tree over it, run alone or in one pass.
struct Texts {
  struct Text {
    std::vector<TokenId> prompt;
    std::vector<KvSlot> prefix, slots;  ///< of the prompt, and of the tree's rows
    TokenTree tree;
    TreeOrder order;
  };
  std::vector<Text> texts;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions, logit_rows;
  std::vector<KvSlot> slots;
  std::vector<KvSegment> seen;

  Texts(ChainRunner& run, int count, std::mt19937& random) {
    const auto vocab = static_cast<TokenId>(run.model->config().vocab_size);
    for (int t = 0; t < count; ++t) {
      Text text;
      text.prompt = random_tokens(1 + random() % 60, vocab, random());
      text.prefix = run.chain(text.prompt, {}, {});
      text.tree = testing::random_tree(1 + static_cast<std::int32_t>(random() % 9), 9, random);
      for (TokenId& token : text.tree.token) {
        token = static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
      }
      text.order.assign(text.tree);
      text.slots.resize(text.tree.token.size());
      if (!run.pool.take(text.slots)) throw std::logic_error("the test's pool is too small");
      texts.push_back(std::move(text));
    }
  }
  /// Lists texts [first, end) for a pass.
  void list(std::size_t first, std::size_t end) {
    tokens.clear();
    positions.clear();
    logit_rows.clear();
    slots.clear();
    seen.clear();
    for (std::size_t t = first; t < end; ++t) {
      const Text& text = texts[t];
      const auto begin = static_cast<std::int32_t>(tokens.size());
      seen.push_back({text.prefix, begin, begin + text.order.rows(), true, 0});
      for (std::int32_t r = 0; r < text.order.rows(); ++r) {
        const auto row = static_cast<std::size_t>(r);
        const auto node = static_cast<std::size_t>(text.order.node_of_row[row]);
        tokens.push_back(text.tree.token[node]);
        positions.push_back(static_cast<std::int32_t>(text.prefix.size()) + text.tree.depth[node]);
        seen.push_back({std::span(text.slots).subspan(row, 1), begin + r,
                        begin + r + text.order.subtree_rows[row], false, positions.back()});
        slots.push_back(text.slots[row]);
        logit_rows.push_back(begin + r);
      }
    }
  }
  std::vector<std::vector<float>> run(ChainRunner& runner) const {
    runner.run(tokens, positions, slots, seen, logit_rows);
    return runner.logits;
  }
  /// Root and path down to a row's node, behind the prompt.
  std::vector<TokenId> path(std::size_t t, std::int32_t row) const {
    const Text& text = texts[t];
    std::vector<TokenId> path;
    for (std::int32_t node = text.order.node_of_row[static_cast<std::size_t>(row)]; node >= 0;
         node = text.tree.parent[static_cast<std::size_t>(node)]) {
      path.insert(path.begin(), text.tree.token[static_cast<std::size_t>(node)]);
    }
    path.insert(path.begin(), text.prompt.begin(), text.prompt.end());
    return path;
  }
};

TEST_P(Forward, SeveralTextsInOnePass) {
  const TemporaryFolder folder;
  const TinyModel spec;
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  // In products of bf16 what a row's sums are in which order follows from the number of rows.
  const bool bit_for_bit =
      GetParam().name != std::string("cuda") && GetParam().name != std::string("bf16");
  std::mt19937 random(17);
  for (const int count : {1, 2, 5, 9}) {
    ChainRunner run(folder.path(), GetParam().make(), {.max_rows = 128, .max_kv_tokens = 800}, 800);
    Texts texts(run, count, random);
    std::vector<std::vector<float>> alone;
    for (std::size_t t = 0; t < texts.texts.size(); ++t) {
      texts.list(t, t + 1);
      for (const auto& row : texts.run(run)) alone.push_back(row);
    }
    texts.list(0, texts.texts.size());
    const auto together = texts.run(run);
    ASSERT_EQ(together.size(), alone.size());
    std::size_t at = 0;
    for (std::size_t t = 0; t < texts.texts.size(); ++t) {
      for (std::int32_t row = 0; row < texts.texts[t].order.rows(); ++row, ++at) {
        if (bit_for_bit) {
          ASSERT_EQ(together[at], alone[at]) << count << " texts, row " << at;
        }
        expect_row(run, at, reference.logits(texts.path(t, row)).back(),
                   "text " + std::to_string(t) + ", row " + std::to_string(row));
      }
    }
  }
}

// What the check above compares with must be another where a pass mixes texts up.
TEST_P(Forward, ANeighboursKvIsNoticed) {
  const TemporaryFolder folder;
  const TinyModel spec;
  write_tiny_model(folder.path(), spec);
  const ModelReference reference(folder.path());
  ChainRunner run(folder.path(), GetParam().make(), {.max_rows = 128, .max_kv_tokens = 800}, 800);
  std::mt19937 random(18);
  Texts texts(run, 4, random);
  const auto errors = [&](const auto& plant) {
    texts.list(0, 4);
    plant();
    const auto logits = texts.run(run);
    std::size_t at = 0;
    double worst = 0.0;
    for (std::size_t t = 0; t < 4; ++t) {
      for (std::int32_t row = 0; row < texts.texts[t].order.rows(); ++row, ++at) {
        const auto wanted = reference.logits(texts.path(t, row)).back();
        worst = std::max(worst,
                         testing::logit_error(logits[at], wanted, run.model->config(),
                                              run.device->compute_dtype(), run.device->kv_dtype()));
      }
    }
    return worst;
  };
  EXPECT_LE(errors([] {}), 1.0);
  EXPECT_GT(errors([&] { ++texts.seen.front().q_end; }), 2.0) << "seen one row long";
  EXPECT_GT(errors([&] {
              const auto second = std::find_if(texts.seen.begin() + 1, texts.seen.end(),
                                               [](const KvSegment& s) { return s.former; });
              std::swap(texts.seen.front().slots, second->slots);
            }),
            2.0)
      << "slots of the next text";
  EXPECT_GT(errors([&] { texts.positions.back() = texts.positions.front(); }), 2.0)
      << "a position of the first text";
}

TEST_P(Forward, RefusesBatchesItCannotRun) {
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), {});
  const auto owner =
      runner(folder.path(), {.max_rows = 4, .max_logit_rows = 2, .max_positions = 8});
  ChainRunner& run = *owner;
  EXPECT_EQ(run.model->max_positions(), 8);
  const std::vector<TokenId> tokens = {1, 2};
  const std::vector<std::int32_t> positions = {0, 1}, rows = {0, 1};
  const std::vector<KvSlot> slots = {0, 1};
  const auto slot_of = [&](std::size_t row) { return std::span(slots).subspan(row, 1); };
  const std::vector<KvSegment> chain = {{slot_of(0), 0, 2, false, 0}, {slot_of(1), 1, 2, false, 1}};
  const ForwardBatch good = {tokens, positions, slots, chain, rows};
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
  with([&](ForwardBatch& b) { b.segments = {}; });  // rows that see nothing
  const std::vector<KvSegment> longer = {{slot_of(0), 0, 3, false, 0}},
                               blind = {{slot_of(0), 0, 1, false, 0}};
  with([&](ForwardBatch& b) { b.segments = longer; });
  with([&](ForwardBatch& b) { b.segments = blind; });
  const std::vector<KvSlot> hole = {no_slot};
  const std::vector<KvSegment> unwritten = {{hole, 0, 2, false, 0}};
  with([&](ForwardBatch& b) { b.segments = unwritten; });
  const std::vector<KvSlot> endless(100, 0);
  const std::vector<KvSegment> too_long = {{endless, 0, 2, true, 0}};
  with([&](ForwardBatch& b) { b.segments = too_long; });
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

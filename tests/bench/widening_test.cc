// Which element of the small model each element of the wide one is, and with what weight.
#include "widening.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"

namespace coppice::bench {
namespace {

//                         vocab hidden ffn layers heads kv dim context
constexpr ModelShape small = {96, 32, 56, 2, 4, 2, 16, 256};
constexpr ModelShape shipped_target = {4096, 512, 1376, 5, 4, 2, 128, 512};
constexpr ModelShape shipped_draft = {4096, 256, 688, 2, 2, 1, 128, 512};

ModelShape shape_of(std::int64_t hidden, std::int64_t ffn, std::int64_t layers, std::int64_t heads,
                    std::int64_t kv_heads) {
  return {small.vocab, hidden, ffn, layers, heads, kv_heads, small.head_dim, 256};
}

bool is_power_of_two(float value) {
  int exponent;
  return std::frexp(value, &exponent) == 0.5f;
}

TEST(Widening, ScalesAreBalancedPowersOfTwoThatSumToOne) {
  for (std::int64_t copies = 1; copies <= 64; ++copies) {
    const std::vector<float> scales = balanced_scales(copies);
    ASSERT_EQ(std::ssize(scales), copies);
    double sum = 0.0;  // exact: the parts are multiples of 2^-6
    for (const float scale : scales) {
      EXPECT_TRUE(is_power_of_two(scale)) << copies << ": " << scale;
      EXPECT_LE(scale, 2 * scales.back());
      EXPECT_GE(scale, scales.back());
      sum += static_cast<double>(scale);
    }
    EXPECT_EQ(sum, 1.0) << copies;
  }
  EXPECT_EQ(balanced_scales(3), (std::vector<float>{0.5f, 0.25f, 0.25f}));
  EXPECT_EQ(balanced_scales(8), std::vector<float>(8, 0.125f));
}

/// By tensor name.
std::map<std::string, WideTensor> made(const ModelShape& from, const ModelShape& to) {
  std::map<std::string, WideTensor> all;
  for (WideTensor& tensor : wide_tensors(from, false, 1e-5, to)) {
    const std::string name = tensor.tensor.name;
    EXPECT_TRUE(all.emplace(name, std::move(tensor)).second) << name;
  }
  return all;
}

void expect_every_one(const std::vector<std::int32_t>& copied, std::int64_t units) {
  const std::set<std::int32_t> seen(copied.begin(), copied.end());
  EXPECT_EQ(std::ssize(seen), units);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), units - 1);
}

// The weights of the copies of each element sum to exactly one.
void expect_shared_out(const std::vector<Column>& columns, std::int64_t units) {
  std::vector<double> sums(static_cast<std::size_t>(units), 0.0);
  for (const Column& column : columns) {
    EXPECT_TRUE(is_power_of_two(column.scale));
    sums.at(static_cast<std::size_t>(column.source)) += static_cast<double>(column.scale);
  }
  EXPECT_EQ(sums, std::vector<double>(static_cast<std::size_t>(units), 1.0));
}

TEST(Widening, EveryHeadUnitAndElementAppearsAndCountsOnce) {
  for (const ModelShape& wide : {shape_of(32, 56, 2, 4, 2), shape_of(64, 129, 3, 8, 8),
                                 shape_of(96, 168, 2, 16, 2), shape_of(320, 300, 2, 20, 5)}) {
    SCOPED_TRACE(wide.hidden);
    const auto tensors = made(small, wide);
    const std::string layer = "model.layers.1.";
    const auto copying = [&](const std::string& name) -> const Copying& {
      return *tensors.at(name + ".weight").copying;
    };
    const std::int64_t q = small.heads * small.head_dim, kv = small.kv_heads * small.head_dim;
    expect_every_one(copying(layer + "self_attn.q_proj").rows, q);
    expect_every_one(copying(layer + "self_attn.k_proj").rows, kv);
    expect_every_one(copying(layer + "self_attn.v_proj").rows, kv);
    EXPECT_EQ(copying(layer + "self_attn.k_proj").rows, copying(layer + "self_attn.v_proj").rows);
    expect_every_one(copying(layer + "mlp.gate_proj").rows, small.ffn);
    EXPECT_EQ(copying(layer + "mlp.gate_proj").rows, copying(layer + "mlp.up_proj").rows);
    for (const char* reads : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                              "mlp.gate_proj", "mlp.up_proj"}) {
      expect_shared_out(copying(layer + reads).columns, small.hidden);
    }
    expect_shared_out(copying("lm_head").columns, small.hidden);
    expect_shared_out(copying(layer + "self_attn.o_proj").columns, q);
    expect_shared_out(copying(layer + "mlp.down_proj").columns, small.ffn);
    for (const char* writes : {"self_attn.o_proj", "mlp.down_proj"}) {
      expect_every_one(copying(layer + writes).rows, small.hidden);
    }
  }
}

// A query head attends to a copy of its own KV head, and its output is read as its own.
TEST(Widening, QueryHeadsStayInTheirGroups) {
  for (const ModelShape& wide : {shape_of(64, 56, 2, 8, 8), shape_of(64, 56, 2, 16, 2),
                                 shape_of(64, 56, 2, 6, 3), shape_of(64, 56, 2, 24, 4)}) {
    SCOPED_TRACE(wide.heads);
    const auto tensors = made(small, wide);
    const auto& q = tensors.at("model.layers.0.self_attn.q_proj.weight").copying->rows;
    const auto& k = tensors.at("model.layers.0.self_attn.k_proj.weight").copying->rows;
    const auto& o = tensors.at("model.layers.0.self_attn.o_proj.weight").copying->columns;
    const std::int64_t dim = small.head_dim, group = wide.heads / wide.kv_heads;
    const std::int64_t small_group = small.heads / small.kv_heads;
    std::map<std::int64_t, std::int64_t> placed;
    ASSERT_EQ(std::ssize(q), wide.heads * dim);
    for (std::int64_t i = 0; i < std::ssize(q); ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(o[at].source, q[at]);
      EXPECT_EQ(q[at] % dim, i % dim);
      const std::int64_t head = q[at] / dim, kv_head = i / dim / group;
      EXPECT_EQ(head / small_group, k[static_cast<std::size_t>(kv_head * dim)] / dim);
      if (i % dim == 0) ++placed[head];
    }
    for (std::int64_t head = 0; head < small.heads; ++head) {
      EXPECT_EQ(placed[head], placed[head / small_group * small_group]) << head;
    }
  }
}

TEST(Widening, ExtraLayersComeLastAndAddNextToNothing) {
  for (const auto& [name, tensor] : made(small, shape_of(64, 112, 5, 8, 4))) {
    const bool extra = name.rfind("model.layers.2.", 0) == 0 ||
                       name.rfind("model.layers.3.", 0) == 0 ||
                       name.rfind("model.layers.4.", 0) == 0;
    EXPECT_EQ(tensor.copying == nullptr, extra) << name;
    EXPECT_EQ(tensor.source.empty(), extra) << name;
    const bool writes = name.find("o_proj") != name.npos || name.find("down_proj") != name.npos;
    EXPECT_EQ(tensor.factor, extra && writes ? 0x1p-40f : 1.0f) << name;
  }
}

bool is_bf16(float value) { return (std::bit_cast<std::uint32_t>(value) & 0xffffu) == 0; }

// All that is multiplied with weights is exact in bf16, the norms' epsilon stays near the small
// model's beside the stream, and far above what the norms that are to do nothing see.
TEST(Widening, ScalesOfFamiliesAreExact) {
  for (const auto& [name, shape] : known_shapes()) {
    SCOPED_TRACE(name);
    const FamilyScales scales = scales_of(shape, 1e-5);
    if (shape.family == ShapeFamily::llama) {
      EXPECT_EQ(scales.embedding, 1.0f);
      EXPECT_EQ(scales.stream, 1.0f);
      EXPECT_EQ(scales.epsilon, 1e-5);
      continue;
    }
    EXPECT_TRUE(is_power_of_two(scales.embedding));
    const bool is_gemma = shape.family == ShapeFamily::gemma3;
    const float embedded = is_gemma ? std::sqrt(static_cast<float>(shape.hidden)) : 1.0f;
    EXPECT_NEAR(scales.stream / scales.embedding, embedded, 0x1p-8f * embedded);
    for (const float weight : {scales.stream, scales.idle_norm, scales.idle_norm * scales.stream}) {
      EXPECT_TRUE(is_bf16(weight)) << weight;
    }
    const double stream = scales.stream, idle = scales.idle_norm;
    EXPECT_EQ(scales.epsilon, idle * idle);
    EXPECT_GT(scales.epsilon / (stream * stream), is_gemma ? 0.5e-5 : 0.99e-5);
    EXPECT_LT(scales.epsilon / (stream * stream), is_gemma ? 2e-5 : 1.01e-5);
    EXPECT_GT(scales.epsilon, 0x1p40);
  }
}

// Each rotated pair of a wider head either has the frequency of a pair of the small one, or no
// source; values and the columns that read them count once.
TEST(Widening, WiderHeadsKeepTheirFrequencies) {
  ModelShape wide = shape_of(64, 112, 3, 8, 4);
  wide.family = ShapeFamily::gemma3;
  wide.head_dim = 4 * small.head_dim;
  const auto tensors = made(small, wide);
  const auto copying = [&](const std::string& name) -> const Copying& {
    return *tensors.at("model.layers.1." + name + ".weight").copying;
  };
  const std::int64_t half = wide.head_dim / 2, small_half = small.head_dim / 2;
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj"}) {
    const auto& rows = copying(name).rows;
    std::int64_t idle = 0;
    for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
      const std::int32_t row = rows[static_cast<std::size_t>(i)];
      const std::int64_t element = i % wide.head_dim;
      if (row == Copying::no_source) {
        ++idle;
        continue;
      }
      EXPECT_EQ(element / half, row % small.head_dim / small_half);     // the same side of a pair
      EXPECT_EQ(element % half * small_half, row % small_half * half);  // the same frequency
    }
    EXPECT_EQ(4 * (std::ssize(rows) - idle), std::ssize(rows));
  }
  expect_every_one(copying("self_attn.v_proj").rows, small.kv_heads * small.head_dim);
  expect_shared_out(copying("self_attn.o_proj").columns, small.heads * small.head_dim);
  // The columns that read a value's copies are those that hold them.
  const auto& values = copying("self_attn.v_proj").rows;
  const auto& columns = copying("self_attn.o_proj").columns;
  const std::int64_t group = wide.heads / wide.kv_heads, small_group = small.heads / small.kv_heads;
  for (std::int64_t i = 0; i < std::ssize(columns); ++i) {
    const std::int64_t kv_element = i / wide.head_dim / group * wide.head_dim + i % wide.head_dim;
    const std::int32_t source = columns[static_cast<std::size_t>(i)].source;
    EXPECT_EQ(source / small.head_dim / small_group * small.head_dim + source % small.head_dim,
              values[static_cast<std::size_t>(kv_element)]);
  }
}

TEST(Widening, NormsThatLlamaLacksAreIdleInCopiedLayersAlone) {
  for (const ShapeFamily family : {ShapeFamily::qwen3, ShapeFamily::gemma3}) {
    const bool is_gemma = family == ShapeFamily::gemma3;
    ModelShape wide = shape_of(64, 112, 3, 8, 4);
    wide.family = family;
    const FamilyScales scales = scales_of(wide, 1e-5);
    const auto tensors = made(small, wide);
    const auto norm = [&](int layer, const std::string& name) {
      const WideTensor& tensor =
          tensors.at("model.layers." + std::to_string(layer) + "." + name + ".weight");
      EXPECT_EQ(tensor.copying, nullptr) << name;
      return tensor.tensor.norm;
    };
    for (const char* name : {"self_attn.q_norm", "self_attn.k_norm"}) {
      EXPECT_EQ(norm(1, name), scales.idle_norm);
      EXPECT_EQ(norm(2, name), is_gemma ? 0.0f : 1.0f);
    }
    EXPECT_EQ(tensors.count("model.layers.1.post_feedforward_layernorm.weight"),
              is_gemma ? 1u : 0u);
    if (!is_gemma) continue;
    for (const char* name : {"post_attention_layernorm", "post_feedforward_layernorm"}) {
      EXPECT_EQ(norm(0, name), scales.idle_norm * scales.stream);
      EXPECT_EQ(norm(2, name), 0.0f);
    }
    const WideTensor& ffn_norm = tensors.at("model.layers.1.pre_feedforward_layernorm.weight");
    EXPECT_EQ(ffn_norm.source, "model.layers.1.post_attention_layernorm.weight");
    EXPECT_EQ(ffn_norm.copying->added, -1.0f);
  }
}

TEST(Widening, ATiedTableBecomesAHeadOfItsOwn) {
  for (const WideTensor& tensor : wide_tensors(small, true, 1e-5, shape_of(64, 56, 2, 4, 2))) {
    if (tensor.tensor.name != "lm_head.weight") continue;
    EXPECT_EQ(tensor.source, "model.embed_tokens.weight");
    EXPECT_EQ(tensor.copying->columns[0].scale, 0.5f);
  }
}

TEST(Widening, ExtraLayersAreRandomOrZero) {
  for (const ExtraLayers extra : {ExtraLayers::random, ExtraLayers::zero}) {
    int zeros = 0, others = 0;
    for (const WideTensor& made :
         wide_tensors(small, false, 1e-5, shape_of(64, 56, 4, 4, 2), extra)) {
      if (made.copying) continue;
      std::vector<std::uint16_t> values(made.tensor.values);
      fill_random(made.tensor, 0, made.factor, values);
      const bool zero =
          std::count(values.begin(), values.end(), 0) == static_cast<std::ptrdiff_t>(values.size());
      // Norms are ones: a stream of zeros behind a norm of zeros would hide a layer that is lost.
      (zero ? zeros : others) += made.tensor.is_norm ? 0 : 1;
      EXPECT_FALSE(zero && made.tensor.is_norm);
    }
    const int matrices = 7 * (4 - static_cast<int>(small.layers));
    EXPECT_EQ(zeros, extra == ExtraLayers::zero ? matrices : 0);
    EXPECT_EQ(others, extra == ExtraLayers::zero ? 0 : matrices);
  }
}

TEST(Widening, ShapesThatDoNotFitAreRefused) {
  const auto expect_refused = [](ModelShape wide, const std::string& says) {
    try {
      wide_tensors(small, false, 1e-5, wide);
      ADD_FAILURE() << "accepted, though " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failure);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  expect_refused(shape_of(48, 56, 2, 4, 2), "hidden size 48");
  expect_refused(shape_of(16, 56, 2, 4, 2), "hidden size 16");
  expect_refused(shape_of(std::int64_t{1} << 40, 56, 2, 4, 2), "hidden size 1099511627776");
  expect_refused(shape_of(64, 55, 2, 4, 2), "FFN size 55");
  expect_refused(shape_of(64, 56, 1, 4, 2), "1 layers");
  expect_refused(shape_of(64, 56, 2, 4, 1), "4 heads and 1 KV heads");  // a KV head is lost
  expect_refused(shape_of(64, 56, 2, 2, 2), "2 heads and 2 KV heads");  // query heads are lost
  expect_refused(shape_of(64, 56, 2, 3, 3), "3 heads and 3 KV heads");  // 2 and 1 copies for 2
  expect_refused(shape_of(64, 56, 2, 7, 2), "7 heads and 2 KV heads");
  expect_refused(shape_of(64, 56, 2, 0, 0), "0 heads");
  ModelShape wide = shape_of(64, 56, 2, 4, 2);
  wide.head_dim = 32;
  expect_refused(wide, "heads of 32");
  wide = shape_of(64, 56, 2, 4, 2);
  wide.vocab = 97;
  expect_refused(wide, "vocabulary");
}

double cost_share(const FittedShape& fitted, const std::string& name) {
  return static_cast<double>(fitted.shape.streamed_parameters()) /
         static_cast<double>(known_shapes().at(name).streamed_parameters());
}

TEST(Widening, TheShippedPairFitsThePublishedShapesAtTheirCost) {
  struct Wanted {
    ModelShape from;
    const char* name;
    std::int64_t hidden, layers, heads, kv_heads, added_ffn;
  };
  // Added units make up for the head: (vocabulary - 4096) / (3 layers), to the nearest 64.
  for (const Wanted& w : {Wanted{shipped_target, "llama-2-7b", 4096, 32, 32, 32, 320},
                          Wanted{shipped_target, "llama-3-8b", 4096, 32, 32, 8, 1280},
                          Wanted{shipped_target, "llama-2-13b", 5120, 40, 40, 40, 256},
                          Wanted{shipped_draft, "llama-68m", 768, 2, 6, 6, 4672},
                          Wanted{shipped_draft, "tinyllama-1.1b", 2048, 22, 16, 2, 448}}) {
    SCOPED_TRACE(w.name);
    const ModelShape& published = known_shapes().at(w.name);
    const FittedShape fitted = fitted_shape(w.from, w.name, published);
    EXPECT_EQ(fitted.shape.vocab, 4096);
    EXPECT_EQ(fitted.shape.hidden, w.hidden);
    EXPECT_EQ(fitted.shape.layers, w.layers);
    EXPECT_EQ(fitted.shape.heads, w.heads);
    EXPECT_EQ(fitted.shape.kv_heads, w.kv_heads);
    EXPECT_EQ(fitted.shape.ffn, published.ffn + w.added_ffn);
    EXPECT_EQ(fitted.added_ffn, w.added_ffn);
    EXPECT_FALSE(fitted.notes.empty());
    // Rounding to a multiple of 64 units is the only difference.
    const double half_step = 32.0 * 3.0 * static_cast<double>(w.hidden * w.layers) /
                             static_cast<double>(published.streamed_parameters());
    EXPECT_NEAR(cost_share(fitted, w.name), 1.0, half_step);
  }
}

TEST(Widening, WhatDoesNotFitAPublishedShapeCostsTheSame) {
  const FittedShape fitted =
      fitted_shape(shipped_target, "llama-68m", known_shapes().at("llama-68m"));
  EXPECT_EQ(fitted.shape.hidden, 1024);
  EXPECT_EQ(fitted.shape.layers, 5);
  EXPECT_NEAR(cost_share(fitted, "llama-68m"), 1.0, 0.02);
  EXPECT_EQ(fitted.notes.size(), 4u);  // hidden size, layers, heads, FFN
  // Too large to be hidden in it.
  const ModelShape& large = known_shapes().at("llama-3-8b");
  EXPECT_THROW(fitted_shape(large, "llama-68m", known_shapes().at("llama-68m")), Error);
}

TEST(Widening, APublishedShapeFitsItselfUnchanged) {
  for (const auto& [name, shape] : known_shapes()) {
    const FittedShape fitted = fitted_shape(shape, name, shape);
    EXPECT_EQ(fitted.shape.ffn, shape.ffn) << name;
    EXPECT_EQ(fitted.shape.heads, shape.heads) << name;
    EXPECT_TRUE(fitted.notes.empty()) << name << ": " << fitted.notes.front();
  }
}

TEST(Widening, RowsAreCopiedExactlyAndRoundedToNearestEven) {
  const std::vector<float> row = {1.0f, -3.0f, 0x1.01p0f, 0x1.03p0f, 0x1.0101p0f};
  const std::vector<Column> columns = {{1, 0.25f}, {0, 1.0f}, {2, 1.0f}, {3, 1.0f}, {4, 1.0f}};
  std::vector<std::uint16_t> out(columns.size());
  copy_row(row, columns, 0.0f, out);
  const std::vector<float> wanted = {-0.75f, 1.0f, 0x1.00p0f, 0x1.04p0f, 0x1.02p0f};
  for (std::size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(out[i]) << 16), wanted[i]) << i;
  }
}

}  // namespace
}  // namespace coppice::bench

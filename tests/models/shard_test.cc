// What each rank gets of a model: together all of it, and nothing twice but KV heads.
#include "models/shard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/config.h"
#include "models/sliced_bytes.h"
#include "reference/quantised.h"

namespace coppice::shard_test {

ModelConfig config_of(std::int32_t heads, std::int32_t kv_heads, std::int64_t ffn,
                      std::int64_t vocab) {
  ModelConfig config;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = 64;
  config.intermediate_size = ffn;
  config.vocab_size = vocab;
  return config;
}

void expect_whole(const std::vector<Slice>& slices, std::int64_t all) {
  std::int64_t next = 0;
  for (const Slice& slice : slices) {
    EXPECT_EQ(slice.begin, next);
    EXPECT_GT(slice.count, 0);
    next = slice.end();
  }
  EXPECT_EQ(next, all);
}

TEST(Shard, RanksTogetherHaveTheModel) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const std::int32_t kv_heads : {1, 2, 4, 8, 32}) {
      SCOPED_TRACE(cat(ranks, " ranks, ", kv_heads, " KV heads"));
      const ModelConfig config = config_of(32, kv_heads, 11008, 32001);
      std::vector<Slice> heads, ffn, vocab;
      for (int rank = 0; rank < ranks; ++rank) {
        const ModelSlice slice = slice_of(config, {}, {rank, ranks});
        heads.push_back(slice.heads);
        ffn.push_back(slice.ffn);
        vocab.push_back(slice.vocab);
        EXPECT_EQ(slice.kv_heads.count, kv_heads_of_rank(config, ranks));
        EXPECT_EQ(vocab_widths(config, ranks)[static_cast<std::size_t>(rank)], slice.vocab.count);
        // Query head h reads KV head h / group, of the model and of the rank.
        const std::int64_t group = config.heads / kv_heads,
                           own = slice.heads.count / slice.kv_heads.count;
        for (std::int64_t head = 0; head < slice.heads.count; ++head) {
          EXPECT_EQ((slice.heads.begin + head) / group, slice.kv_heads.begin + head / own);
        }
      }
      expect_whole(heads, config.heads);
      expect_whole(ffn, config.intermediate_size);
      expect_whole(vocab, config.vocab_size);
    }
  }
}

// 11008 are 43 blocks of 256: ranks have 21 and 22 of them. Without blocks they have as many each.
TEST(Shard, SplitsAtBlocks) {
  const ModelConfig config = config_of(32, 32, 11008, 32000);
  EXPECT_EQ(slice_of(config, {1, 256}, {0, 2}).ffn, (Slice{0, 21 * 256}));
  EXPECT_EQ(slice_of(config, {1, 256}, {1, 2}).ffn, (Slice{21 * 256, 22 * 256}));
  EXPECT_EQ(slice_of(config, {}, {0, 2}).ffn, (Slice{0, 5504}));
  EXPECT_EQ(slice_of(config, {}, {1, 4}).ffn, (Slice{2752, 2752}));
  EXPECT_EQ(slice_of(config, {32, 32}, {1, 4}).ffn, (Slice{2752, 2752}));
}

void expect_refused(const ModelConfig& config, const BlockBorders& borders, int ranks,
                    const std::string& why) {
  try {
    (void)slice_of(config, borders, {0, ranks});
    ADD_FAILURE() << "split over " << ranks;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
}

TEST(Shard, RefusesWhatDoesNotDivide) {
  expect_refused(config_of(32, 8, 1024, 100), {}, 3, "32 heads");
  expect_refused(config_of(12, 4, 1024, 100), {}, 6, "4 KV heads");
  expect_refused(config_of(6, 6, 1024, 100), {256, 1}, 2, "o_proj");
  expect_refused(config_of(8, 8, 512, 100), {1, 256}, 4, "down_proj");
  expect_refused(config_of(8, 8, 512, 3), {}, 4, "3 tokens");
}

// Read in pieces of any whole number of rows, as devices do.
TEST(SlicedBytes, AreThoseOfTheMatrix) {
  constexpr std::int64_t out = 9, in = 1024;
  std::mt19937 random(3);
  for (const WeightFormat format : all_weight_formats) {
    SCOPED_TRACE(std::string(name_of(format)));
    std::vector<std::byte> matrix(bytes_of(format, out * in));
    for (std::byte& byte : matrix) byte = static_cast<std::byte>(random() & 255u);
    const Slice rows{2, 5}, columns{256, 512};
    const std::size_t row = bytes_of(format, in), part = bytes_of(format, 512),
                      first = bytes_of(format, 256);
    std::vector<std::byte> read(5 * row);
    rows_of(matrix.data(), format, in, rows).read(0, read);
    EXPECT_EQ(std::memcmp(read.data(), matrix.data() + 2 * row, read.size()), 0);
    for (const std::size_t step : {std::size_t{1}, std::size_t{4}, std::size_t{9}}) {
      std::vector<std::byte> picked(9 * part);
      for (std::size_t begin = 0; begin < 9; begin += step) {
        const std::size_t count = std::min(step, 9 - begin);
        columns_of(matrix.data(), format, in, columns)
            .read(begin * part, std::span(picked).subspan(begin * part, count * part));
      }
      for (std::size_t r = 0; r < 9; ++r) {
        EXPECT_EQ(std::memcmp(picked.data() + r * part, matrix.data() + r * row + first, part), 0);
      }
    }
    if (!dtype_of(format)) continue;
    // Of plain numbers also from within a row.
    std::vector<std::byte> some(part);
    columns_of(matrix.data(), format, in, columns).read(part / 2, some);
    EXPECT_EQ(std::memcmp(some.data(), matrix.data() + first + part / 2, part / 2), 0);
    EXPECT_EQ(std::memcmp(some.data() + part / 2, matrix.data() + row + first, part / 2), 0);
  }
}

}  // namespace coppice::shard_test

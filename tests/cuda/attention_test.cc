#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "cuda/attention_problem.h"

namespace coppice::cuda {
namespace {

using testing::AttentionCase;
using testing::AttentionOutputs;
using testing::AttentionProblem;
using testing::DeviceAttention;
using testing::worst_error;

std::string name_of(const ResidentBlocks& blocks) {
  if (blocks.ranges == 0) return "items";
  return "ranges, tiles of " + std::to_string(blocks.range_tiles.rows) + " rows, " +
         std::to_string(blocks.range_tiles.tokens) + " tokens";
}

class CudaAttention : public testing::KernelTest {
 protected:
  AttentionOutputs run(const AttentionProblem& problem, const ResidentBlocks& blocks) {
    return DeviceAttention(problem, blocks).run(stream_);
  }
  /// The portable kernel, and those of the device at hand where it has any.
  template <typename Queue>
  cudaGraphExec_t record(Queue queue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    queue();
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return executable;
  }
  static std::vector<ResidentBlocks> kernels(std::int32_t head_dim) {
    const ResidentBlocks blocks = prepare_attention(head_dim);
    ResidentBlocks portable = blocks;
    portable.ranges = 0;
    std::vector<ResidentBlocks> all = {portable};
    for (const RangeTiles tiles :
         {RangeTiles{0, range_half_tokens}, {0, range_tile_tokens}, {range_narrow_tile, 0}}) {
      ResidentBlocks by_ranges = blocks;
      by_ranges.range_tiles = tiles;
      if (blocks.ranges > 0) all.push_back(by_ranges);
    }
    return all;
  }
};

/// Every head_dim that has a kernel, and every kind of group.
class CudaAttentionShapes : public CudaAttention,
                            public ::testing::WithParamInterface<std::tuple<int, int>> {};

TEST_P(CudaAttentionShapes, RandomTrees) {
  const auto [head_dim, group] = GetParam();
  std::uint32_t seed = 0;
  for (const ResidentBlocks& blocks : kernels(head_dim)) {
    for (const std::int32_t prefix : {0, 1, 15, 63, 64, 65, 1000, 5000}) {
      for (const std::int32_t rows : {1, 2, 17, 64, 130, 300}) {
        AttentionCase c;
        c.head_dim = head_dim;
        c.group = group;
        c.kv_heads = 1 + static_cast<std::int32_t>(++seed % 3);
        c.prefix = prefix;
        c.rows = rows;
        c.reach = seed % 4 == 0 ? 1 : seed % 4 == 1 ? 5 : 1000;
        const AttentionProblem problem(c, seed);
        ASSERT_LE(worst_error(problem, run(problem, blocks)), 1.0)
            << c.kv_heads << " KV heads, prefix " << prefix << ", rows " << rows << " of "
            << problem.c.padded_rows << ", reach " << c.reach << ", " << name_of(blocks);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionShapes,
                         ::testing::Combine(::testing::Values(64, 80, 96, 128, 192, 256),
                                            ::testing::Values(1, 2, 3, 4, 7, 8, 16)));

TEST_F(CudaAttention, EveryRowCountUpTo40) {
  for (const ResidentBlocks& blocks : kernels(64)) {
    for (std::int32_t rows = 1; rows <= 40; ++rows) {
      for (const std::int32_t group : {1, 3, 4, 16}) {
        const AttentionProblem problem({.head_dim = 64, .group = group, .prefix = 90, .rows = rows},
                                       static_cast<std::uint32_t>(rows));
        ASSERT_LE(worst_error(problem, run(problem, blocks)), 1.0)
            << rows << " rows, group " << group << ", " << name_of(blocks);
      }
    }
  }
}

// The plan's chunks, and with them the order of sums, follow from the resident blocks.
TEST_F(CudaAttention, AnyNumberOfResidentBlocks) {
  prepare_attention(80);
  for (const ResidentBlocks& blocks : {ResidentBlocks{1, 1}, {3, 2}, {40, 50}, {1000, 700}}) {
    for (const std::int32_t rows : {1, 4, 30, 70}) {
      const AttentionProblem problem(
          {.head_dim = 80, .kv_heads = 2, .group = 4, .prefix = 700, .rows = rows},
          static_cast<std::uint32_t>(rows));
      ASSERT_LE(worst_error(problem, run(problem, blocks)), 1.0)
          << blocks.narrow << "/" << blocks.wide << " blocks, " << rows << " rows";
    }
  }
}

// Ranges of every length, with units shared by many blocks and blocks with many units.
TEST_F(CudaAttention, AnyNumberOfRanges) {
  const ResidentBlocks blocks = prepare_attention(64);
  if (blocks.ranges == 0) GTEST_SKIP() << "no kernel that takes ranges";
  for (const std::int32_t ranges : {1, 2, 3, 7, 50, blocks.ranges}) {
    for (const std::int32_t rows : {15, 33, 64, 200}) {
      for (const std::int32_t kv_heads : {1, 3, 20}) {
        for (const std::int32_t tokens : {range_half_tokens, range_tile_tokens}) {
          const AttentionProblem problem({.head_dim = 64,
                                          .kv_heads = kv_heads,
                                          .group = rows == 33 ? 1 : 4,
                                          .prefix = kv_heads == 20 ? 300 : 1500,
                                          .rows = rows},
                                         static_cast<std::uint32_t>(rows));
          DeviceAttention device(problem, {blocks.narrow, blocks.wide, ranges, {0, tokens}});
          const auto out = device.run(stream_);
          ASSERT_LE(worst_error(problem, out), 1.0) << ranges << " ranges, " << rows << " rows, "
                                                    << kv_heads << " KV heads, tiles of " << tokens;
          // Blocks without a range change nothing.
          EXPECT_EQ(out, device.run(blocks, stream_));
        }
      }
    }
  }
}

// One or a few rows take ranges, too, where there are many tokens.
TEST_F(CudaAttention, FewRowsOverManyTokens) {
  for (const std::int32_t head_dim : {64, 128}) {
    const ResidentBlocks blocks = prepare_attention(head_dim);
    for (const std::int32_t rows : {1, 2, 4}) {
      const AttentionProblem problem(
          {.head_dim = head_dim, .kv_heads = 3, .prefix = 34000, .rows = rows},
          static_cast<std::uint32_t>(rows));
      EXPECT_EQ(problem.plan(blocks).launch.takes_ranges(), blocks.ranges != 0);
      DeviceAttention device(problem, blocks);
      const auto out = device.run(stream_);
      EXPECT_LE(worst_error(problem, out), 1.0) << head_dim << ", " << rows << " rows";
      EXPECT_EQ(out, device.run(stream_));
    }
  }
}

// Pages in order and all other slots take different ways into shared memory.
TEST_F(CudaAttention, PagesInOrderAndNot) {
  for (const std::int32_t head_dim : {64, 128}) {
    for (const ResidentBlocks& blocks : kernels(head_dim)) {
      for (const std::int32_t rows : {20, 70}) {
        for (const int scattered : {0, 1, 2, 3}) {
          AttentionProblem problem({.head_dim = head_dim,
                                    .kv_heads = 2,
                                    .prefix = 1000,
                                    .rows = rows,
                                    .holes = 0,
                                    .pages_in_order = true},
                                   3);
          auto& prefix = problem.prefix;
          if (scattered == 1) prefix[517] = no_slot;
          if (scattered == 2) std::swap(prefix[3], prefix[9]);
          if (scattered == 3) std::rotate(prefix.begin(), prefix.begin() + 5, prefix.end());
          EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0)
              << head_dim << ", " << rows << " rows, " << scattered << ", " << name_of(blocks);
        }
      }
    }
  }
}

// Tails of several windows of 1024 tokens, seen sparsely and wholly.
TEST_F(CudaAttention, LongTails) {
  for (const ResidentBlocks& blocks : kernels(64)) {
    for (const std::int32_t reach : {1, 30}) {
      const AttentionProblem problem(
          {.head_dim = 64, .group = 2, .prefix = 77, .rows = 2500, .reach = reach}, 8);
      EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0)
          << "reach " << reach << ", " << name_of(blocks);
    }
  }
}

// A row tile's tail is shared among blocks like the prefix.
TEST_F(CudaAttention, LongBranches) {
  for (const ResidentBlocks& blocks : kernels(128)) {
    for (const std::int32_t rows : {17, 50}) {
      const AttentionProblem problem(
          {.kv_heads = 2, .prefix = 1000, .rows = rows, .branch_tokens = 150}, 6);
      DeviceAttention device(problem, blocks);
      const auto out = device.run(stream_);
      EXPECT_LE(worst_error(problem, out), 1.0) << rows << " rows, " << name_of(blocks);
      EXPECT_EQ(out, device.run(stream_));
    }
  }
}

// Rows of a tile, and tiles of a gang, then have nothing in common.
TEST_F(CudaAttention, SeveralTexts) {
  for (const std::int32_t head_dim : {64, 128}) {
    for (const ResidentBlocks& blocks : kernels(head_dim)) {
      for (const std::int32_t texts : {2, 7, 64}) {
        for (const std::int32_t rows : {texts, 3 * texts + 1, 260}) {
          for (const std::int32_t prefix : {texts, 300, 40 * texts + 11, 9000}) {
            const AttentionProblem problem({.head_dim = head_dim,
                                            .kv_heads = 2,
                                            .group = rows % 2 == 0 ? 4 : 1,
                                            .prefix = prefix,
                                            .rows = rows,
                                            .pages_in_order = prefix != 300,
                                            .texts = texts,
                                            .by_boxes = prefix % 100 == 0},
                                           static_cast<std::uint32_t>(rows));
            DeviceAttention device(problem, blocks);
            const auto out = device.run(stream_);
            ASSERT_LE(worst_error(problem, out), 1.0)
                << texts << " texts, " << rows << " rows, " << prefix << " tokens before them, "
                << name_of(blocks);
            ASSERT_EQ(out, device.run(stream_));
          }
        }
      }
    }
  }
}

TEST_F(CudaAttention, SeveralTextsBehindAPrefix) {
  for (const ResidentBlocks& blocks : kernels(128)) {
    for (const std::int32_t texts : {2, 33}) {
      for (const std::int32_t rows : {texts, 4 * texts + 1}) {
        for (const std::int32_t shared : {5, 700, 6000}) {
          for (const bool by_boxes : {false, true}) {
            const AttentionProblem problem({.kv_heads = 2,
                                            .group = rows % 2 == 0 ? 4 : 1,
                                            .prefix = 90 * texts,
                                            .rows = rows,
                                            .pages_in_order = shared != 700,
                                            .texts = texts,
                                            .shared = shared,
                                            .by_boxes = by_boxes},
                                           static_cast<std::uint32_t>(rows));
            DeviceAttention device(problem, blocks);
            const auto out = device.run(stream_);
            ASSERT_LE(worst_error(problem, out), 1.0)
                << texts << " texts, " << rows << " rows behind " << shared << " tokens, "
                << (by_boxes ? "boxes first, " : "") << name_of(blocks);
            ASSERT_EQ(out, device.run(stream_));
          }
        }
      }
    }
  }
}

/// How the halves of wide row tiles see the KV tiles of their units, in the order that these are
/// read in.
struct LeftOut {
  int launches = 0;  ///< in which halves leave tiles out
  int first = 0;     ///< halves that leave their first one out
  int one = 0;       ///< places where one is left out between others that are seen,
  int more = 0;      ///< or several are

  void count(const AttentionProblem& problem, const AttentionProblem::Plan& plan) {
    if (!plan.launch.leaves_out) return;
    ++launches;
    const std::int32_t tile_tokens = plan.launch.tiles.tokens, group = problem.c.group;
    const auto prefix = static_cast<std::int32_t>(problem.prefix.size());
    for (std::int32_t t = 0; t < plan.scalars.cut.row_tiles; ++t) {
      const RowTile& tile = plan.row_tiles[static_cast<std::size_t>(t)];
      const std::int32_t tiles = (prefix + tile.seen() + tile_tokens - 1) / tile_tokens;
      const TileOrder order(prefix / tile_tokens, tiles,
                            (prefix + tile.lower_tokens) / tile_tokens);
      for (std::int32_t begin = tile.rows.begin; begin < tile.rows.end; begin += range_half_tile) {
        const std::int32_t end = std::min(begin + range_half_tile, tile.rows.end);
        const IndexRange queries{begin / group, (end - 1) / group + 1};
        std::int32_t left_out = 0;
        bool seen_before = false;
        for (std::int32_t place = 0; place < tiles; ++place) {
          if (!sees(plan, tile, queries, prefix, order[place] * tile_tokens, tile_tokens)) {
            ++left_out;
            continue;
          }
          first += !seen_before && left_out > 0 ? 1 : 0;
          one += seen_before && left_out == 1 ? 1 : 0;
          more += seen_before && left_out > 1 ? 1 : 0;
          left_out = 0;
          seen_before = true;
        }
      }
    }
  }

 private:
  static bool sees(const AttentionProblem::Plan& plan, const RowTile& tile, IndexRange queries,
                   std::int32_t prefix, std::int32_t begin, std::int32_t count) {
    if (begin < prefix) return true;
    for (std::int32_t rank = begin - prefix; rank < begin - prefix + count; ++rank) {
      for (std::int32_t run = 0; run < RowTile::most_runs; ++run) {
        if (rank < tile.first[run] || rank >= tile.end[run]) continue;
        const VisibleKv& token =
            plan.tail[static_cast<std::size_t>(tile.begin[run] + rank - tile.first[run])];
        if (!intersection({token.q_begin, token.q_end}, queries).empty()) return true;
      }
    }
    return false;
  }
};

// Row tiles of 128 for several texts, whose halves multiply different KV tiles, and the same with
// turns; groups of 3 and 7 have queries of which either half has rows.
TEST_F(CudaAttention, HalvesLeaveTilesOut) {
  constexpr std::pair<bool, bool> ways[] = {{false, true}, {true, true}, {true, false}};
  LeftOut left_out;
  for (const std::int32_t head_dim : {64, 128}) {
    ResidentBlocks blocks = prepare_attention(head_dim);
    if (blocks.ranges == 0) GTEST_SKIP() << "no kernel that takes ranges";
    if (head_dim == 64) blocks.ranges = 8;
    for (const std::int32_t tokens : {range_half_tokens, range_tile_tokens}) {
      for (const std::int32_t group : {1, 3, 4, 7}) {
        for (const std::int32_t texts : {5, 21, 64}) {
          for (const std::int32_t shared : {0, 700}) {
            for (const auto& [by_boxes, leaves_out] : ways) {
              const AttentionProblem problem({.head_dim = head_dim,
                                              .kv_heads = 2,
                                              .group = group,
                                              .prefix = texts * 150 + 7,
                                              .rows = texts * (texts < 21 ? 9 : 2) + 1,
                                              .pages_in_order = true,
                                              .texts = texts,
                                              .shared = shared,
                                              .by_boxes = by_boxes,
                                              .leaves_out = leaves_out},
                                             static_cast<std::uint32_t>(texts));
              blocks.range_tiles = {range_wide_tile, tokens};
              left_out.count(problem, problem.plan(blocks));
              DeviceAttention device(problem, blocks);
              const auto out = device.run(stream_);
              ASSERT_EQ(out.launch.leaves_out, leaves_out);
              ASSERT_LE(worst_error(problem, out), 1.0)
                  << texts << " texts, group " << group << ", behind " << shared << " tokens, "
                  << (by_boxes ? "boxes first, " : "") << (leaves_out ? "" : "with turns, ")
                  << "heads of " << head_dim << ", tiles of " << tokens;
              for (int again = 0; again < 5; ++again) ASSERT_EQ(out, device.run(stream_));
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(left_out.launches, 192);
  EXPECT_GE(left_out.first, 50);
  EXPECT_GE(left_out.one, 500);
  EXPECT_GE(left_out.more, 100);
}

TEST_F(CudaAttention, ANeighboursTokensAreNoticed) {
  for (const ResidentBlocks& blocks : kernels(64)) {
    const AttentionProblem problem(
        {.head_dim = 64, .kv_heads = 2, .prefix = 400, .rows = 40, .holes = 0, .texts = 8}, 15);
    DeviceAttention device(problem, blocks);
    ASSERT_LE(worst_error(problem, device.run(stream_)), 1.0);
    // What a text has from before, seen one row long: by the next text's first row.
    AttentionProblem longer = problem;
    for (VisibleKv& token : longer.tail) {
      if (token.q_end - token.q_begin > 1) token.q_end = std::min(token.q_end + 1, problem.c.rows);
    }
    device.set_tail(longer.tail);
    device.set_plan(longer.plan(blocks));
    EXPECT_GT(worst_error(problem, device.run(stream_)), 2.0) << name_of(blocks);
    // A slot of the next text's.
    std::vector<VisibleKv> tail = problem.tail;
    tail.front().slot = tail.back().slot;
    device.set_tail(tail);
    device.set_plan(problem.plan(blocks));
    EXPECT_GT(worst_error(problem, device.run(stream_)), 2.0) << name_of(blocks);
  }
}

TEST_F(CudaAttention, SameBitsAtAnyGridAndTime) {
  const ResidentBlocks blocks = kernels(128).front();
  for (const std::int32_t rows : {1, 4, 40, 200}) {
    const AttentionProblem problem({.kv_heads = 2, .prefix = 3000, .rows = rows}, 77);
    DeviceAttention device(problem, blocks);
    const auto first = device.run(stream_);
    EXPECT_EQ(first, device.run(stream_));
    EXPECT_EQ(first, device.run({1, 1}, stream_));
    EXPECT_EQ(first, device.run({5, 7}, stream_));
    EXPECT_EQ(first, device.run({4096, 4096}, stream_));
  }
}

TEST_F(CudaAttention, SameBitsAtAnyTime) {
  for (const ResidentBlocks& blocks : kernels(128)) {
    for (const std::int32_t rows : {5, 40, 200}) {
      const AttentionProblem problem({.kv_heads = 3, .prefix = 5000, .rows = rows}, 78);
      DeviceAttention device(problem, blocks);
      const auto first = device.run(stream_);
      for (int repeat = 0; repeat < 25; ++repeat) ASSERT_EQ(first, device.run(stream_));
    }
  }
}

// Launches that begin early read nothing early that the kernel before them writes.
TEST_F(CudaAttention, WaitsForWhatIsWrittenLate) {
  for (const ResidentBlocks& blocks : kernels(128)) {
    for (const std::int32_t prefix : {0, 100, 3000}) {
      for (const std::int32_t rows : {1, 20, 70}) {
        for (const std::int32_t texts : {1, 7}) {
          if (rows < texts || prefix < texts) continue;
          const AttentionProblem problem(
              {.kv_heads = 2, .prefix = prefix, .rows = rows, .texts = texts}, 21);
          DeviceAttention device(problem, blocks);
          const auto out = device.run_after_late_writes(stream_, stream_);
          EXPECT_LE(worst_error(problem, out), 1.0)
              << texts << " texts, " << prefix << " tokens before " << rows << " rows, "
              << name_of(blocks);
        }
      }
    }
    // What does not wait, as nothing does for another stream, is noticed. Not with ranges: their
    // blocks fill every multiprocessor, so that nothing runs beside them.
    if (blocks.ranges > 0) continue;
    const AttentionProblem problem({.kv_heads = 2, .prefix = 100, .rows = 20}, 21);
    DeviceAttention device(problem, blocks);
    const testing::TestStream other;
    EXPECT_GT(worst_error(problem, device.run_after_late_writes(other.get(), stream_)), 2.0);
  }
}

// Blocks wait for one another: launches on two streams must not wait for each other's room.
TEST_F(CudaAttention, TwoStreamsAtATime) {
  const ResidentBlocks blocks = prepare_attention(128);
  const testing::TestStream other;
  const AttentionProblem problem({.kv_heads = 8, .prefix = 1500, .rows = 40}, 31);
  DeviceAttention here(problem, blocks), there(problem, blocks);
  const auto expected = here.run(stream_);
  here.poison_results();
  there.poison_results();
  for (int launch = 0; launch < 2000; ++launch) {
    here.queue(blocks, stream_);
    there.queue(blocks, other.get());
  }
  EXPECT_EQ(expected, here.result());
  EXPECT_EQ(expected, there.result());
}

// Partial results are scaled row by row.
TEST_F(CudaAttention, ValuesOfAnyMagnitude) {
  for (const ResidentBlocks& blocks : kernels(128)) {
    for (const std::int32_t exponent : {1, 12, 40, 100}) {
      for (const std::int32_t rows : {5, 40}) {
        const AttentionProblem problem(
            {.kv_heads = 2, .prefix = 2500, .rows = rows, .value_exponent = exponent}, 14);
        EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0)
            << "2^" << exponent << ", " << rows << " rows, " << name_of(blocks);
      }
    }
  }
}

TEST_F(CudaAttention, PagesOfAnySize) {
  for (const ResidentBlocks& blocks : kernels(128)) {
    for (const std::int32_t page_size : {1, 4, 32, 48, 100}) {
      for (const bool in_order : {false, true}) {
        const AttentionProblem problem({.kv_heads = 2,
                                        .prefix = 900,
                                        .rows = 40,
                                        .holes = 0,
                                        .pages_in_order = in_order,
                                        .page_size = page_size},
                                       41);
        EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0)
            << "pages of " << page_size << ", " << in_order << ", " << name_of(blocks);
      }
    }
  }
}

// Long sums are checked where every token counts alike: keys 0, and token t of T has a 1 in
// element t * head_dim / T, so that every element of the output is a share of the tokens.
TEST_F(CudaAttention, VeryLongPrefixCountsEveryToken) {
  constexpr std::int32_t tokens = 131072;
  for (const auto& [blocks, rows] : {std::pair{kernels(128).front(), 1},
                                     {kernels(128).front(), 20},
                                     {kernels(128)[kernels(128).size() / 2], 20},
                                     {kernels(128).back(), 20}}) {
    AttentionProblem problem(
        {.group = 2, .prefix = tokens - rows, .rows = rows, .reach = 1, .holes = 0}, 5);
    const std::uint16_t one = testing::nearest_bf16(1.0f);
    std::fill(problem.keys.begin(), problem.keys.end(), std::uint16_t{0});
    std::fill(problem.values.begin(), problem.values.end(), std::uint16_t{0});
    const auto all = problem.tokens();
    std::vector<std::int32_t> element_of;
    std::int32_t counted = 0;
    for (const VisibleKv& token : all) {
      const bool counts = token.slot >= 0 && token.q_begin < token.q_end;
      element_of.push_back(counts ? counted / (tokens / 128) : -1);
      if (!counts) continue;
      ++counted;
      const auto element = static_cast<std::size_t>(element_of.back());
      problem.values[problem.pool_row(token.slot, 0) + element] = one;
    }
    ASSERT_EQ(counted, tokens);
    const auto out = run(problem, blocks);
    for (std::int32_t row = 0; row < rows; ++row) {
      std::vector<double> share(128, 0.0);
      double seen = 0;
      for (std::size_t t = 0; t < all.size(); ++t) {
        if (element_of[t] < 0 || row < all[t].q_begin || row >= all[t].q_end) continue;
        ++share[static_cast<std::size_t>(element_of[t])];
        ++seen;
      }
      for (std::size_t i = 0; i < 2 * 128; ++i) {
        // Counts and weights are exact in f32: all error is the output's rounding and, by far
        // smaller, the join.
        const double expected = share[i % 128] / seen;
        ASSERT_NEAR(testing::widened(out[static_cast<std::size_t>(row) * 256 + i]), expected,
                    expected * std::ldexp(1.01, -8))
            << "row " << row << " element " << i;
      }
    }
  }
}

TEST_F(CudaAttention, VeryLongPrefix) {
  for (const std::int32_t rows : {1, 7, 33}) {
    AttentionProblem problem({.prefix = 131072, .rows = rows}, static_cast<std::uint32_t>(rows));
    // Few tokens with most of the weight, all over the prefix: losing a chunk shows.
    for (float& value : problem.q) value *= 2.0f;
    for (const ResidentBlocks& blocks : kernels(128)) {
      EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0)
          << rows << " rows, " << name_of(blocks);
    }
  }
}

TEST_F(CudaAttention, ManyRows) {
  const ResidentBlocks blocks = prepare_attention(128);
  for (const std::int32_t reach : {1, 1000}) {
    for (const std::int32_t prefix : {0, 700}) {
      const AttentionProblem problem(
          {.kv_heads = 2, .prefix = prefix, .rows = 1025, .reach = reach}, 9);
      EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0)
          << "reach " << reach << ", prefix " << prefix;
    }
  }
}

TEST_F(CudaAttention, LargeScoresDoNotOverflow) {
  for (const std::int32_t head_dim : {96, 128}) {
    const ResidentBlocks blocks = prepare_attention(head_dim);
    for (const std::int32_t rows : {2, 30}) {
      AttentionProblem problem({.head_dim = head_dim, .prefix = 500, .rows = rows}, 4);
      for (float& value : problem.q) value *= 300.0f;
      EXPECT_LE(worst_error(problem, run(problem, blocks)), 1.0) << head_dim << ", " << rows;
    }
  }
}

// One recorded launch serves every pass that it is padded for.
TEST_F(CudaAttention, RecordedLaunchServesOtherPasses) {
  for (const ResidentBlocks& blocks : kernels(64)) {
    const AttentionProblem longest(
        {.head_dim = 64, .kv_heads = 2, .prefix = 2000, .rows = 64, .padded_rows = 64}, 1);
    DeviceAttention device(longest, blocks);
    std::map<AttentionLaunch, cudaGraphExec_t> recordings;
    int replays = 0;
    for (const std::int32_t rows : {64, 1, 17, 50}) {
      for (const std::int32_t prefix : {2000, 0, 65, 700, 1950}) {
        AttentionProblem problem = longest;
        problem.c.rows = rows;
        problem.prefix.resize(static_cast<std::size_t>(prefix));
        for (VisibleKv& token : problem.tail) {
          token.q_begin = std::min(token.q_begin, rows);
          token.q_end = std::min(token.q_end, rows);
        }
        const AttentionProblem::Plan plan = problem.plan(blocks);
        device.set_tail(problem.tail);
        device.set_plan(plan);
        if (!recordings.contains(plan.launch)) {
          recordings[plan.launch] = record([&] { device.queue(blocks, stream_); });
          --replays;
        }
        device.poison_results();
        check(cudaGraphLaunch(recordings[plan.launch], stream_), "cudaGraphLaunch");
        const auto replayed = device.result();
        ++replays;
        EXPECT_LE(worst_error(problem, replayed), 1.0) << rows << " rows, prefix " << prefix;
        EXPECT_EQ(replayed, device.run(stream_));
      }
    }
    EXPECT_GE(replays, 10) << name_of(blocks);
    for (const auto& [launch, executable] : recordings) {
      check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    }
  }
}

TEST_F(CudaAttention, RefusesOtherHeadDims) { EXPECT_ANY_THROW(prepare_attention(72)); }

// The checks above must see these faults.

TEST_F(CudaAttention, FaultsAreNoticed) {
  for (const ResidentBlocks& blocks : kernels(64)) {
    const AttentionProblem problem(
        {.head_dim = 64, .kv_heads = 2, .prefix = 500, .rows = 40, .holes = 0}, 12);
    DeviceAttention device(problem, blocks);
    ASSERT_LE(worst_error(problem, device.run(stream_)), 1.0);
    const AttentionProblem::Plan right = problem.plan(blocks);
    ASSERT_GT(right.scalars.chunks, 2);
    // Gangs of blocks are counted alike by all of them, so that there is no last one to leave out.
    const int faults = blocks.ranges > 0 ? 3 : 4;

    for (int fault = 0; fault < faults; ++fault) {
      std::vector<VisibleKv> tail = problem.tail;
      AttentionProblem::Plan plan = right;
      if (fault == 0) {  // intervals one query too long
        for (VisibleKv& token : tail) {
          if (token.q_begin < token.q_end) token.q_end = std::min(token.q_end + 1, problem.c.rows);
        }
      }
      if (fault == 1) tail[0].q_end = 1;      // the root seen by itself alone
      if (fault == 2) --plan.scalars.prefix;  // the tail begins one token early
      if (fault == 3) --plan.scalars.chunks;  // the last chunk left out
      device.set_tail(tail);
      device.set_plan(plan);
      EXPECT_GT(worst_error(problem, device.run(stream_)), 2.0)
          << "fault " << fault << ", " << name_of(blocks);
    }
  }
}

}  // namespace
}  // namespace coppice::cuda

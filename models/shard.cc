#include "models/shard.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "models/config.h"
#include "models/stored_weights.h"

namespace coppice {
namespace {

/// The share of [0, all) that a rank has, at multiples of `unit`. Later ranks have the larger ones:
/// the first has more to do beside.
Slice share(std::int64_t all, std::int64_t unit, const Shard& shard) {
  const std::int64_t units = (all + unit - 1) / unit;
  const std::int64_t begin = units * shard.rank / shard.ranks * unit;
  const std::int64_t end = units * (shard.rank + 1) / shard.ranks * unit;
  return {begin, std::min(end, all) - begin};
}

/// The unit that an FFN is split at: products are fastest in multiples of 64, and the largest share
/// should be small.
std::int64_t ffn_unit(std::int64_t ffn, std::int64_t border, int ranks) {
  std::int64_t best = 0;
  const auto largest = [&](std::int64_t unit) { return (ffn / unit + ranks - 1) / ranks * unit; };
  for (const std::int64_t unit : {256, 128, 64, 32, 16, 8, 4, 2, 1}) {
    if (best >= 64 && unit < 64) break;
    if (unit % border != 0 || ffn % unit != 0 || ffn / unit < ranks) continue;
    if (best == 0 || largest(unit) < largest(best)) best = unit;
  }
  return best;
}

Slice vocab_share(const ModelConfig& config, const Shard& shard) {
  return share(config.vocab_size, config.vocab_size / 64 >= shard.ranks ? 64 : 1, shard);
}

}  // namespace

BlockBorders borders_of(const ModelConfig& config, const StoredWeights& stored) {
  BlockBorders borders;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const auto widen = [&](std::int64_t& border, const char* product) {
      const WeightFormat format =
          stored.at(cat("model.layers.", layer, ".", product, ".weight")).format;
      border = std::max(border, block_shape(format).numbers);
    };
    widen(borders.output, "self_attn.o_proj");
    widen(borders.down, "mlp.down_proj");
  }
  return borders;
}

std::int32_t kv_heads_of_rank(const ModelConfig& config, int ranks) {
  return std::max(1, config.kv_heads / ranks);
}

ModelSlice slice_of(const ModelConfig& config, const BlockBorders& borders, const Shard& shard,
                    bool is_draft) {
  const char* const model = is_draft ? "the draft" : "the model";
  const auto refuse = [&](const auto&... why) {
    throw_usage(cat(is_draft ? "draft-" : "", "tensor-parallel ", shard.ranks, ": ", why...,
                    "; use fewer GPUs"));
  };
  const int ranks = shard.ranks;
  if (ranks < 1 || shard.rank < 0 || shard.rank >= ranks) {
    throw_usage(cat("tensor-parallel: rank ", shard.rank, " of ", ranks));
  }
  if (ranks == 1) {
    return {{0, config.heads},
            {0, config.kv_heads},
            {0, config.intermediate_size},
            {0, config.vocab_size}};
  }
  if (config.heads % ranks != 0) {
    refuse(model, "'s ", config.heads, " heads are no multiple of it");
  }
  if (config.kv_heads % ranks != 0 && ranks % config.kv_heads != 0) {
    refuse(model, "'s ", config.kv_heads, " KV heads are neither a multiple nor a divisor of it");
  }
  ModelSlice slice;
  slice.heads = share(config.heads, 1, shard);
  slice.kv_heads = {std::int64_t{shard.rank} * config.kv_heads / ranks,
                    kv_heads_of_rank(config, ranks)};
  const std::int64_t width = slice.heads.count * config.head_dim;
  if (width % borders.output != 0) {
    refuse("a rank's ", width, " inputs of o_proj are no whole blocks of its format, which have ",
           borders.output, " numbers");
  }
  const std::int64_t unit = ffn_unit(config.intermediate_size, borders.down, ranks);
  if (unit == 0) {
    refuse("the ", config.intermediate_size, " inputs of down_proj are too few blocks of ",
           borders.down, " numbers");
  }
  if (config.vocab_size < ranks) refuse(model, " has ", config.vocab_size, " tokens");
  slice.ffn = share(config.intermediate_size, unit, shard);
  slice.vocab = vocab_share(config, shard);
  return slice;
}

std::vector<std::int64_t> vocab_widths(const ModelConfig& config, int ranks) {
  std::vector<std::int64_t> widths;
  for (int rank = 0; rank < ranks; ++rank) {
    widths.push_back(vocab_share(config, {rank, ranks}).count);
  }
  return widths;
}

}  // namespace coppice

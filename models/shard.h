// How a model is split over ranks (tensor parallelism, Megatron-LM's way): each has whole heads of
// every layer, whole rows of its FFN and of the vocabulary. Two sums over ranks a layer put
// together what attention and FFN add to the residual stream. Everything else is on every rank.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice {

struct ModelConfig;
class StoredWeights;

/// One of the ranks that share a model.
struct Shard {
  int rank = 0;
  int ranks = 1;

  bool whole() const { return ranks == 1; }
};

/// Neighbours [begin, end()).
struct Slice {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return begin + count; }
  bool operator==(const Slice&) const = default;
};

/// What of a model a rank has.
struct ModelSlice {
  Slice heads;     ///< of queries
  Slice kv_heads;  ///< several ranks have the same one where there are fewer than ranks
  Slice ffn;       ///< of intermediate_size
  Slice vocab;     ///< logits that it computes
};

/// Numbers of the quantised blocks that input features of products are split at; 1: anywhere.
struct BlockBorders {
  std::int64_t output = 1;  ///< of o_proj
  std::int64_t down = 1;    ///< of down_proj
};
BlockBorders borders_of(const ModelConfig& config, const StoredWeights& stored);

/// Throws Error(usage) where the model cannot be split so, naming the option, which is
/// draft-tensor-parallel of a draft, and what does not divide.
ModelSlice slice_of(const ModelConfig& config, const BlockBorders& borders, const Shard& shard,
                    bool is_draft = false);

/// Logits that each rank computes.
std::vector<std::int64_t> vocab_widths(const ModelConfig& config, int ranks);

/// KV heads that each rank keeps, of a model that can be split so.
std::int32_t kv_heads_of_rank(const ModelConfig& config, int ranks);

}  // namespace coppice

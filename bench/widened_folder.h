// Reads a small model and writes the wide one, a piece at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "hf_folder.h"
#include "models/checkpoint.h"
#include "widening.h"

namespace coppice::bench {

/// A Llama model's folder, mapped into memory.
class SmallModel {
 public:
  /// Throws Error(failure): unreadable, not a plain Llama model in BF16 or F32, tensors missing or
  /// misshapen, values that are not finite in bf16.
  explicit SmallModel(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  const nlohmann::json& config() const { return config_; }
  const ModelShape& shape() const { return shape_; }
  bool tied() const { return tied_; }
  double epsilon() const { return epsilon_; }  ///< of norms
  /// Whether copying rounds, as it does unless the weights are stored in bf16.
  bool rounds() const { return rounds_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }

  /// Row `index` of a tensor; `out` has its length.
  void read_row(const std::string& tensor, std::int64_t index, std::span<float> out) const;

 private:
  void check_tensors();

  std::filesystem::path dir_;
  nlohmann::json config_;
  ModelShape shape_{};
  bool tied_ = false;
  double epsilon_ = 0.0;
  bool rounds_ = false;
  Checkpoint checkpoint_;
};

/// Values first, first + 1, ... of a wide tensor.
void fill_wide(const SmallModel& small, const WideTensor& wide, std::uint64_t first,
               std::span<std::uint16_t> out);

struct WideModel {
  ModelShape shape{};
  std::vector<WideTensor> tensors;
  nlohmann::ordered_json about;  ///< coppice_widened in config.json
};

/// Consecutive tensors of one file.
struct Shard {
  std::string file;
  std::size_t begin, end;
};

/// Cuts tensors into files of at most `most_bytes`, or of one tensor.
std::vector<Shard> shards_of(std::span<const Tensor> tensors, std::uint64_t most_bytes);

inline constexpr std::uint64_t usual_shard_bytes = 4'000'000'000;

/// Writes the folder, which must be empty or missing: weights first, then the tokenizer's and the
/// generation settings' files as they are, the index and config.json last. Whatever was written is
/// removed when it fails (Error(failure)) or when `progress`, called with the bytes of weights
/// written, throws.
void write_wide_model(const SmallModel& small, const WideModel& wide,
                      const std::filesystem::path& out, const BytesWritten& progress = {},
                      std::uint64_t shard_bytes = usual_shard_bytes);

}  // namespace coppice::bench

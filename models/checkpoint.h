// A model folder's weights: one safetensors file, or shards named by an index.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/safetensors.h"

namespace coppice {

class Checkpoint final : public WeightSource {
 public:
  /// Opens DIR/model.safetensors, or the shards that DIR/model.safetensors.index.json names.
  /// Throws Error(failure): no weights, a shard missing or corrupt, an index that names a file
  /// outside DIR or a tensor that its shard does not hold.
  explicit Checkpoint(const std::filesystem::path& dir);

  const StoredTensor* find(const std::string& tensor) const override;
  const std::string& file_name(const std::string& tensor) const override;
  void read(const std::string& tensor, std::uint64_t offset,
            std::span<std::byte> to) const override;
  std::vector<std::string> names() const override;
  std::uint64_t bytes() const override;
  std::size_t file_count() const override { return files_.size(); }
  void require_unchanged() const override;
  /// The file that holds a tensor.
  const SafetensorsFile& file_of(const std::string& tensor) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  void open_shards(const std::filesystem::path& dir, const std::filesystem::path& index);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  ///< index into files_ by tensor
};

}  // namespace coppice

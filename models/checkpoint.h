// A model folder's weights: one safetensors file, or shards named by an index.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/safetensors.h"

namespace coppice {

class Checkpoint {
 public:
  /// Opens DIR/model.safetensors, or the shards that DIR/model.safetensors.index.json names.
  /// Throws Error(failure): no weights, a shard missing or corrupt, an index that names a file
  /// outside DIR or a tensor that its shard does not hold.
  explicit Checkpoint(const std::filesystem::path& dir);

  /// nullptr when there is none of that name.
  const StoredTensor* find(const std::string& tensor) const;
  /// The file that holds a tensor.
  const SafetensorsFile& file_of(const std::string& tensor) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }
  std::size_t tensors() const { return file_of_.size(); }
  /// Names in order.
  const std::map<std::string, std::size_t>& names() const { return file_of_; }
  /// Throws Error(failure) if a file was written to or cut since it was opened.
  void require_unchanged() const;

 private:
  void open_shards(const std::filesystem::path& dir, const std::filesystem::path& index);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  ///< index into files_ by tensor
};

}  // namespace coppice

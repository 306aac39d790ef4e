// What a model folder holds, before any tensor's bytes are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/model.h"
#include "models/settings/setting_file.h"
#include "models/stored_weights.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

class GgufFile;
class GraphModel;
class RemoteRanks;

/// A model that can be loaded: its config, and weights that agree with it.
struct ModelFiles {
  /// Throws Error(failure) for all that Model::load() refuses but values of tensors and memory.
  explicit ModelFiles(const std::filesystem::path& folder,
                      std::optional<WeightFormat> rounding = std::nullopt);
  ModelFiles(const ModelFiles&) = delete;
  ModelFiles& operator=(const ModelFiles&) = delete;

  const std::filesystem::path dir;
  const std::shared_ptr<const GgufFile> held;  ///< so that all is read of one file
  ModelConfig config;
  const std::unique_ptr<WeightSource> source;
  const StoredWeights weights;
};

/// Loads a model as Model::load() does, from files that are open in ModelOptions::rounding.
std::unique_ptr<Model> load_opened(const ModelFiles& files, std::span<Device* const> devices,
                                   const ModelOptions& options, const LoadProgress& progress);

/// The same of rank 0 of a model whose other ranks are other processes, which load theirs.
std::unique_ptr<Model> load_leading(const ModelFiles& files, Device& device,
                                    std::unique_ptr<RemoteRanks> others,
                                    const ModelOptions& options, const LoadProgress& progress);
/// The same of another rank, options.shard, in its process.
std::unique_ptr<GraphModel> load_joined(const ModelFiles& files, Device& device,
                                        const ModelOptions& options, Communicator& communicator,
                                        const LoadProgress& progress);

/// The tokenizer of a model that has `vocab_rows` rows of vocabulary. Null if only token ids work
/// with it, and `why_not` says why. Throws Error(failure) if not even they do: the files do not
/// belong together, or tokenizer.model, which is the only one, is broken.
std::unique_ptr<Tokenizer> load_model_tokenizer(const std::filesystem::path& dir,
                                                std::int64_t vocab_rows, std::string& why_not);

/// A folder that may be wrong, for descriptions.
struct ModelFolder {
  /// Throws Error(failure) if config.json cannot be read.
  explicit ModelFolder(const std::filesystem::path& dir);

  const std::shared_ptr<const GgufFile> held;  ///< so that all is read of one file
  std::string wrong_ids;                       ///< what is wrong with special tokens' ids
  ModelConfig config;
  std::unique_ptr<WeightSource> source;
  std::string no_weights;  ///< why it cannot be opened
  std::unique_ptr<Tokenizer> tokenizer;
  std::string no_tokenizer;            ///< why there is none
  std::vector<std::string> obstacles;  ///< why it cannot be a target; empty: it can
  SettingNotes settings;               ///< which keys of its files are obeyed, which are not
};

}  // namespace coppice

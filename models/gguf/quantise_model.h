// Makes a GGUF file of a model whose matrices are in 16 or 32 bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/new_file.h"
#include "models/gguf/weight_mix.h"

namespace coppice {

struct QuantiseRequest {
  std::filesystem::path from;  ///< a Hugging Face folder, or a GGUF file
  std::filesystem::path to;
  WeightMix mix = WeightMix::q4_k_m;
  int threads = 1;
  Existing existing = Existing::refuse;
  /// Called now and then, by the caller's thread, with a fraction in [0, 1]; false: give up.
  std::function<bool(double fraction)> progress;
};

struct QuantisedModel {
  std::uint64_t bytes = 0;                        ///< of the file
  std::map<std::string, std::uint64_t> elements;  ///< of tensors, by stored type
  std::vector<std::string> lost;                  ///< what the file does not say of the model
};

/// Takes memory for some rows of each thread, not for the model. std::nullopt: `progress` gave up,
/// and no file is there. Throws Error(failure): a model that coppice cannot load or a GGUF file
/// cannot describe, one that is quantised already, a weight that is NaN or infinite, a disk that is
/// full, and what require_new_file() refuses.
std::optional<QuantisedModel> quantise_model(const QuantiseRequest& request);

}  // namespace coppice

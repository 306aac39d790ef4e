// A model's tensors as its files hold them: by their headers, no tensor's bytes are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/device.h"
#include "models/config.h"
#include "models/weight_source.h"

namespace coppice {

/// Has config.tie_word_embeddings say what holds of the files, as transformers 5 does: a head that
/// is stored beside the embedding table is the model's own unless its values are the table's. Reads
/// both, up to their first difference, if the config says tied and both are stored. Throws
/// Error(failure) if they cannot be read.
void settle_head(ModelConfig& config, const WeightSource& source);

class StoredWeights {
 public:
  struct Tensor {
    std::string name;  ///< on disk
    const StoredTensor* stored;
    WeightFormat format;
  };

  /// Finds every tensor that the config asks for; of two that are tied, one may stand for both.
  /// Throws Error(failure) naming file and tensor:
  /// missing, of another shape, of a dtype that coppice does not read, or unknown to the model.
  /// The source outlives this.
  StoredWeights(const ModelConfig& config, const WeightSource& source);

  /// By the name that parameter_shapes() gives it; nullptr if the model has none of it.
  const Tensor* find(const std::string& parameter) const;
  /// By that name: one that the model has.
  const Tensor& at(const std::string& parameter) const { return tensors_.at(parameter); }
  const std::map<std::string, Tensor>& all() const { return tensors_; }
  /// Names the matrices' formats, in order: "Q4_K, Q6_K"; empty: none is quantised.
  std::string quantised_formats() const;
  /// Whether one is in blocks of whole numbers.
  bool has_integers() const;
  const WeightSource& source() const { return source_; }

 private:
  const WeightSource& source_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace coppice

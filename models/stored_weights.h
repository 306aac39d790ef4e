// A model's tensors as its files hold them: by their headers, no tensor's bytes are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/device.h"
#include "models/checkpoint.h"
#include "models/config.h"

namespace coppice {

class StoredWeights {
 public:
  struct Tensor {
    std::string name;  ///< on disk
    const SafetensorsFile* file;
    const StoredTensor* stored;
    DType dtype;
  };

  /// Finds every tensor that the config asks for. Throws Error(failure) naming file and tensor:
  /// missing, of another shape, of a dtype that coppice does not read, or unknown to the model.
  /// The checkpoint outlives this.
  StoredWeights(const ModelConfig& config, const Checkpoint& checkpoint);

  /// By the name that parameter_shapes() gives it; nullptr if the model has none of it.
  const Tensor* find(const std::string& parameter) const;
  /// By that name: one that the model has.
  const Tensor& at(const std::string& parameter) const { return tensors_.at(parameter); }
  const std::map<std::string, Tensor>& all() const { return tensors_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  const Checkpoint& checkpoint_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace coppice

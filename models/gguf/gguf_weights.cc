#include "models/gguf/gguf_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/config.h"
#include "models/gguf/ggml_types.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/tensor_names.h"

namespace coppice {
namespace {

/// Tensors that config.json's document is made of.
constexpr std::array config_tensors = {"rope_freqs.weight", "rope_factors_long.weight",
                                       "rope_factors_short.weight"};

class GgufWeights final : public WeightSource {
 public:
  GgufWeights(const std::filesystem::path& path, const ModelConfig& config)
      : file_(open_gguf(path)), config_(config) {
    std::set<std::string> named;
    if (config_.unsupported.empty()) {
      for (const ParameterShape& parameter : parameter_shapes(config_)) {
        const std::string stored = gguf_tensor_name(config_, parameter.name);
        if (file_->find(stored) == nullptr) continue;
        add(parameter.name, stored);
        named.insert(stored);
      }
    }
    for (const auto& [stored, tensor] : file_->tensors()) {
      const bool is_of_config =
          std::find(config_tensors.begin(), config_tensors.end(), stored) != config_tensors.end();
      // A tensor that a model which runs does not know is refused.
      if (!named.contains(stored) && !is_of_config) {
        add(config_.unsupported.empty() ? cat(nameless, stored) : stored, stored);
      }
    }
  }

  const StoredTensor* find(const std::string& tensor) const override {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second.stored;
  }
  const std::string& file_name(const std::string& tensor) const override {
    return file_->parts()[tensors_.at(tensor).source->file].name;
  }
  std::string name_in_file(const std::string& tensor) const override {
    return tensor.starts_with(nameless) ? tensor.substr(nameless.size())
                                        : gguf_tensor_name(config_, tensor);
  }
  const char* described_by() const override { return "its metadata"; }
  void read(const std::string& tensor, std::uint64_t offset,
            std::span<std::byte> to) const override {
    const Entry& entry = tensors_.at(tensor);
    if (!entry.permuted) return file_->read(*entry.source, offset, to);
    const std::uint64_t row_bytes = entry.stored.bytes / entry.stored.shape[0];
    while (!to.empty()) {
      const std::uint64_t row = offset / row_bytes, within = offset % row_bytes;
      const auto some = std::min<std::uint64_t>(row_bytes - within, to.size());
      const auto from =
          static_cast<std::uint64_t>(stored_row(static_cast<std::int64_t>(row), config_.head_dim));
      file_->read(*entry.source, from * row_bytes + within, to.first(some));
      to = to.subspan(some);
      offset += some;
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : tensors_) names.push_back(name);
    return names;
  }
  std::uint64_t bytes() const override {
    std::uint64_t bytes = 0;
    for (const GgufFile::Part& part : file_->parts()) bytes += part.stamp.bytes;
    return bytes;
  }
  std::size_t file_count() const override { return file_->parts().size(); }
  void require_unchanged() const override { file_->require_unchanged(); }

 private:
  struct Entry {
    StoredTensor stored;
    const GgufTensor* source;
    bool permuted;
  };

  void add(const std::string& name, const std::string& stored) {
    const GgufTensor& source = *file_->find(stored);
    const GgmlType* const type = ggml_type(source.type);
    StoredTensor tensor;
    tensor.dtype = type == nullptr ? cat("number ", source.type) : std::string(type->name);
    tensor.shape = source.shape;
    tensor.begin = source.begin;
    tensor.bytes = source.bytes;
    // Rows that are no whole heads are refused by their shape.
    const bool permuted = config_.unsupported.empty() &&
                          has_permuted_rows(config_.model_type, name) &&
                          source.shape[0] % static_cast<std::uint64_t>(config_.head_dim) == 0;
    tensors_.emplace(name, Entry{std::move(tensor), &source, permuted});
  }

  const std::shared_ptr<const GgufFile> file_;
  const ModelConfig config_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace

std::unique_ptr<WeightSource> open_gguf_weights(const std::filesystem::path& path,
                                                const ModelConfig& config) {
  return std::make_unique<GgufWeights>(path, config);
}

}  // namespace coppice

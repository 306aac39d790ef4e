#include "models/stored_weights.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/widen.h"

namespace coppice {
namespace {

std::optional<DType> float_type(const std::string& dtype) {
  if (dtype == "F32") return DType::f32;
  if (dtype == "F16") return DType::f16;
  if (dtype == "BF16") return DType::bf16;
  return std::nullopt;
}

/// What stands before a text model's own names, and before lm_head.
struct Prefixes {
  std::string_view model, head;
};

/// Models that see images, too, keep the text model under a name of its own.
Prefixes prefixes_of(const Checkpoint& checkpoint) {
  constexpr Prefixes text = {"model.", ""};
  for (const Prefixes& found : {text, Prefixes{"language_model.model.", "language_model."},
                                Prefixes{"model.language_model.", ""}}) {
    // A head may stand for the table.
    if (checkpoint.find(cat(found.model, "embed_tokens.weight")) != nullptr ||
        checkpoint.find(cat(found.model, "norm.weight")) != nullptr) {
      return found;
    }
  }
  return text;
}

/// The name on disk of a tensor that parameter_shapes() calls `name`.
std::string stored_name(const Prefixes& prefixes, const std::string& name) {
  constexpr std::string_view model = "model.";
  if (name.rfind(model, 0) == 0) return cat(prefixes.model, name.substr(model.size()));
  return cat(prefixes.head, name);
}

/// Whether the layer that a name speaks of is one of the model's.
bool is_in_layers(std::string_view name, std::int32_t layers) {
  constexpr std::string_view begin = "layers.";
  if (name.substr(0, begin.size()) != begin) return true;
  name.remove_prefix(begin.size());
  std::int32_t index = -1;
  std::from_chars(name.data(), name.data() + name.size(), index);
  return index < layers;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

/// Tensors that the graph would not look at make another model than config.json describes. Layers
/// beyond the last one may be there: cut off by config.json, or made for other purposes.
void require_known(const ModelConfig& config, const Checkpoint& checkpoint,
                   const Prefixes& prefixes, const std::set<std::string>& known) {
  for (const auto& [name, file] : checkpoint.names()) {
    const std::string_view text = name;
    if (text.substr(0, prefixes.model.size()) != prefixes.model || known.count(name) != 0) continue;
    if (text.ends_with(".rotary_emb.inv_freq")) continue;  // computed from config.json
    if (!is_in_layers(text.substr(prefixes.model.size()), config.layers)) continue;
    throw_failure(cat(checkpoint.files()[file].name(), ": tensor ", name, " is no part of the ",
                      config.architecture,
                      " that config.json describes; the two files do not belong together"));
  }
}

StoredWeights::Tensor found(const Checkpoint& checkpoint, const std::string& name,
                            const ParameterShape& parameter) {
  const StoredTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) {
    throw_failure(cat(checkpoint.files().front().name(),
                      checkpoint.files().size() > 1 ? " and its sister files" : "", ": tensor ",
                      name, " is missing; fetch the model again"));
  }
  const SafetensorsFile& file = checkpoint.file_of(name);
  const std::vector<std::uint64_t> wanted(parameter.shape.begin(), parameter.shape.end());
  if (tensor->shape != wanted) {
    throw_failure(cat(file.name(), ": tensor ", name, " has the shape ", shape_text(tensor->shape),
                      ", but config.json asks for ", shape_text(wanted),
                      "; the two files do not belong together"));
  }
  const auto dtype = float_type(tensor->dtype);
  if (!dtype) {
    throw_failure(cat(file.name(), ": tensor ", name, " has the dtype ", tensor->dtype,
                      ", but coppice reads F32, F16 and BF16; convert it"));
  }
  return {name, &file, tensor, *dtype};
}

constexpr const char* table_name = "model.embed_tokens.weight";
constexpr const char* head_name = "lm_head.weight";

/// Whether two tensors of floats hold the same numbers; false, too, where shapes or types say no.
bool same_values(const SafetensorsFile& one_file, const StoredTensor& one,
                 const SafetensorsFile& other_file, const StoredTensor& other) {
  const auto one_type = float_type(one.dtype), other_type = float_type(other.dtype);
  if (one.shape != other.shape || !one_type || !other_type) return false;
  constexpr std::uint64_t most = 1 << 18;
  std::vector<std::byte> one_bytes, other_bytes;
  std::vector<float> one_values, other_values;
  const auto read = [](const SafetensorsFile& file, const StoredTensor& tensor, DType type,
                       std::uint64_t begin, std::uint64_t count, std::vector<std::byte>& bytes) {
    bytes.resize(count * size_of(type));
    file.read(tensor, begin * size_of(type), bytes);
  };
  for (std::uint64_t begin = 0; begin < one.elements(); begin += most) {
    const std::uint64_t count = std::min<std::uint64_t>(most, one.elements() - begin);
    read(one_file, one, *one_type, begin, count, one_bytes);
    read(other_file, other, *other_type, begin, count, other_bytes);
    if (one_type == other_type && one_bytes == other_bytes) continue;
    one_values.resize(count);
    other_values.resize(count);
    widen(one_bytes, *one_type, one_values.data());
    widen(other_bytes, *other_type, other_values.data());
    if (one_values != other_values) return false;
  }
  return true;
}

}  // namespace

void settle_head(ModelConfig& config, const Checkpoint& checkpoint) {
  if (!config.tie_word_embeddings) return;
  const Prefixes prefixes = prefixes_of(checkpoint);
  const std::string table = stored_name(prefixes, table_name);
  const std::string head = stored_name(prefixes, head_name);
  const StoredTensor *const one = checkpoint.find(table), *const other = checkpoint.find(head);
  if (one == nullptr || other == nullptr) return;
  config.tie_word_embeddings =
      same_values(checkpoint.file_of(table), *one, checkpoint.file_of(head), *other);
}

StoredWeights::StoredWeights(const ModelConfig& config, const Checkpoint& checkpoint)
    : checkpoint_(checkpoint) {
  const Prefixes prefixes = prefixes_of(checkpoint);
  const std::vector<ParameterShape> parameters = parameter_shapes(config);
  std::set<std::string> known;
  for (const ParameterShape& parameter : parameters) {
    known.insert(stored_name(prefixes, parameter.name));
  }
  require_known(config, checkpoint, prefixes, known);
  for (const ParameterShape& parameter : parameters) {
    std::string name = stored_name(prefixes, parameter.name);
    if (config.tie_word_embeddings && parameter.name == table_name &&
        checkpoint.find(name) == nullptr &&
        checkpoint.find(stored_name(prefixes, head_name)) != nullptr) {
      name = stored_name(prefixes, head_name);
    }
    tensors_.emplace(parameter.name, found(checkpoint, name, parameter));
  }
}

const StoredWeights::Tensor* StoredWeights::find(const std::string& parameter) const {
  const auto it = tensors_.find(parameter);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace coppice

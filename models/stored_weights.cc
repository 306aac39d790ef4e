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

namespace coppice {
namespace {

/// What stands before a text model's own names, and before lm_head.
struct Prefixes {
  std::string_view model, head;
};

/// Models that see images, too, keep the text model under a name of its own.
Prefixes prefixes_of(const WeightSource& source) {
  constexpr Prefixes text = {"model.", ""};
  for (const Prefixes& found : {text, Prefixes{"language_model.model.", "language_model."},
                                Prefixes{"model.language_model.", ""}}) {
    // A head may stand for the table.
    if (source.find(cat(found.model, "embed_tokens.weight")) != nullptr ||
        source.find(cat(found.model, "norm.weight")) != nullptr) {
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
/// beyond the last one may be there: cut off by config.json, or made for other purposes. A GGUF
/// file holds what its model is made of and nothing else.
void require_known(const ModelConfig& config, const WeightSource& source, const Prefixes& prefixes,
                   const std::set<std::string>& known) {
  for (const std::string& name : source.names()) {
    const std::string_view text = name;
    if (text.starts_with(nameless)) {
      throw_failure(cat(source.file_name(name), ": tensor ", quote(source.name_in_file(name)),
                        " is no part of the ", config.architecture, " that ", source.described_by(),
                        " describe; fetch the file again"));
    }
    if (text.substr(0, prefixes.model.size()) != prefixes.model || known.count(name) != 0) continue;
    if (text.ends_with(".rotary_emb.inv_freq")) continue;  // computed from config.json
    if (!is_in_layers(text.substr(prefixes.model.size()), config.layers)) continue;
    throw_failure(cat(source.file_name(name), ": tensor ", name, " is no part of the ",
                      config.architecture,
                      " that config.json describes; the two files do not belong together"));
  }
}

StoredWeights::Tensor found(const WeightSource& source, const std::string& name,
                            const ParameterShape& parameter) {
  const StoredTensor* tensor = source.find(name);
  if (tensor == nullptr) {
    const std::vector<std::string> names = source.names();
    throw_failure(cat(names.empty() ? "the model" : source.file_name(names.front()),
                      source.file_count() > 1 ? " and its sister files" : "", ": tensor ",
                      source.name_in_file(name), " is missing; fetch the model again"));
  }
  const std::string& file = source.file_name(name);
  const std::vector<std::uint64_t> wanted(parameter.shape.begin(), parameter.shape.end());
  if (tensor->shape != wanted) {
    const bool is_folder = source.described_by() == std::string_view("config.json");
    throw_failure(cat(
        file, ": tensor ", source.name_in_file(name), " has the shape ", shape_text(tensor->shape),
        ", but ", source.described_by(), is_folder ? " asks for " : " ask for ", shape_text(wanted),
        is_folder ? "; the two files do not belong together" : "; fetch the file again"));
  }
  const auto format = format_named(tensor->dtype);
  if (!format) {
    std::string known;
    for (const WeightFormat one : all_weight_formats) {
      if (is_own(one)) continue;  // no type of files
      known += cat(known.empty() ? "" : ", ", name_of(one));
    }
    throw_failure(cat(file, ": tensor ", source.name_in_file(name), " has the type ", tensor->dtype,
                      ", but coppice reads ", known, "; convert it"));
  }
  return {name, tensor, *format};
}

constexpr const char* table_name = "model.embed_tokens.weight";
constexpr const char* head_name = "lm_head.weight";

/// Whether two tensors hold the same numbers; false, too, where shapes or types say no.
bool same_values(const WeightSource& source, const std::string& one_name,
                 const std::string& other_name) {
  const StoredTensor &one = *source.find(one_name), &other = *source.find(other_name);
  const auto one_format = format_named(one.dtype), other_format = format_named(other.dtype);
  if (one.shape != other.shape || one.shape.size() != 2 || !one_format || !other_format)
    return false;
  const std::uint64_t width = std::max<std::uint64_t>(1, one.shape[1]);
  const std::uint64_t most_rows = std::max<std::uint64_t>(1, (1 << 18) / width);
  std::vector<std::byte> one_bytes, other_bytes;
  std::vector<float> one_values, other_values;
  const auto read = [&](const std::string& tensor, WeightFormat format, std::uint64_t row,
                        std::uint64_t rows, std::vector<std::byte>& bytes) {
    bytes.resize(bytes_of(format, rows * width));
    source.read(tensor, bytes_of(format, row * width), bytes);
  };
  for (std::uint64_t row = 0; row < one.shape[0]; row += most_rows) {
    const std::uint64_t rows = std::min(most_rows, one.shape[0] - row);
    read(one_name, *one_format, row, rows, one_bytes);
    read(other_name, *other_format, row, rows, other_bytes);
    if (one_format == other_format && one_bytes == other_bytes) continue;
    one_values.resize(rows * width);
    other_values.resize(rows * width);
    dequantise(*one_format, one_bytes, one_values.data());
    dequantise(*other_format, other_bytes, other_values.data());
    if (one_values != other_values) return false;
  }
  return true;
}

}  // namespace

void settle_head(ModelConfig& config, const WeightSource& source) {
  if (!config.tie_word_embeddings) return;
  const Prefixes prefixes = prefixes_of(source);
  const std::string table = stored_name(prefixes, table_name);
  const std::string head = stored_name(prefixes, head_name);
  if (source.find(table) == nullptr || source.find(head) == nullptr) return;
  config.tie_word_embeddings = same_values(source, table, head);
}

StoredWeights::StoredWeights(const ModelConfig& config, const WeightSource& source)
    : source_(source) {
  const Prefixes prefixes = prefixes_of(source);
  const std::vector<ParameterShape> parameters = parameter_shapes(config);
  std::set<std::string> known;
  for (const ParameterShape& parameter : parameters) {
    known.insert(stored_name(prefixes, parameter.name));
  }
  require_known(config, source, prefixes, known);
  for (const ParameterShape& parameter : parameters) {
    std::string name = stored_name(prefixes, parameter.name);
    if (config.tie_word_embeddings && parameter.name == table_name &&
        source.find(name) == nullptr && source.find(stored_name(prefixes, head_name)) != nullptr) {
      name = stored_name(prefixes, head_name);
    }
    tensors_.emplace(parameter.name, found(source, name, parameter));
  }
}

const StoredWeights::Tensor* StoredWeights::find(const std::string& parameter) const {
  const auto it = tensors_.find(parameter);
  return it == tensors_.end() ? nullptr : &it->second;
}

bool StoredWeights::has_integers() const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [](const auto& one) { return coppice::has_integers(one.second.format); });
}

std::string StoredWeights::quantised_formats() const {
  std::set<std::string_view> formats;
  for (const auto& [name, tensor] : tensors_) {
    if (!dtype_of(tensor.format)) formats.insert(name_of(tensor.format));
  }
  std::string text;
  for (const std::string_view format : formats) text += cat(text.empty() ? "" : ", ", format);
  return text;
}

}  // namespace coppice

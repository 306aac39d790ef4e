#include "widened_folder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/json_file.h"
#include "models/config.h"

namespace coppice::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_config = 16u << 20;

constexpr const char* copied_files[] = {
    "tokenizer.model",   "tokenizer.json",      "tokenizer_config.json",  "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "generation_config.json",
};

/// Values first, first + 1, ... of a BF16 or F32 tensor.
void read_values(const Checkpoint& checkpoint, const std::string& name, std::size_t first,
                 std::span<float> out) {
  const SafetensorsFile& file = checkpoint.file_of(name);
  const StoredTensor& tensor = *checkpoint.find(name);
  if (tensor.dtype == "F32") {
    file.read(tensor, 4 * first, std::as_writable_bytes(out));
    return;
  }
  std::vector<std::uint16_t> bits(out.size());
  file.read(tensor, 2 * first, std::as_writable_bytes(std::span(bits)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
  }
}

std::string gigabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GB", static_cast<double>(bytes) * 1e-9);
  return text;
}

/// The output folder while it is being filled. Unless finish() is called, what was added to it is
/// removed with this object.
class NewFolder {
 public:
  NewFolder(const fs::path& path, std::uint64_t bytes) : path_(path) {
    std::error_code error;
    const bool exists = fs::exists(path, error);
    if (exists && !fs::is_directory(path, error)) {
      throw_failure(cat(path.string(), ": is a file; name a new folder"));
    }
    if (exists && !fs::is_empty(path, error)) {
      throw_failure(cat(path.string(), ": ", error ? error.message() : "the folder is not empty",
                        "; name a new one"));
    }
    made_ = fs::create_directories(path, error);
    if (error) {
      throw_failure(
          cat(path.string(), ": cannot be made (", error.message(), "); check its parent folder"));
    }
    const fs::space_info space = fs::space(path, error);
    if (!error && space.available < bytes) {
      remove();
      throw_failure(cat(path.string(), ": needs ", gigabytes(bytes), ", and its disk has ",
                        gigabytes(space.available), " free; choose another disk"));
    }
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    if (!finished_) remove();
  }

  /// The path of a file about to be written.
  fs::path add(const std::string& name) {
    added_.push_back(path_ / name);
    return added_.back();
  }
  void finish() { finished_ = true; }

 private:
  void remove() {
    std::error_code ignored;
    // In reverse: config.json and the index, which make the folder look whole, go first.
    for (auto file = added_.rbegin(); file != added_.rend(); ++file) fs::remove(*file, ignored);
    if (made_) fs::remove(path_, ignored);
  }

  fs::path path_;
  std::vector<fs::path> added_;
  bool made_ = false;
  bool finished_ = false;
};

std::string index_text(const std::vector<Tensor>& tensors, const std::vector<Shard>& shards) {
  nlohmann::ordered_json map;
  for (const Shard& shard : shards) {
    for (std::size_t t = shard.begin; t < shard.end; ++t) map[tensors[t].name] = shard.file;
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", tensors.back().end()}}},
                                        {"weight_map", map}};
  return index.dump(2) + "\n";
}

/// The fields that are the family's, with the small model's rotation, scores and activation.
void take_family(const SmallModel& small, const ModelShape& shape, nlohmann::ordered_json& config) {
  const nlohmann::ordered_json published = config_of(shape);
  config["architectures"] = published.at("architectures");
  config["model_type"] = published.at("model_type");
  config["rms_norm_eps"] = scales_of(shape, small.epsilon()).epsilon;
  if (shape.family != ShapeFamily::gemma3) return;
  for (const char* field : {"sliding_window", "layer_types"}) config[field] = published.at(field);
  config["hidden_activation"] = config.value("hidden_act", "silu");
  config["query_pre_attn_scalar"] = small.shape().head_dim;
  // Layers with and without a window rotate alike. transformers 5 reads rope_parameters, earlier
  // versions the other fields.
  const double theta = config.value("rope_theta", 10000.0);
  nlohmann::ordered_json rope = {{"rope_type", "default"}, {"rope_theta", theta}};
  if (config.contains("rope_parameters")) rope = config.at("rope_parameters");
  if (config.contains("rope_scaling") && !config.at("rope_scaling").is_null()) {
    throw_failure(cat((small.dir() / "config.json").string(),
                      ": rope_scaling; a source for Gemma 3's shapes must do without"));
  }
  config["rope_parameters"] = {{"full_attention", rope}, {"sliding_attention", rope}};
  config["rope_theta"] = config["rope_local_base_freq"] = rope.value("rope_theta", theta);
}

std::string config_text(const SmallModel& small, const WideModel& wide) {
  nlohmann::ordered_json config = small.config();
  config["hidden_size"] = wide.shape.hidden;
  config["intermediate_size"] = wide.shape.ffn;
  config["num_hidden_layers"] = wide.shape.layers;
  config["num_attention_heads"] = wide.shape.heads;
  config["num_key_value_heads"] = wide.shape.kv_heads;
  config["head_dim"] = wide.shape.head_dim;
  config["tie_word_embeddings"] = false;
  // transformers 5 writes dtype, earlier versions torch_dtype.
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = "bfloat16";
  for (const char* of_the_small : {"_name_or_path", "layer_types"}) config.erase(of_the_small);
  if (wide.shape.family != ShapeFamily::llama) take_family(small, wide.shape, config);
  config["coppice_widened"] = wide.about;
  return config.dump(2) + "\n";
}

}  // namespace

SmallModel::SmallModel(const fs::path& dir)
    : dir_(dir), config_(*read_json_object(dir / "config.json", largest_config)), checkpoint_(dir) {
  const ModelConfig config = read_config(dir);
  const auto refuse = [&](const std::string& what) {
    throw_failure(cat((dir / "config.json").string(), ": ", what,
                      "; only plain Llama models can be widened"));
  };
  if (!config.unsupported.empty()) refuse(config.unsupported.front());
  if (config.architecture != "LlamaForCausalLM") refuse(config.architecture);
  if (config.qkv_bias || config.output_bias || config.mlp_bias) refuse("biases");
  shape_ = {config.vocab_size, config.hidden_size, config.intermediate_size, config.layers,
            config.heads,      config.kv_heads,    config.head_dim,          config.context_length};
  tied_ = config.tie_word_embeddings;
  epsilon_ = static_cast<double>(config.rms_norm_eps);
  check_tensors();
}

void SmallModel::check_tensors() {
  for (const Tensor& tensor : tensors_of(shape_)) {
    if (tied_ && tensor.name == "lm_head.weight") continue;
    const StoredTensor* stored = checkpoint_.find(tensor.name);
    if (stored == nullptr) {
      throw_failure(cat(dir_.string(), ": tensor ", tensor.name, " is missing"));
    }
    const auto refuse = [&](const char* what) {
      throw_failure(cat(checkpoint_.file_of(tensor.name).name(), ": tensor ", tensor.name, what));
    };
    if (!std::equal(stored->shape.begin(), stored->shape.end(), tensor.shape.begin(),
                    tensor.shape.end(),
                    [](auto a, auto b) { return a == static_cast<std::uint64_t>(b); })) {
      refuse(" has another shape than config.json asks for");
    }
    if (stored->dtype != "BF16" && stored->dtype != "F32") {
      refuse(" is neither BF16 nor F32; convert it");
    }
    if (stored->dtype != "BF16") rounds_ = true;
    std::vector<float> row(stored->shape.back());
    for (std::size_t first = 0; first < tensor.values; first += row.size()) {
      read_values(checkpoint_, tensor.name, first, row);
      for (const float value : row) {
        // From there on bf16 rounds to infinity.
        if (!(std::fabs(value) < 0x1.ffp127f)) refuse(" holds a value beyond bf16");
      }
    }
  }
}

void SmallModel::read_row(const std::string& tensor, std::int64_t index,
                          std::span<float> out) const {
  read_values(checkpoint_, tensor, static_cast<std::size_t>(index) * out.size(), out);
}

void fill_wide(const SmallModel& small, const WideTensor& wide, std::uint64_t first,
               std::span<std::uint16_t> out) {
  if (!wide.copying) return fill_random(wide.tensor, first, wide.factor, out);
  const std::span<const Column> columns = wide.copying->columns;
  std::vector<float> row(small.checkpoint().find(wide.source)->shape.back());
  while (!out.empty()) {
    const std::uint64_t column = first % columns.size();
    const std::size_t count = std::min(columns.size() - column, out.size());
    const std::int32_t source = wide.copying->rows[first / columns.size()];
    if (source == Copying::no_source) {
      fill_random(wide.tensor, first, extra_layer_factor, out.first(count));
    } else {
      small.read_row(wide.source, source, row);
      copy_row(row, columns.subspan(column, count), wide.copying->added, out.first(count));
    }
    out = out.subspan(count);
    first += count;
  }
}

std::vector<Shard> shards_of(std::span<const Tensor> tensors, std::uint64_t most_bytes) {
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (shards.empty() || tensors[t].end() - tensors[shards.back().begin].begin > most_bytes) {
      shards.push_back({"", t, t});
    }
    shards.back().end = t + 1;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    shards[i].file = name;
  }
  return shards;
}

void write_wide_model(const SmallModel& small, const WideModel& wide, const fs::path& out,
                      const BytesWritten& progress, std::uint64_t shard_bytes) {
  std::vector<Tensor> tensors;
  for (const WideTensor& made : wide.tensors) tensors.push_back(made.tensor);
  const std::vector<Shard> shards = shards_of(tensors, shard_bytes);
  std::uint64_t stored = 0;
  for (const WideTensor& made : wide.tensors) {
    if (made.factor != 0.0f) stored += 2 * made.tensor.values;
  }
  NewFolder folder(out, stored);
  for (const Shard& shard : shards) {
    const auto part = std::span(tensors).subspan(shard.begin, shard.end - shard.begin);
    write_tensor_file(
        folder.add(shard.file), part, {{"format", "pt"}},
        [&](std::size_t index, std::uint64_t first, std::span<std::uint16_t> values) {
          fill_wide(small, wide.tensors[shard.begin + index], first, values);
        },
        [&](std::uint64_t bytes) {
          if (progress) progress(part.front().begin + bytes);
        });
  }
  // A source that was cut off while it was read would have been copied as zeros.
  small.checkpoint().require_unchanged();
  for (const char* name : copied_files) {
    const fs::path from = small.dir() / name;
    std::error_code error;
    if (!fs::exists(from, error)) continue;
    fs::copy_file(from, folder.add(name), error);
    if (error) throw_failure(cat(from.string(), ": could not be copied (", error.message(), ")"));
  }
  write_text_file(folder.add("model.safetensors.index.json"), index_text(tensors, shards));
  write_text_file(folder.add("config.json"), config_text(small, wide));
  folder.finish();
}

}  // namespace coppice::bench

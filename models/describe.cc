#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "models/model_folder.h"
#include "models/settings/generation_settings.h"

namespace coppice {
namespace {

std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// 1234567 as "1.2 M".
std::string rounded(double number, double step, const char* const* units) {
  int unit = 0;
  while (number >= step && units[unit + 1] != nullptr) {
    number /= step;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.1f %s", number, units[unit]);
  return text;
}

std::string count_text(std::int64_t count) {
  static constexpr const char* units[] = {"", "K", "M", "B", "T", nullptr};
  return rounded(static_cast<double>(count), 1000.0, units);
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* units[] = {" bytes", "KB", "MB", "GB", "TB", nullptr};
  return rounded(static_cast<double>(bytes), 1000.0, units);
}

/// Text from a file, shortened.
std::string brief(const std::string& text) {
  const std::string shown = quote(text);
  return shown.substr(1, shown.size() - 2);
}

class Report {
 public:
  void line(const std::string& name, const std::string& value) {
    text_ += name;
    text_.append(name.size() < 16 ? 16 - name.size() : 1, ' ');
    text_ += printable(value) + "\n";
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

const char* name_of(RopeSpec::Kind kind) {
  switch (kind) {
    case RopeSpec::Kind::plain:
      return "";
    case RopeSpec::Kind::linear:
      return "linear";
    case RopeSpec::Kind::llama3:
      return "llama3";
    case RopeSpec::Kind::yarn:
      return "yarn";
    case RopeSpec::Kind::longrope:
      return "longrope";
  }
  return "";
}

std::string rope_text(const RopeSpec& rope, std::int32_t head_dim) {
  const bool whole = rope.theta < 1e15 && rope.theta == std::floor(rope.theta);
  std::string text = cat("theta ", whole ? grouped(std::llround(rope.theta)) : cat(rope.theta));
  if (rope.rotated < head_dim) text += cat(", ", rope.rotated, " of ", head_dim, " elements");
  if (rope.kind == RopeSpec::Kind::plain) return text;
  text += cat(", ", name_of(rope.kind), " scaling");
  if (rope.kind == RopeSpec::Kind::longrope) {
    return text + cat(", long factors if loaded for more than ", rope.original_context, " tokens");
  }
  return text + cat(" ", rope.factor);
}

/// How often `has` is true of a layer, as "5 of 6 layers"; empty: never.
template <typename Has>
std::string layers_with(const ModelConfig& config, const Has& has) {
  const auto count = std::count_if(config.layer_specs.begin(), config.layer_specs.end(), has);
  return count == 0 ? "" : cat(count, " of ", config.layers, " layers");
}

void describe_layers(const ModelConfig& config, Report& report) {
  const LayerSpec& first = config.layer_specs.front();
  report.line(
      "attention",
      cat(config.heads, " heads of ", config.head_dim, ", ", config.kv_heads,
          config.kv_heads == 1 ? " KV head" : " KV heads", config.qkv_bias ? ", biases" : "",
          first.head_norms ? ", q/k norm" : "",
          first.attention.soft_cap > 0.0f ? cat(", soft cap ", first.attention.soft_cap) : ""));
  std::int32_t window = 0;
  for (const LayerSpec& layer : config.layer_specs) {
    window = std::max(window, layer.attention.window);
  }
  const std::string windowed =
      layers_with(config, [](const LayerSpec& layer) { return layer.attention.window > 0; });
  if (window > 0) report.line("window", cat(grouped(window), " tokens in ", windowed));
  for (std::size_t i = 0; i < config.ropes.size(); ++i) {
    const std::string users = layers_with(
        config, [i](const LayerSpec& layer) { return layer.rope == static_cast<std::int32_t>(i); });
    const bool all = users == layers_with(config, [](const LayerSpec&) { return true; });
    report.line("rotary", rope_text(config.ropes[i], config.head_dim) +
                              (all || users.empty() ? "" : " in " + users));
  }
  if (config.final_soft_cap > 0.0f) report.line("logits", cat("soft cap ", config.final_soft_cap));
}

void describe_shape(const ModelConfig& config, DType kv_dtype, Report& report) {
  const bool known = !config.layer_specs.empty();
  const LayerSpec first = known ? config.layer_specs.front() : LayerSpec{};
  report.line("layers", cat(config.layers, ", hidden ", config.hidden_size, ", FFN ",
                            config.intermediate_size,
                            first.activation == Activation::gelu_tanh ? ", GELU" : "",
                            first.output_norms ? ", norms before and after" : ""));
  if (known) describe_layers(config, report);
  report.line("context", cat(grouped(config.context_length), " tokens, ",
                             bytes_text(2 * std::uint64_t{size_of(kv_dtype)} *
                                        static_cast<std::uint64_t>(config.layers) *
                                        static_cast<std::uint64_t>(config.kv_heads) *
                                        static_cast<std::uint64_t>(config.head_dim)),
                             " of KV memory each, in ", name_of(kv_dtype)));
  if (!config.unsupported.empty()) return;  // other graphs have other parameters
  const std::int64_t parameters = parameter_count(config);
  report.line("parameters", cat(count_text(parameters), " (", grouped(parameters), "), ",
                                config.tie_word_embeddings ? "tied" : "untied", " embeddings"));
}

void describe_weights(const WeightSource& source, Report& report) {
  const std::map<std::string, std::uint64_t> elements = elements_by_type(source);
  std::string dtypes;
  for (const auto& [dtype, count] : elements) {
    dtypes += (dtypes.empty() ? "" : ", ") + dtype;
    if (elements.size() > 1) dtypes += cat(" (", count_text(static_cast<std::int64_t>(count)), ")");
  }
  const std::size_t files = source.file_count();
  report.line("weights",
              cat(bytes_text(source.bytes()), " in ", files, files == 1 ? " file, " : " files, ",
                  source.names().size(), " tensors, ", dtypes));
}

std::string vocabulary(const ModelFolder& folder) {
  const std::int64_t rows = folder.config.vocab_size;
  const std::string text = rows > 0 ? cat(grouped(rows), " tokens, ") : "";
  if (folder.tokenizer == nullptr) return cat(text, "no usable tokenizer: ", folder.no_tokenizer);
  return cat(text, folder.tokenizer->file_kind(), " of ", grouped(folder.tokenizer->pieces()),
             " pieces");
}

/// A line for each file: what of it is obeyed, with values, or what is not, by name.
void describe_settings(const char* title, const std::vector<Setting>& settings, Report& report,
                       std::size_t more = 0) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Setting& one : settings) {
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const auto& known) { return known.first == one.file; });
    if (line == lines.end()) line = lines.insert(lines.end(), {one.file, ""});
    line->second +=
        cat(line->second.empty() ? "" : "; ", one.name, one.value.empty() ? "" : " ", one.value);
  }
  if (more > 0) lines.back().second += cat("; and ", more, " more");
  for (const auto& [file, keys] : lines) report.line(title, cat(file, ": ", keys));
}

std::string token_list(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += (text.empty() ? "" : ", ") + std::to_string(token);
  return text.empty() ? "none" : text;
}

}  // namespace

ModelDescription describe_model(const std::filesystem::path& dir, DType kv_dtype) {
  const ModelFolder folder(dir);
  const ModelConfig& config = folder.config;
  Report report;
  report.line(is_gguf(dir) ? "file" : "folder", dir.string());
  report.line("architecture",
              cat(config.architecture.empty() ? "not named" : brief(config.architecture),
                  config.model_type.empty() ? "" : cat(" (", brief(config.model_type), ")")));
  if (config.head_dim > 0) describe_shape(config, kv_dtype, report);
  report.line("vocabulary", vocabulary(folder));
  report.line("special tokens",
              cat("bos ", config.bos_token < 0 ? "none" : std::to_string(config.bos_token),
                  ", eos ", token_list(config.eos_tokens)));
  describe_settings("obeyed", folder.settings.obeyed, report);
  if (!folder.settings.obeyed.empty() && !GenerationSettings(dir).notes().obeyed.empty()) {
    report.line("", "(sampling, lengths and stop texts: by chat, serve and generate --chat alone)");
  }
  describe_settings("not obeyed", folder.settings.not_obeyed, report, folder.settings.more);
  if (folder.source != nullptr) {
    describe_weights(*folder.source, report);
  } else {
    report.line("weights", "cannot be read");
  }
  const bool runs = folder.obstacles.empty();
  const bool reads_text = folder.tokenizer != nullptr;
  if (runs) {
    report.line("coppice",
                cat("runs this model", reads_text ? "" : ", by token ids (--prompt-ids) only"));
  }
  for (const std::string& obstacle : folder.obstacles) report.line("cannot run", obstacle);
  return {std::move(report).text(), runs};
}

}  // namespace coppice

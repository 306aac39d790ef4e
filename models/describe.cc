#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "models/checkpoint.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"

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

void describe_shape(const ModelConfig& config, DType kv_dtype, Report& report) {
  report.line("layers", cat(config.layers, ", hidden ", config.hidden_size, ", FFN ",
                            config.intermediate_size));
  report.line("attention", cat(config.heads, " heads of ", config.head_dim, ", ", config.kv_heads,
                               config.kv_heads == 1 ? " KV head" : " KV heads",
                               config.qkv_bias ? ", biases" : ""));
  std::string rope = cat("theta ", config.rope_theta);
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::linear) rope += cat(", linear scaling ", scaling.factor);
  if (scaling.kind == RopeScaling::Kind::llama3) rope += cat(", llama3 scaling ", scaling.factor);
  report.line("rotary", rope);
  report.line("context", cat(grouped(config.context_length), " tokens, ",
                             bytes_text(2 * std::uint64_t{size_of(kv_dtype)} *
                                        static_cast<std::uint64_t>(config.layers) *
                                        static_cast<std::uint64_t>(config.kv_heads) *
                                        static_cast<std::uint64_t>(config.head_dim)),
                             " of KV memory each, in ", name_of(kv_dtype)));
  if (!config.unsupported.empty()) return;  // other graphs have other parameters
  const std::int64_t parameters = config.parameters();
  report.line("parameters", cat(count_text(parameters), " (", grouped(parameters), "), ",
                                config.tie_word_embeddings ? "tied" : "untied", " embeddings"));
}

void describe_weights(const Checkpoint& checkpoint, Report& report) {
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : checkpoint.files()) bytes += file.size();
  std::map<std::string, std::uint64_t> elements;
  for (const auto& [name, file] : checkpoint.names()) {
    const StoredTensor& tensor = checkpoint.files()[file].tensors().at(name);
    elements[tensor.dtype] += tensor.elements();
  }
  std::string dtypes;
  for (const auto& [dtype, count] : elements) {
    dtypes += (dtypes.empty() ? "" : ", ") + dtype;
    if (elements.size() > 1) dtypes += cat(" (", count_text(static_cast<std::int64_t>(count)), ")");
  }
  const std::size_t files = checkpoint.files().size();
  report.line("weights", cat(bytes_text(bytes), " in ", files, files == 1 ? " file, " : " files, ",
                             checkpoint.tensors(), " tensors, ", dtypes));
}

std::string vocabulary(const std::filesystem::path& dir, const ModelConfig& config) {
  std::string text = config.vocab_size > 0 ? cat(grouped(config.vocab_size), " tokens, ") : "";
  try {
    const auto tokenizer = Tokenizer::load(dir);
    return text + cat(tokenizer->file_kind(), " of ", grouped(tokenizer->pieces()), " pieces");
  } catch (const Error& error) {
    return text + cat("no usable tokenizer: ", error.what());
  }
}

std::string token_list(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += (text.empty() ? "" : ", ") + std::to_string(token);
  return text.empty() ? "none" : text;
}

}  // namespace

ModelDescription describe_model(const std::filesystem::path& dir, DType kv_dtype) {
  const ModelConfig config = read_config(dir);
  std::vector<std::string> obstacles = config.unsupported;
  Report report;
  report.line("folder", dir.string());
  report.line("architecture",
              cat(config.architecture.empty() ? "not named" : brief(config.architecture),
                  config.model_type.empty() ? "" : cat(" (", brief(config.model_type), ")")));
  if (config.head_dim > 0) describe_shape(config, kv_dtype, report);
  report.line("vocabulary", vocabulary(dir, config));
  report.line("special tokens",
              cat("bos ", config.bos_token < 0 ? "none" : std::to_string(config.bos_token),
                  ", eos ", token_list(config.eos_tokens)));
  try {
    describe_weights(Checkpoint(dir), report);
  } catch (const Error& error) {
    obstacles.push_back(error.what());
    report.line("weights", "cannot be read");
  }
  if (obstacles.empty()) {
    report.line("coppice", "runs this model");
  } else {
    for (const std::string& obstacle : obstacles) report.line("cannot run", obstacle);
  }
  return {std::move(report).text(), obstacles.empty()};
}

}  // namespace coppice

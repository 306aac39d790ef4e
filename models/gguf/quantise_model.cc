#include "models/gguf/quantise_model.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "models/gguf/config_metadata.h"
#include "models/gguf/copied_metadata.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/gguf/sampling_metadata.h"
#include "models/gguf/tensor_names.h"
#include "models/gguf/tokenizer_metadata.h"
#include "models/model_folder.h"
#include "models/requantised.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

/// Numbers of a matrix that a thread takes at a time: 1 MiB of f32.
constexpr std::uint64_t piece_numbers = 1u << 18;

/// All that stands in the file before tensors' data.
struct Description {
  GgufMetadata metadata;
  std::string architecture;
  std::vector<std::pair<std::string, std::vector<float>>> rope;
  std::vector<std::string> lost;
};

Description describe(const QuantiseRequest& request, const ModelConfig& config) {
  const bool from_gguf = is_gguf(request.from);
  const std::string where = (from_gguf ? request.from : request.from / "config.json").string();
  Description out;
  ConfigMetadata said = config_metadata(config, where);
  out.architecture = said.architecture;
  out.rope = std::move(said.tensors);
  const auto add = [&](GgufMetadata more) {
    out.metadata.insert(out.metadata.end(), std::make_move_iterator(more.begin()),
                        std::make_move_iterator(more.end()));
  };
  constexpr std::uint32_t quantisation = 2;  // of ggml's blocks as they are today
  add({{"general.architecture", out.architecture},
       {"general.type", "model"},
       {"general.file_type", file_type_of(request.mix)},
       {"general.quantization_version", quantisation}});
  if (from_gguf) {
    add(copied_metadata(*open_gguf(request.from)));
    return out;
  }
  add({{"general.name", fs::weakly_canonical(request.from).filename().string()}});
  add(std::move(said.values));
  SamplingMetadata sampling = sampling_metadata(request.from);
  TokenizerMetadata tokenizer = tokenizer_metadata(request.from, config);
  add(std::move(sampling.values));
  add(std::move(tokenizer.values));
  out.lost = std::move(tokenizer.lost);
  out.lost.insert(out.lost.end(), sampling.lost.begin(), sampling.lost.end());
  return out;
}

/// A tensor to write, and where its numbers come from.
struct Part {
  std::string source;         ///< its name there; of `values` empty
  std::vector<float> values;  ///< of a tensor that no file has
  bool permuted = false;      ///< rows are written in the order of stored_row()
  bool add_one = false;       ///< norms that are stored as their difference from 1
};

class Quantiser {
 public:
  Quantiser(const QuantiseRequest& request, const ModelFiles& model, const Description& said)
      : request_(request), config_(model.config) {
    std::map<std::string, WeightFormat> formats;
    for (const ParameterShape& parameter : parameter_shapes(config_)) {
      const StoredWeights::Tensor& stored = model.weights.at(parameter.name);
      if (parameter.shape.size() != 2) continue;
      if (has_integers(stored.format)) {
        throw_failure(cat(model.source->file_name(stored.name), ": tensor ", stored.name,
                          " is quantised already, to ", name_of(stored.format),
                          "; name the model in 16 or 32 bits"));
      }
      formats.emplace(stored.name, format_in(request.mix, config_, parameter.name));
    }
    source_ = requantised(open_weights(request.from, config_), formats);
    for (const ParameterShape& parameter : parameter_shapes(config_)) {
      plan(parameter, model.weights.at(parameter.name).name, said.architecture);
    }
    for (const auto& [name, values] : said.rope) {
      tensors_.push_back({name, {values.size()}, WeightFormat::f32});
      parts_.push_back({"", values});
    }
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) cut(tensor);
  }

  const std::vector<GgufTensorToWrite>& tensors() const { return tensors_; }

  /// Writes all tensors' data. False: progress gave up.
  bool write(GgufWriter& writer) {
    std::vector<std::jthread> helpers;
    try {
      for (int i = 1; i < request_.threads; ++i) helpers.emplace_back([&] { work(writer, false); });
    } catch (const std::exception&) {
      // Fewer will do.
    }
    work(writer, true);
    helpers.clear();
    if (failure_) std::rethrow_exception(failure_);
    source_->require_unchanged();
    return !given_up_;
  }

 private:
  struct Piece {
    std::size_t tensor;
    std::uint64_t begin, end;  ///< rows of a matrix, numbers of a list
  };

  void plan(const ParameterShape& parameter, const std::string& source,
            const std::string& architecture) {
    const bool matrix = parameter.shape.size() == 2;
    const StoredTensor& stored = *source_->find(source);
    tensors_.push_back({gguf_tensor_name(config_, parameter.name), stored.shape,
                        matrix ? *format_named(stored.dtype) : WeightFormat::f32});
    parts_.push_back(
        {source,
         {},
         has_permuted_rows(architecture, parameter.name),
         !matrix && config_.one_based_norms && parameter.name.ends_with("norm.weight")});
  }

  void cut(std::size_t tensor) {
    const std::vector<std::uint64_t>& shape = tensors_[tensor].shape;
    const std::uint64_t width = shape.size() == 2 ? shape[1] : shape[0];
    const std::uint64_t rows = shape.size() == 2 ? shape[0] : 1;
    const std::uint64_t most = std::max<std::uint64_t>(1, piece_numbers / width);
    for (std::uint64_t row = 0; row < rows; row += most) {
      pieces_.push_back({tensor, row, std::min(rows, row + most)});
    }
    numbers_ += rows * width;
  }

  void work(GgufWriter& writer, bool tells) {
    try {
      while (!stop_) {
        const std::size_t next = claimed_++;
        if (next >= pieces_.size()) return;
        const Piece& piece = pieces_[next];
        const std::vector<std::uint64_t>& shape = tensors_[piece.tensor].shape;
        if (shape.size() == 2) {
          write_rows(piece, writer);
        } else {
          write_list(piece.tensor, writer);
        }
        done_ += (piece.end - piece.begin) * shape.back();
        if (!tells || !request_.progress) continue;
        if (request_.progress(static_cast<double>(done_) / static_cast<double>(numbers_))) continue;
        given_up_ = stop_ = true;
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stop_ = true;
    }
  }

  void write_rows(const Piece& piece, GgufWriter& writer) const {
    const Part& part = parts_[piece.tensor];
    const GgufTensorToWrite& tensor = tensors_[piece.tensor];
    const std::uint64_t row_bytes = bytes_of(tensor.format, tensor.shape[1]);
    std::vector<std::byte> bytes((piece.end - piece.begin) * row_bytes);
    if (!part.permuted) {
      source_->read(part.source, piece.begin * row_bytes, bytes);
    } else {
      for (std::uint64_t row = piece.begin; row < piece.end; ++row) {
        source_->read(part.source, from_row(row) * row_bytes,
                      std::span(bytes).subspan((row - piece.begin) * row_bytes, row_bytes));
      }
    }
    writer.write(piece.tensor, piece.begin * row_bytes, bytes);
  }

  void write_list(std::size_t tensor, GgufWriter& writer) const {
    const Part& part = parts_[tensor];
    std::vector<float> values = part.values;
    if (!part.source.empty()) values = numbers_of(part);
    writer.write(tensor, 0, std::as_bytes(std::span(values)));
  }

  std::vector<float> numbers_of(const Part& part) const {
    const StoredTensor& stored = *source_->find(part.source);
    std::vector<std::byte> bytes(stored.bytes);
    source_->read(part.source, 0, bytes);
    std::vector<float> values(stored.elements()), ordered(values.size());
    dequantise(*format_named(stored.dtype), bytes, values.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ordered[i] = values[part.permuted ? from_row(i) : i] + (part.add_one ? 1.0f : 0.0f);
    }
    return ordered;
  }

  std::uint64_t from_row(std::uint64_t stored) const {
    return static_cast<std::uint64_t>(
        row_stored_as(static_cast<std::int64_t>(stored), config_.head_dim));
  }

  const QuantiseRequest& request_;
  const ModelConfig& config_;
  std::unique_ptr<WeightSource> source_;
  std::vector<GgufTensorToWrite> tensors_;
  std::vector<Part> parts_;  ///< of the same indices
  std::vector<Piece> pieces_;
  std::uint64_t numbers_ = 0;
  std::atomic<std::size_t> claimed_ = 0;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
  bool given_up_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

std::optional<QuantisedModel> quantise_model(const QuantiseRequest& request) {
  const ModelFiles model(request.from);  // which holds a GGUF file open for the rest
  Description said = describe(request, model.config);
  Quantiser quantiser(request, model, said);
  GgufWriter writer(request.to, said.metadata, quantiser.tensors());
  if (!quantiser.write(writer)) return std::nullopt;
  writer.finish(request.existing);
  QuantisedModel made;
  made.bytes = writer.bytes();
  made.lost = std::move(said.lost);
  for (const GgufTensorToWrite& tensor : quantiser.tensors()) {
    made.elements[std::string(name_of(tensor.format))] += tensor.elements();
  }
  return made;
}

}  // namespace coppice

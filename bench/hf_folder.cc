#include "hf_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"

namespace coppice::bench {
namespace {

// Random values depend on where blocks start.
constexpr std::uint64_t block_values = std::uint64_t{1} << 22;

/// A file being written. Every error names the file and the system's reason.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path) : path_(path) {
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) fail();
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (file_ >= 0) ::close(file_);
  }

  /// Safe from several threads.
  void write(std::uint64_t offset, const void* data, std::size_t bytes) const {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(file_, from, bytes, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail();
      from += done;
      offset += static_cast<std::uint64_t>(done);
      bytes -= static_cast<std::size_t>(done);
    }
  }

  /// The file has `bytes`; those that were not written are zeros that take no room on the disk.
  void set_size(std::uint64_t bytes) const {
    if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) fail();
  }

  void close() {
    const int file = std::exchange(file_, -1);
    if (::close(file) != 0) fail();
  }

 private:
  [[noreturn]] void fail() const {
    const int reason = errno;
    const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
    throw_failure(cat(
        path_.string(), ": could not be written (", std::strerror(reason), "); ",
        full ? "free some space or choose another disk" : "check the folder and its permissions"));
  }

  std::filesystem::path path_;
  int file_ = -1;
};

struct Block {
  std::size_t tensor;
  std::uint64_t first, values;
};

std::vector<Block> blocks_of(std::span<const Tensor> tensors) {
  std::vector<Block> blocks;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::uint64_t first = 0; first < tensors[t].values; first += block_values) {
      blocks.push_back({t, first, std::min(block_values, tensors[t].values - first)});
    }
  }
  return blocks;
}

/// Threads that make and write blocks, each the next one that nobody has begun.
class BlockWriters {
 public:
  BlockWriters(const OutputFile& file, std::uint64_t data, std::span<const Tensor> tensors,
               const FillTensor& fill)
      : file_(file), data_(data), tensors_(tensors), fill_(fill), blocks_(blocks_of(tensors)) {
    running_ = std::max(1u, std::thread::hardware_concurrency());
    for (unsigned i = running_; i > 0; --i) {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }
  /// Leaving early (an error, an interrupt) ends every thread after its present block.
  ~BlockWriters() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  void wait(const BytesWritten& progress) {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(100), [&] { return running_ == 0; })) {
      if (!progress) continue;
      lock.unlock();
      progress(written_);
      lock.lock();
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void work(const std::stop_token& stop) {
    std::exception_ptr error;
    try {
      std::vector<std::uint16_t> values;
      while (!stop.stop_requested()) {
        const std::size_t turn = next_++;
        if (turn >= blocks_.size()) break;
        const Block& block = blocks_[turn];
        values.resize(block.values);
        fill_(block.tensor, block.first, values);
        const std::uint64_t place = tensors_[block.tensor].begin - tensors_.front().begin;
        if (!std::all_of(values.begin(), values.end(), [](auto value) { return value == 0; })) {
          file_.write(data_ + place + 2 * block.first, values.data(), 2 * values.size());
        }
        written_ += 2 * values.size();
      }
    } catch (...) {
      error = std::current_exception();
      next_ = blocks_.size();
    }
    const std::lock_guard lock(mutex_);
    if (error && !error_) error_ = error;
    --running_;
    ended_.notify_all();
  }

  const OutputFile& file_;
  const std::uint64_t data_;  ///< where tensor data begins in the file
  const std::span<const Tensor> tensors_;
  const FillTensor& fill_;
  const std::vector<Block> blocks_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::uint64_t> written_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  unsigned running_ = 0;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;  ///< last: joined before what they use goes
};

}  // namespace

std::int64_t ModelShape::streamed_parameters() const {
  return layers * (2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * ffn) + vocab * hidden;
}

const std::map<std::string, ModelShape>& known_shapes() {
  using enum ShapeFamily;
  static const std::map<std::string, ModelShape> shapes = {
      {"one-layer", {4096, 64, 128, 1, 1, 1, 64, 65536}},
      {"llama-68m", {32000, 768, 3072, 2, 12, 12, 64, 2048}},
      {"tinyllama-1.1b", {32000, 2048, 5632, 22, 32, 4, 64, 2048}},
      {"llama-3.2-3b", {128256, 3072, 8192, 28, 24, 8, 128, 8192}},
      {"llama-2-7b", {32000, 4096, 11008, 32, 32, 32, 128, 4096}},
      {"llama-3-8b", {128256, 4096, 14336, 32, 32, 8, 128, 8192}},
      {"llama-2-13b", {32000, 5120, 13824, 40, 40, 40, 128, 4096}},
      {"llama-2-70b", {32000, 8192, 28672, 80, 64, 8, 128, 4096}},
      {"llama-3.1-8b", {128256, 4096, 14336, 32, 32, 8, 128, 131072}},
      {"llama-3.2-1b", {128256, 2048, 8192, 16, 32, 8, 64, 131072}},
      {"qwen3-8b", {151936, 4096, 12288, 36, 32, 8, 128, 40960, qwen3}},
      {"qwen3-0.6b", {151936, 1024, 3072, 28, 16, 8, 128, 40960, qwen3}},
      {"gemma-3-12b", {262208, 3840, 15360, 48, 16, 8, 256, 131072, gemma3, 1024}},
      {"gemma-3-1b", {262144, 1152, 6912, 26, 4, 1, 256, 32768, gemma3, 512}},
  };
  return shapes;
}

std::string known_shape_names() {
  std::string names;
  for (const auto& [name, shape] : known_shapes()) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::vector<Tensor> tensors_of(const ModelShape& s) {
  std::vector<Tensor> all;
  std::uint64_t end = 0;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> extents) {
    Tensor tensor{name, std::move(extents)};
    tensor.values = 1;
    for (const std::int64_t extent : tensor.shape) {
      tensor.values *= static_cast<std::uint64_t>(extent);
    }
    tensor.is_norm = tensor.shape.size() == 1;
    tensor.norm = s.family == ShapeFamily::gemma3 ? 0.0f : 1.0f;
    tensor.begin = end;
    end = tensor.end();
    all.push_back(std::move(tensor));
  };
  add("model.embed_tokens.weight", {s.vocab, s.hidden});
  for (std::int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string at = cat("model.layers.", layer, ".");
    add(at + "input_layernorm.weight", {s.hidden});
    add(at + "self_attn.q_proj.weight", {s.heads * s.head_dim, s.hidden});
    add(at + "self_attn.k_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
    add(at + "self_attn.v_proj.weight", {s.kv_heads * s.head_dim, s.hidden});
    if (s.family != ShapeFamily::llama) {
      add(at + "self_attn.q_norm.weight", {s.head_dim});
      add(at + "self_attn.k_norm.weight", {s.head_dim});
    }
    add(at + "self_attn.o_proj.weight", {s.hidden, s.heads * s.head_dim});
    add(at + "post_attention_layernorm.weight", {s.hidden});
    if (s.family == ShapeFamily::gemma3) {
      add(at + "pre_feedforward_layernorm.weight", {s.hidden});
      add(at + "post_feedforward_layernorm.weight", {s.hidden});
    }
    add(at + "mlp.gate_proj.weight", {s.ffn, s.hidden});
    add(at + "mlp.up_proj.weight", {s.ffn, s.hidden});
    add(at + "mlp.down_proj.weight", {s.hidden, s.ffn});
  }
  add("model.norm.weight", {s.hidden});
  add("lm_head.weight", {s.vocab, s.hidden});
  return all;
}

nlohmann::ordered_json config_of(const ModelShape& s) {
  nlohmann::ordered_json config = {{"vocab_size", s.vocab},
                                   {"hidden_size", s.hidden},
                                   {"intermediate_size", s.ffn},
                                   {"num_hidden_layers", s.layers},
                                   {"num_attention_heads", s.heads},
                                   {"num_key_value_heads", s.kv_heads},
                                   {"head_dim", s.head_dim},
                                   {"max_position_embeddings", s.context},
                                   {"attention_bias", false},
                                   {"tie_word_embeddings", false},
                                   {"bos_token_id", 1},
                                   {"eos_token_id", 2},
                                   {"torch_dtype", "bfloat16"}};
  const auto add = [&](const nlohmann::ordered_json& fields) { config.update(fields); };
  switch (s.family) {
    case ShapeFamily::llama:
      add({{"architectures", {"LlamaForCausalLM"}},
           {"model_type", "llama"},
           {"hidden_act", "silu"},
           {"rms_norm_eps", 1e-5},
           {"rope_theta", 10000.0}});
      break;
    case ShapeFamily::qwen3:
      add({{"architectures", {"Qwen3ForCausalLM"}},
           {"model_type", "qwen3"},
           {"hidden_act", "silu"},
           {"rms_norm_eps", 1e-6},
           {"rope_theta", 1000000.0},
           {"sliding_window", nullptr},
           {"use_sliding_window", false}});
      break;
    case ShapeFamily::gemma3:
      auto kinds = nlohmann::ordered_json::array();
      for (std::int64_t layer = 1; layer <= s.layers; ++layer) {
        kinds.push_back(layer % 6 == 0 ? "full_attention" : "sliding_attention");
      }
      add({{"architectures", {"Gemma3ForCausalLM"}},
           {"model_type", "gemma3_text"},
           {"hidden_activation", "gelu_pytorch_tanh"},
           {"rms_norm_eps", 1e-6},
           {"rope_theta", 1000000.0},
           {"rope_local_base_freq", 10000.0},
           {"rope_scaling", nullptr},
           {"query_pre_attn_scalar", s.head_dim},
           {"attn_logit_softcapping", nullptr},
           {"final_logit_softcapping", nullptr},
           {"sliding_window", s.window},
           {"layer_types", kinds}});
      break;
  }
  return config;
}

void fill_random(const Tensor& tensor, std::uint64_t first, float factor,
                 std::span<std::uint16_t> out) {
  const double deviation =
      std::sqrt(3.0) / std::sqrt(static_cast<double>(tensor.is_norm ? 1 : tensor.shape.back()));
  if (factor == 0.0f && !tensor.is_norm) return std::fill(out.begin(), out.end(), 0);
  const float scale = static_cast<float>(deviation) * factor;
  std::uint64_t state = (tensor.begin + first) * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
  for (std::uint16_t& value : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const float uniform = static_cast<float>(static_cast<std::int64_t>(state >> 40)) * 0x1p-23f;
    const float weight = tensor.is_norm ? tensor.norm : (uniform - 1.0f) * scale;
    std::uint32_t bits;
    std::memcpy(&bits, &weight, sizeof(bits));
    value = static_cast<std::uint16_t>(bits >> 16);
  }
}

void write_tensor_file(const std::filesystem::path& file, std::span<const Tensor> tensors,
                       const std::map<std::string, std::string>& metadata, const FillTensor& fill,
                       const BytesWritten& progress) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  const std::uint64_t start = tensors.front().begin;
  for (const Tensor& t : tensors) {
    header[t.name] = {{"dtype", "BF16"},
                      {"shape", t.shape},
                      {"data_offsets", {t.begin - start, t.end() - start}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 63) / 64 * 64, ' ');
  const std::uint64_t length = text.size();
  OutputFile out(file);
  out.write(0, &length, sizeof(length));
  out.write(sizeof(length), text.data(), text.size());
  out.set_size(sizeof(length) + length + tensors.back().end() - start);
  BlockWriters(out, sizeof(length) + length, tensors, fill).wait(progress);
  out.close();
}

void write_text_file(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::path part = file;
  part += ".part";
  try {
    OutputFile out(part);
    out.write(0, text.data(), text.size());
    out.close();
    std::filesystem::rename(part, file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw;
  }
}

}  // namespace coppice::bench

// Small GGUF files, well formed or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace coppice::testing {

/// A GGUF file made by hand. Values are written in the order of their calls.
class GgufBytes {
 public:
  template <typename T>
  static std::string number(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
  }
  static std::string text(const std::string& text) {
    return number(std::uint64_t{text.size()}) + text;
  }
  enum Kind : std::uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    list,
    u64,
    i64,
    f64
  };

  GgufBytes& add(const std::string& key, Kind kind, const std::string& value) {
    values_ += text(key) + number(kind) + value;
    ++count;
    return *this;
  }
  GgufBytes& add(const std::string& key, const std::string& value) {
    return add(key, string, text(value));
  }
  GgufBytes& add(const std::string& key, const char* value) { return add(key, std::string(value)); }
  GgufBytes& add(const std::string& key, int value) {
    return add(key, u32, number(static_cast<std::uint32_t>(value)));
  }
  GgufBytes& add(const std::string& key, double value) {
    return add(key, f32, number(static_cast<float>(value)));
  }
  GgufBytes& add(const std::string& key, bool value) {
    return add(key, boolean, number(static_cast<std::uint8_t>(value)));
  }
  GgufBytes& add(const std::string& key, const std::vector<std::string>& values) {
    std::string all;
    for (const std::string& value : values) all += text(value);
    return add_list(key, string, values.size(), all);
  }
  GgufBytes& add(const std::string& key, const std::vector<int>& values) {
    std::string all;
    for (const int value : values) all += number(std::int32_t{value});
    return add_list(key, i32, values.size(), all);
  }
  GgufBytes& add(const std::string& key, const std::vector<float>& values) {
    std::string all;
    for (const float value : values) all += number(value);
    return add_list(key, f32, values.size(), all);
  }
  GgufBytes& add_list(const std::string& key, Kind kind, std::uint64_t length,
                      const std::string& values) {
    return add(key, list, number(kind) + number(length) + values);
  }

  /// A tensor of ggml's extents, the innermost first, at the next aligned place.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& extents,
                    std::uint32_t type, const std::string& bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, extents, type, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufBytes& tensor_at(const std::string& name, const std::vector<std::uint64_t>& extents,
                       std::uint32_t type, std::uint64_t offset) {
    tensors_ += text(name) + number(static_cast<std::uint32_t>(extents.size()));
    for (const std::uint64_t extent : extents) tensors_ += number(extent);
    tensors_ += number(type) + number(offset);
    ++tensor_count;
    return *this;
  }
  GgufBytes& floats(const std::string& name, const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) bytes += number(value);
    return tensor(name, {values.size()}, 0, bytes);
  }

  std::string bytes() const {
    std::string file =
        "GGUF" + number(version) + number(tensor_count) + number(count) + values_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

  std::uint32_t version = 3;
  std::uint64_t count = 0, tensor_count = 0;
  std::uint64_t alignment = 32;

 private:
  std::string values_, tensors_, data_;
};

/// The metadata of a small model's shapes.
inline GgufBytes shapes_of(const std::string& architecture, int layers = 3) {
  GgufBytes file;
  const std::string at = architecture + ".";
  file.add("general.architecture", architecture);
  file.add(at + "block_count", layers).add(at + "context_length", 8192);
  file.add(at + "embedding_length", 64).add(at + "feed_forward_length", 176);
  file.add(at + "attention.head_count", 8).add(at + "attention.head_count_kv", 2);
  file.add(at + "attention.layer_norm_rms_epsilon", 1e-5).add(at + "rope.freq_base", 500000.0);
  return file;
}

}  // namespace coppice::testing

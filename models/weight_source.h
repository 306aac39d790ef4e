// Where a model's tensors are read from: safetensors files or a GGUF file. Names are Hugging
// Face's, shapes [out, in].
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/weight_format.h"

namespace coppice {

/// One tensor as stored.
struct StoredTensor {
  std::string dtype;  ///< as its file spells it: F32, BF16, I64, Q4_K, ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  ///< its first byte, from the end of the header
  std::uint64_t bytes = 0;

  std::uint64_t elements() const;
};

/// Returns the format of a dtype as files spell it; std::nullopt: not one of weights, or unknown.
std::optional<WeightFormat> format_named(std::string_view dtype);

/// Begins the names of tensors that Hugging Face has no name for: no model's parts.
inline constexpr std::string_view nameless = "?";

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// nullptr when there is none of that name.
  virtual const StoredTensor* find(const std::string& tensor) const = 0;
  /// Names the file that holds a tensor, which must be there, for messages.
  virtual const std::string& file_name(const std::string& tensor) const = 0;
  /// What the files call a tensor, which need not be there, for messages.
  virtual std::string name_in_file(const std::string& tensor) const { return tensor; }
  /// What says which tensors there must be, for messages.
  virtual const char* described_by() const { return "config.json"; }
  /// Fills `to` with a tensor's bytes from `offset` on; both are multiples of a row's bytes, or the
  /// tensor has plain numbers. Several threads may call it. Throws Error(failure) if the disk fails
  /// or the file has become shorter.
  virtual void read(const std::string& tensor, std::uint64_t offset,
                    std::span<std::byte> to) const = 0;
  /// In order.
  virtual std::vector<std::string> names() const = 0;
  /// Returns the bytes of all files, and their number.
  virtual std::uint64_t bytes() const = 0;
  virtual std::size_t file_count() const = 0;
  /// Throws Error(failure) if a file was written to or cut since it was opened.
  virtual void require_unchanged() const = 0;
};

/// Numbers of all tensors, by dtype.
std::map<std::string, std::uint64_t> elements_by_type(const WeightSource& source);

struct ModelConfig;

/// Opens the safetensors of a folder, or a GGUF file, whose config this is; `rounding`: as
/// requantised() reads them. Throws as Checkpoint and GgufFile do.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model,
                                           const ModelConfig& config,
                                           std::optional<WeightFormat> rounding = std::nullopt);
/// The same with the config read anew, which throws as read_config().
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model,
                                           std::optional<WeightFormat> rounding = std::nullopt);

}  // namespace coppice

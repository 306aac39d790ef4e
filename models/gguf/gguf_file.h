// The GGUF format: metadata, descriptions of tensors, tensor data, in one file or in several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json_file.h"
#include "kernels/weight_format.h"
#include "models/config_fields.h"

namespace coppice {

/// One tensor as stored.
struct GgufTensor {
  std::vector<std::uint64_t> shape;  ///< [out, in], or [n]: ggml's extents, the last one first
  std::uint32_t type = 0;            ///< ggml's number of it (ggml_types.h)
  std::size_t file = 0;              ///< which of the files
  std::uint64_t begin = 0;           ///< its first byte, from the file's own
  std::uint64_t bytes = 0;           ///< 0 if ggml_type() does not know the type

  std::uint64_t elements() const;
};

/// An open GGUF model of version 2 or 3. Nothing of it is mapped, as of a SafetensorsFile. Safe to
/// use from several threads at once.
class GgufFile {
 public:
  /// Opens the file and, if it is the first of several (NAME-00001-of-0000N.gguf), the rest.
  ///
  /// All lengths and counts are held against the files, metadata may take 64 MiB, and their texts
  /// must be UTF-8. Keys and tensors must be there once; tensors must lie inside their file,
  /// aligned and apart. Throws Error(failure).
  explicit GgufFile(const std::filesystem::path& path);

  const std::string& name() const { return parts_.front().name; }  ///< the first file's
  /// Values by key: integers, finite numbers, texts, true or false, and lists of one of these. Long
  /// lists but those of the tokenizer are left out, as binary values.
  const nlohmann::json& metadata() const { return *metadata_; }
  /// Checked access to values that are no lists.
  Fields fields() const { return {*metadata_, name()}; }
  enum class ListOf { texts, integers, numbers };
  /// A list of one kind of values. Throws Error(failure) if it is missing or of another kind.
  const nlohmann::json& list(const char* key, ListOf kind) const;
  /// A list that metadata() leaves out. Throws Error(failure) if it is damaged.
  nlohmann::json left_out_list(const std::string& key) const;

  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& tensor) const;  ///< nullptr: none of that name
  /// How a tensor's numbers lie. Throws Error(failure) naming its type if coppice does not read it.
  WeightFormat format_of(const std::string& tensor) const;
  /// Fills `to` with a tensor's bytes from `offset` on. Throws Error(failure) if the disk fails or
  /// the file has become shorter.
  void read(const GgufTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;

  struct Part {
    std::string name;
    FileHandle file;
    FileStamp stamp;  ///< when it was opened
  };
  const std::vector<Part>& parts() const { return parts_; }
  /// Throws Error(failure) if a file was written to or cut since it was opened.
  void require_unchanged() const;

 private:
  JsonObject open_part(const std::filesystem::path& path);
  void open_rest(const std::filesystem::path& path);

  std::vector<Part> parts_;
  std::map<std::string, GgufTensor> tensors_;
  JsonObject metadata_;  ///< the first file's: what the rest repeats does not count
};

/// Whether a path leads to a file, not a folder, that is called .gguf or begins as one does.
bool is_gguf(const std::filesystem::path& path);

/// Opens a file, or hands out the one that somebody holds open: a model is asked for its config,
/// tokenizer, settings and weights, which must all be of one file. Throws Error(failure) if
/// another file has taken its name meanwhile, or something was written to it.
std::shared_ptr<const GgufFile> open_gguf(const std::filesystem::path& path);
/// The same for those who hold a model open while others read it; nullptr if it is no GGUF file.
std::shared_ptr<const GgufFile> held_gguf(const std::filesystem::path& path);

}  // namespace coppice

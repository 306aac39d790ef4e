// Whether files are still what they were.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace coppice {

/// FNV-1a, 64 bits: tells files apart, keeps no secret.
class Fingerprint {
 public:
  void add(std::string_view bytes);
  void add_number(std::uint64_t number);
  std::uint64_t number() const { return hash_; }
  /// 16 hexadecimal digits.
  std::string text() const;

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
};

/// The number of these bytes alone.
std::uint64_t fnv1a(std::string_view bytes);

/// Fingerprints a model folder: names and sizes of its files, the whole of small ones, and the
/// first and last 64 KiB of those beyond a mebibyte. Weights of gigabytes are not read through for
/// it. Of a GGUF file the same without its name. Throws Error(failure) for a folder or file that
/// cannot be read.
std::string fingerprint_of_folder(const std::filesystem::path& folder);

}  // namespace coppice

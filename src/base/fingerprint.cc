#include "base/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t whole_up_to = std::uintmax_t{1} << 20;
constexpr std::uintmax_t edge = std::uintmax_t{64} << 10;

void add_part(Fingerprint& fingerprint, std::ifstream& in, std::uintmax_t from,
              std::uintmax_t bytes, const fs::path& file) {
  std::string part(static_cast<std::size_t>(bytes), '\0');
  in.seekg(static_cast<std::streamoff>(from));
  if (!in.read(part.data(), static_cast<std::streamsize>(part.size()))) {
    throw_failure(cat(file.string(), ": cannot be read; check its permissions"));
  }
  fingerprint.add(part);
}

}  // namespace

void Fingerprint::add(std::string_view bytes) {
  for (const char byte : bytes) {
    hash_ = (hash_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
  }
}

void Fingerprint::add_number(std::uint64_t number) {
  std::array<char, 8> bytes{};
  for (char& byte : bytes) {
    byte = static_cast<char>(number & 0xff);
    number >>= 8;
  }
  add(std::string_view(bytes.data(), bytes.size()));
}

std::uint64_t fnv1a(std::string_view bytes) {
  Fingerprint fingerprint;
  fingerprint.add(bytes);
  return fingerprint.number();
}

std::string Fingerprint::text() const {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash_));
  return digits.data();
}

std::string fingerprint_of_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  std::error_code none;
  const bool is_file = fs::is_regular_file(folder, none);  // a GGUF file
  if (is_file) files.push_back(folder);
  for (fs::directory_iterator entry(folder, error), end; !is_file && !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  if (error && !is_file) {
    throw_failure(cat("model folder ", quote(folder.string()), ": ", error.message(),
                      "; name a Hugging Face model folder"));
  }
  // Chat templates by name, which belong to what a folder means.
  for (fs::directory_iterator entry(folder / "additional_chat_templates", none), end;
       !none && entry != end; entry.increment(none)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  Fingerprint fingerprint;
  for (const fs::path& file : files) {
    const std::uintmax_t bytes = fs::file_size(file, error);
    std::ifstream in(file, std::ios::binary);
    if (error || !in) throw_failure(cat(file.string(), ": cannot be read; check its permissions"));
    fingerprint.add(file.lexically_relative(folder).string());
    fingerprint.add_number(bytes);
    if (bytes <= whole_up_to) {
      add_part(fingerprint, in, 0, bytes, file);
    } else {
      add_part(fingerprint, in, 0, edge, file);
      add_part(fingerprint, in, bytes - edge, edge, file);
    }
  }
  return fingerprint.text();
}

}  // namespace coppice

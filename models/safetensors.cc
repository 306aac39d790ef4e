#include "models/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "base/json_file.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t longest_header = 100'000'000;

/// Bits of one element, 0 for a dtype that the format does not have.
int bits_of(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, int>, 23> known = {{
      {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"I16", 16},
      {"F16", 16},    {"BF16", 16},       {"U32", 32},        {"I32", 32},    {"F32", 32},
      {"U64", 64},    {"I64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"C128", 128},
  }};
  for (const auto& [name, bits] : known) {
    if (name == dtype) return bits;
  }
  return 0;
}

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  std::map<std::string, StoredTensor> read() {
    const std::string_view text = header_text();
    const JsonObject header = parse_json_object(text, cat(name_, ": header"));
    data_ = bytes_.subspan(8 + text.size());
    for (const auto& [key, value] : header->items()) {
      if (key == "__metadata__") {
        check_metadata(value);
      } else {
        add_tensor(key, value);
      }
    }
    check_coverage();
    return std::move(tensors_);
  }

 private:
  struct Range {
    std::uint64_t begin, end;
    const std::string* tensor;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw_failure(cat(name_, ": ", what, "; fetch the file again"));
  }
  [[noreturn]] void refuse(const std::string& tensor, const std::string& what) const {
    refuse(cat("tensor ", quote(tensor), " ", what));
  }

  std::string_view header_text() const {
    if (bytes_.size() < 8) {
      refuse(cat(bytes_.size(), " bytes are too few for a safetensors file"));
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), 8);
    if constexpr (std::endian::native == std::endian::big) length = __builtin_bswap64(length);
    if (length > longest_header) {
      refuse(cat("header length ", length, " is more than the ", longest_header,
                 " bytes that the format allows"));
    }
    if (length > bytes_.size() - 8) {
      refuse(cat("truncated: its header has ", length, " bytes, the file ", bytes_.size()));
    }
    if (length < 2) refuse(cat("header length ", length, " is too short for a JSON object"));
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + 8,
                                static_cast<std::size_t>(length));
    if (text.front() != '{') refuse("header does not begin with '{'");
    if (!is_valid_utf8(text)) refuse("header is not valid UTF-8");
    return text;
  }

  void check_metadata(const Json& metadata) const {
    if (!metadata.is_object()) refuse("__metadata__ is not an object");
    for (const auto& [key, value] : metadata.items()) {
      if (!value.is_string()) refuse(cat("__metadata__ entry ", quote(key), " is not a string"));
    }
  }

  const Json& field(const std::string& tensor, const Json& about, const char* name) const {
    const auto it = about.find(name);
    if (it == about.end()) refuse(tensor, cat("has no ", name));
    return *it;
  }

  void add_tensor(const std::string& tensor, const Json& about) {
    if (!about.is_object()) refuse(tensor, "is not described by an object");
    StoredTensor stored;
    const Json& dtype = field(tensor, about, "dtype");
    if (!dtype.is_string()) refuse(tensor, "has a dtype that is not a string");
    stored.dtype = dtype.get<std::string>();
    const int bits = bits_of(stored.dtype);
    if (bits == 0) refuse(tensor, cat("has the unknown dtype ", quote(stored.dtype)));

    const Json& shape = field(tensor, about, "shape");
    if (!shape.is_array()) refuse(tensor, "has a shape that is not a list");
    std::uint64_t size_bits = 1;
    bool overflow = false;
    for (const Json& extent : shape) {
      if (!extent.is_number_unsigned()) {
        refuse(tensor, cat("has the extent ", shown(extent), " in its shape"));
      }
      stored.shape.push_back(extent.get<std::uint64_t>());
      overflow |= __builtin_mul_overflow(size_bits, stored.shape.back(), &size_bits);
    }
    overflow |= __builtin_mul_overflow(size_bits, static_cast<std::uint64_t>(bits), &size_bits);
    if (overflow) refuse(tensor, cat("has the shape ", shown(shape), ", whose size overflows"));
    if (size_bits % 8 != 0) refuse(tensor, "does not fill whole bytes");

    const Json& offsets = field(tensor, about, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      refuse(tensor, cat("has the data offsets ", shown(offsets), ", not a begin and an end"));
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end) refuse(tensor, cat("begins at ", begin, " after its end, ", end));
    if (end > data_.size()) {
      refuse(tensor, cat("ends at byte ", end, " of ", data_.size(),
                         ": the file is truncated or its header is wrong"));
    }
    if (end - begin != size_bits / 8) {
      refuse(tensor, cat("has ", end - begin, " bytes, but its shape ", shown(shape), " of ",
                         stored.dtype, " needs ", size_bits / 8));
    }
    stored.bytes = data_.subspan(begin, end - begin);
    const auto [it, inserted] = tensors_.emplace(tensor, std::move(stored));
    if (inserted) ranges_.push_back({begin, end, &it->first});
  }

  void check_coverage() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t covered = 0;
    for (const Range& range : ranges_) {
      if (range.begin != covered) {
        refuse(*range.tensor,
               cat("begins at byte ", range.begin, " where ", covered,
                   " bytes are taken: ", range.begin > covered ? "a hole" : "an overlap"));
      }
      covered = range.end;
    }
    if (covered != data_.size()) {
      refuse(cat(data_.size() - covered, " bytes after the last tensor belong to none"));
    }
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  const std::string& name_;
  std::map<std::string, StoredTensor> tensors_;
  std::vector<Range> ranges_;
};

}  // namespace

std::uint64_t StoredTensor::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  return count;
}

std::map<std::string, StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                                      const std::string& name) {
  return HeaderReader(bytes, name).read();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : name_(path.string()), file_(path), tensors_(parse_safetensors(file_.bytes(), name_)) {}

void SafetensorsFile::require_whole() const {
  if (!file_.still_whole()) {
    throw_failure(cat(name_, ": became shorter while it was read; fetch the file again"));
  }
}

}  // namespace coppice

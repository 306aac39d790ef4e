#include "models/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "models/gguf/ggml_types.h"

namespace coppice {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, GgufTensor>;

/// Half a million merges take 10 MB. Values take up to sixteen times their bytes in memory.
constexpr std::uint64_t largest_header = 64u << 20;
constexpr std::uint64_t longest_list = 1u << 22;
/// Longest list of a key that is not looked at: longer than any list by layers.
constexpr std::uint64_t longest_other_list = 1u << 12;
constexpr std::uint64_t most_keys = 1u << 16;  // files have some dozens
constexpr std::uint64_t longest_name = 1u << 16;
constexpr std::uint64_t longest_text = 8u << 20;
constexpr std::uint32_t most_extents = 4;

using Kind = GgufKind;

/// Lists as long as the vocabulary that a tokenizer is made of.
bool is_of_vocabulary(std::string_view key) {
  constexpr std::string_view lists[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                        "tokenizer.ggml.scores", "tokenizer.ggml.merges"};
  return std::find(std::begin(lists), std::end(lists), key) != std::end(lists);
}

/// The least bytes that a value of a kind takes; 0: no such kind.
std::uint64_t least_bytes(Kind kind) {
  switch (kind) {
    case Kind::u8:
    case Kind::i8:
    case Kind::boolean:
      return 1;
    case Kind::u16:
    case Kind::i16:
      return 2;
    case Kind::u32:
    case Kind::i32:
    case Kind::f32:
      return 4;
    case Kind::u64:
    case Kind::i64:
    case Kind::f64:
    case Kind::text:
      return 8;
    case Kind::list:
      return 12;
  }
  return 0;
}

/// Reads one file up to its tensors' data.
class GgufHeader {
 public:
  GgufHeader(const GgufFile::Part& part, std::size_t index) : part_(part), index_(index) {}

  JsonObject read(Tensors& tensors) {
    if (part_.stamp.bytes == 0)
      throw_failure(cat(part_.name, ": an empty file; download it again"));
    if (part_.stamp.bytes < gguf_magic.size() || take(gguf_magic.size()) != gguf_magic) {
      throw_failure(
          cat(part_.name, ": no GGUF file: it does not begin with \"GGUF\"; name another"));
    }
    const auto version = number<std::uint32_t>();
    if (version == 1 || (version & 0xffff) == 0) {
      throw_failure(cat(part_.name, version == 1 ? ": GGUF of version 1" : ": big-endian GGUF",
                        ", but coppice reads versions 2 and 3, little-endian; convert the model "
                        "again"));
    }
    if (version != 2 && version != 3) {
      throw_failure(cat(part_.name, ": GGUF of version ", version,
                        ", but coppice reads versions 2 and 3; name another file"));
    }
    const auto tensor_count = number<std::uint64_t>(), value_count = number<std::uint64_t>();
    if (value_count > most_keys) {
      refuse(cat("has ", value_count, " keys, more than the ", most_keys, " that coppice reads"));
    }
    JsonObject metadata(Json::object());
    for (std::uint64_t i = 0; i < value_count; ++i) {
      const std::string key = text("key", longest_name);
      const auto [entry, is_new] = metadata.edit().get_ref<Json::object_t&>().try_emplace(key);
      if (!is_new) refuse(cat("key ", quote(key), " appears twice"));
      entry->second = value(key, static_cast<Kind>(number<std::uint32_t>()));
      // As JSON it would be null, which is read as if the key were not there.
      if (entry->second.is_number_float() && !std::isfinite(entry->second.get<double>())) {
        refuse(cat(quote(key), " is NaN or infinity"));
      }
    }
    for (std::uint64_t i = 0; i < tensor_count; ++i) add_tensor(tensors);
    place(alignment(*metadata));
    return metadata;
  }

  /// The list that begins at a byte.
  Json list_at(std::uint64_t begin, const std::string& key) {
    at_ = begin;
    return list(key, true);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw_failure(cat(part_.name, ": ", what, "; fetch the file again"));
  }
  [[noreturn]] void refuse(const std::string& tensor, const std::string& what) const {
    refuse(cat("tensor ", quote(tensor), " ", what));
  }

  [[noreturn]] void refuse_end(const std::string& what) const {
    throw_failure(cat(part_.name, ": the file ends too early, after ", part_.stamp.bytes,
                      " bytes: ", what, "; it is truncated or damaged, download it again"));
  }

  /// The next bytes, until the next call.
  std::string_view take(std::uint64_t bytes) {
    constexpr std::uint64_t chunk = 1u << 20;
    if (bytes > part_.stamp.bytes - at_) refuse_end("its metadata go on");
    if (at_ + bytes > largest_header) {
      refuse(cat("its metadata take more than the ", largest_header, " bytes that coppice reads"));
    }
    if (at_ + bytes > bytes_.size()) {
      const std::size_t known = bytes_.size();
      bytes_.resize(std::min(part_.stamp.bytes, std::max(at_ + bytes, known + chunk)));
      fill_from(part_.file, part_.name, known,
                std::as_writable_bytes(std::span(bytes_)).subspan(known));
    }
    at_ += bytes;
    return std::string_view(bytes_).substr(at_ - bytes, bytes);
  }

  template <typename T>
  T number() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::uint64_t length_of(std::string_view what, std::uint64_t longest) {
    const auto length = number<std::uint64_t>();
    if (length > longest) {
      refuse(cat(quote(what), " has ", length, " bytes, more than ", longest));
    }
    return length;
  }

  std::string text(std::string_view what, std::uint64_t longest) {
    std::string found(take(length_of(what, longest)));
    if (!is_valid_utf8(found)) refuse(cat(quote(what), " is not valid UTF-8: ", quote(found)));
    return found;
  }

  Json value(const std::string& key, Kind kind) {
    switch (kind) {
      case Kind::u8:
        return number<std::uint8_t>();
      case Kind::i8:
        return number<std::int8_t>();
      case Kind::u16:
        return number<std::uint16_t>();
      case Kind::i16:
        return number<std::int16_t>();
      case Kind::u32:
        return number<std::uint32_t>();
      case Kind::i32:
        return number<std::int32_t>();
      case Kind::f32:
        return number<float>();
      case Kind::u64:
        return number<std::uint64_t>();
      case Kind::i64:
        return number<std::int64_t>();
      case Kind::f64:
        return number<double>();
      case Kind::text:
        return text(key, longest_text);
      case Kind::boolean: {
        const auto flag = number<std::uint8_t>();
        if (flag > 1) refuse(cat(quote(key), " is ", int{flag}, ", neither true nor false"));
        return flag == 1;
      }
      case Kind::list:
        return list(key, is_of_vocabulary(key));
    }
    refuse_kind(key, kind);
  }
  [[noreturn]] void refuse_kind(const std::string& key, Kind kind) const {
    refuse(cat(quote(key), " is of the unknown kind ", static_cast<std::uint32_t>(kind)));
  }

  Json list(const std::string& key, bool whole) {
    const std::uint64_t begin = at_;
    const auto kind = static_cast<Kind>(number<std::uint32_t>());
    const auto count = number<std::uint64_t>();
    if (kind == Kind::list) refuse(cat(quote(key), " is a list of lists"));
    const std::uint64_t least = std::max<std::uint64_t>(least_bytes(kind), 1);
    if (count > (part_.stamp.bytes - at_) / least) {
      refuse_end(cat(quote(key), " is a list of ", count, " values"));
    }
    if (count > longest_list) {
      refuse(cat(quote(key), " is a list of ", count, " values, more than ", longest_list));
    }
    if (count > 0 && least_bytes(kind) == 0) refuse_kind(key, kind);
    if (count > longest_other_list && !whole) {
      skip(key, kind, count);
      return left_out(begin);
    }
    Json values = Json::array();
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(value(key, kind));
    return values;
  }

  void skip(const std::string& key, Kind kind, std::uint64_t count) {
    if (kind != Kind::text) {
      take(count * least_bytes(kind));
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) take(length_of(key, longest_text));
  }

  void add_tensor(Tensors& tensors) {
    const std::string name = text("tensor name", longest_name);
    GgufTensor tensor;
    tensor.file = index_;
    const auto extents = number<std::uint32_t>();
    if (extents < 1 || extents > most_extents) refuse(name, cat("has ", extents, " extents"));
    std::uint64_t elements = 1;
    bool overflow = false;
    for (std::uint32_t i = 0; i < extents; ++i) {
      const auto extent = number<std::uint64_t>();
      if (extent == 0) refuse(name, "has an extent of 0");
      overflow |= __builtin_mul_overflow(elements, extent, &elements);
      tensor.shape.insert(tensor.shape.begin(), extent);
    }
    tensor.type = number<std::uint32_t>();
    tensor.begin = number<std::uint64_t>();
    if (const GgmlType* type = ggml_type(tensor.type)) {
      if (tensor.shape.back() % type->block != 0) {
        refuse(name, cat("has rows of ", tensor.shape.back(), " numbers, no whole blocks of ",
                         type->name));
      }
      overflow |= __builtin_mul_overflow(elements / type->block, std::uint64_t{type->block_bytes},
                                         &tensor.bytes);
    }
    if (overflow) refuse(name, "has a shape whose size overflows");
    const auto [entry, is_new] = tensors.emplace(name, std::move(tensor));
    if (!is_new) refuse(name, "appears twice");
    added_.push_back(&*entry);
  }

  std::uint64_t alignment(const Json& metadata) const {
    constexpr std::int64_t usual = 32, most = 1 << 24;
    const auto bytes = static_cast<std::uint64_t>(
        Fields(metadata, part_.name).integer("general.alignment", 1, most, usual));
    if (!std::has_single_bit(bytes)) {
      refuse(cat("general.alignment is ", bytes, ", no power of two"));
    }
    return bytes;
  }

  /// Moves the tensors to where the data begin, and checks that they fit there.
  void place(std::uint64_t alignment) {
    const std::uint64_t data = (at_ + alignment - 1) / alignment * alignment;
    std::sort(added_.begin(), added_.end(), [](const auto* one, const auto* other) {
      return one->second.begin < other->second.begin;
    });
    std::uint64_t taken = 0;
    for (auto* const entry : added_) {
      GgufTensor& tensor = entry->second;
      if (tensor.begin % alignment != 0) {
        refuse(entry->first, cat("begins at ", tensor.begin, ", no multiple of ", alignment));
      }
      if (tensor.begin < taken) {
        refuse(entry->first, cat("begins at byte ", tensor.begin, " where ", taken, " are taken"));
      }
      if (__builtin_add_overflow(tensor.begin, tensor.bytes, &taken) || data > part_.stamp.bytes ||
          taken > part_.stamp.bytes - data) {
        refuse_end(cat("tensor ", quote(entry->first), " of ", tensor.bytes, " bytes goes on"));
      }
      tensor.begin += data;
    }
  }

  const GgufFile::Part& part_;
  const std::size_t index_;
  std::string bytes_;  ///< the file's first ones
  std::uint64_t at_ = 0;
  std::vector<Tensors::value_type*> added_;
};

}  // namespace

JsonObject read_gguf_header(const GgufFile::Part& part, std::size_t index, Tensors& tensors) {
  return GgufHeader(part, index).read(tensors);
}

Json read_gguf_list(const GgufFile::Part& part, std::uint64_t begin, const std::string& key) {
  return GgufHeader(part, 0).list_at(begin, key);
}

}  // namespace coppice

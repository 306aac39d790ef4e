#include "models/packed_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/block_fields.h"
#include "kernels/quantise.h"

namespace coppice {
namespace {

using Json = nlohmann::json;
using Packed = WeightPacking::Kind;

constexpr std::int64_t block_numbers = 32;
constexpr std::uint64_t fp8_tile = 128;

/// A matrix of E4M3 with a scale for a tile of neighbours.
struct Fp8Matrix {
  std::uint64_t out = 0, in = 0;
  std::vector<std::byte> numbers;  ///< [out, in]
  std::vector<float> scales;
  std::uint64_t across = 1;  ///< tiles of a row
  std::uint64_t tile_rows = 1, tile_inputs = 1;

  float scale(std::uint64_t o, std::uint64_t i) const {
    return scales[o / tile_rows * across + i / tile_inputs];
  }
};

/// A matrix as integers of 4 bits with a scale and a zero for every group of inputs.
struct Int4Matrix {
  std::uint64_t out = 0, in = 0, groups = 0;
  std::vector<std::uint8_t> numbers;    ///< [out, in]
  std::vector<float> scales;            ///< [out, groups]
  std::vector<std::uint8_t> zeros;      ///< [out, groups]
  std::vector<std::uint32_t> group_of;  ///< by input; empty: in / groups neighbours each
};

class Unpacked final : public WeightSource {
 public:
  Unpacked(std::unique_ptr<WeightSource> source, const WeightPacking& packing)
      : source_(std::move(source)), packing_(packing) {
    const std::vector<std::string> names = source_->names();
    const std::string_view suffix = packed_suffix();
    for (const std::string& name : names) {
      if (!name.ends_with(suffix)) continue;
      const std::string stem = name.substr(0, name.size() - suffix.size());
      const StoredTensor& stored = *source_->find(name);
      if (packing.kind == Packed::fp8 && stored.dtype != "F8_E4M3") continue;
      require(stored.shape.size() == 2, name, "is no matrix");
      Made made;
      made.stem = stem;
      made.tensor.shape = shape_of(stored);
      made.format = format_for(stem, made.tensor.shape[1]);
      made.tensor.dtype = name_of(made.format);
      made.tensor.bytes = bytes_of(made.format, made.tensor.elements());
      made_.emplace(stem + ".weight", std::move(made));
    }
    for (const std::string& name : names) {
      if (!is_part(name) && !made_.contains(name)) others_.push_back(name);
    }
  }

  const StoredTensor* find(const std::string& tensor) const override {
    const auto made = made_.find(tensor);
    if (made != made_.end()) return &made->second.tensor;
    return is_part(tensor) ? nullptr : source_->find(tensor);
  }
  const std::string& file_name(const std::string& tensor) const override {
    const auto made = made_.find(tensor);
    return source_->file_name(made == made_.end() ? tensor : packed_name(made->second.stem));
  }
  void read(const std::string& tensor, std::uint64_t offset,
            std::span<std::byte> to) const override {
    const auto made = made_.find(tensor);
    if (made == made_.end()) return source_->read(tensor, offset, to);
    const std::shared_ptr<const std::vector<std::byte>> whole = bytes_of_made(tensor, made->second);
    std::memcpy(to.data(), whole->data() + offset, to.size());
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> names = others_;
    for (const auto& [name, made] : made_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }
  std::uint64_t bytes() const override { return source_->bytes(); }
  std::size_t file_count() const override { return source_->file_count(); }
  void require_unchanged() const override { source_->require_unchanged(); }

 private:
  struct Made {
    std::string stem;
    StoredTensor tensor;
    WeightFormat format = WeightFormat::f32;
  };

  /// Blocks where rows are whole ones, each with a scale of its own.
  WeightFormat format_for(const std::string& stem, std::uint64_t in) const {
    const bool fp8 = packing_.kind == Packed::fp8;
    const WeightFormat format = fp8 ? WeightFormat::fp8 : WeightFormat::int4;
    const auto numbers = static_cast<std::uint64_t>(block_shape(format).numbers);
    return in % numbers != 0 || (!fp8 && is_shuffled(stem, in)) ? WeightFormat::f32 : format;
  }

  const char* packed_suffix() const {
    switch (packing_.kind) {
      case Packed::int4:
        return ".weight_packed";
      case Packed::fp8:
        return ".weight";
      default:
        return ".qweight";
    }
  }
  std::string packed_name(const std::string& stem) const { return stem + packed_suffix(); }

  /// Whether a tensor is one of those that a matrix is made of.
  bool is_part(const std::string& name) const {
    for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx", ".weight_packed",
                             ".weight_scale", ".weight_scale_inv", ".weight_shape",
                             ".weight_zero_point", ".weight_g_idx", ".input_scale"}) {
      if (!name.ends_with(part)) continue;
      return made_.contains(name.substr(0, name.size() - std::strlen(part)) + ".weight");
    }
    return false;
  }

  void require(bool holds, const std::string& tensor, const std::string& what) const {
    if (holds) return;
    throw_failure(cat(source_->file_name(tensor), ": tensor ", tensor, " ", what,
                      ", as its quantization_config asks for; fetch the model again"));
  }

  std::vector<std::uint64_t> shape_of(const StoredTensor& stored) const {
    switch (packing_.kind) {
      case Packed::awq:
        return {8 * stored.shape[1], stored.shape[0]};
      case Packed::gptq:
        return {stored.shape[1], 8 * stored.shape[0]};
      case Packed::int4:
        return {stored.shape[0], 8 * stored.shape[1]};
      default:
        return stored.shape;
    }
  }

  /// The numbers of a tensor of 32-bit integers, of the shape wanted.
  std::vector<std::uint32_t> words(const std::string& name, std::uint64_t rows,
                                   std::uint64_t columns) const {
    const StoredTensor* const stored = source_->find(name);
    if (stored == nullptr) throw_missing(name);
    require(stored->dtype == "I32" && stored->elements() == rows * columns, name,
            cat("is not I32 of ", rows, " x ", columns));
    std::vector<std::uint32_t> words(stored->elements());
    source_->read(name, 0, std::as_writable_bytes(std::span(words)));
    return words;
  }

  std::vector<float> floats(const std::string& name, std::uint64_t count) const {
    const StoredTensor* const stored = source_->find(name);
    if (stored == nullptr) throw_missing(name);
    const auto format = format_named(stored->dtype);
    require(format && dtype_of(*format) && stored->elements() == count, name,
            cat("is not F32, F16 or BF16 of ", count, " numbers"));
    std::vector<std::byte> bytes(stored->bytes);
    source_->read(name, 0, bytes);
    std::vector<float> values(stored->elements());
    dequantise(*format, bytes, values.data());
    return values;
  }

  [[noreturn]] void throw_missing(const std::string& name) const {
    throw_failure(cat(source_->file_name(source_->names().front()), ": tensor ", name,
                      " is missing; fetch the model again"));
  }

  std::uint64_t groups_of(std::uint64_t in, const std::string& tensor) const {
    const std::uint64_t group =
        packing_.group > 0 ? static_cast<std::uint64_t>(packing_.group) : in;
    require(in % group == 0 && group % block_numbers == 0, tensor,
            cat("has rows of ", in, ", no whole groups of ", group));
    return in / group;
  }

  std::vector<std::uint32_t> group_indices(const std::string& stem, std::uint64_t in) const {
    for (const char* suffix : {".g_idx", ".weight_g_idx"}) {
      if (source_->find(stem + suffix) != nullptr) return words(stem + suffix, 1, in);
    }
    return {};
  }

  bool is_shuffled(const std::string& stem, std::uint64_t in) const {
    const std::vector<std::uint32_t> index = group_indices(stem, in);
    const std::uint64_t group = in / groups_of(in, packed_name(stem));
    for (std::uint64_t i = 0; i < index.size(); ++i) {
      if (index[i] != i / group) return true;
    }
    return false;
  }

  Int4Matrix int4_of(const Made& made) const {
    Int4Matrix m;
    m.out = made.tensor.shape[0];
    m.in = made.tensor.shape[1];
    const std::string packed = packed_name(made.stem);
    m.groups = groups_of(m.in, packed);
    m.numbers.resize(m.out * m.in);
    m.zeros.assign(m.out * m.groups, 8);
    m.scales.resize(m.out * m.groups);
    m.group_of = group_indices(made.stem, m.in);
    for (const std::uint32_t group : m.group_of) {
      require(group < m.groups, packed, cat("has inputs of group ", group, " of ", m.groups));
    }
    const auto nibble = [](std::uint32_t word, std::uint64_t i) {
      return static_cast<std::uint8_t>(word >> 4 * i & 15u);
    };
    if (packing_.kind == Packed::int4) {
      const auto numbers = words(packed, m.out, m.in / 8);
      for (std::uint64_t i = 0; i < m.numbers.size(); ++i)
        m.numbers[i] = nibble(numbers[i / 8], i % 8);
      m.scales = floats(made.stem + ".weight_scale", m.out * m.groups);
      const std::string zero_name = made.stem + ".weight_zero_point";
      if (source_->find(zero_name) == nullptr) return m;
      const std::uint64_t rows = (m.out + 7) / 8;
      const auto zeros = words(zero_name, rows, m.groups);
      for (std::uint64_t o = 0; o < m.out; ++o) {
        for (std::uint64_t g = 0; g < m.groups; ++g) {
          m.zeros[o * m.groups + g] = nibble(zeros[o / 8 * m.groups + g], o % 8);
        }
      }
      return m;
    }
    const auto scales = floats(made.stem + ".scales", m.groups * m.out);
    require(m.out % 8 == 0, packed, cat("has ", m.out, " outputs, no multiple of 8"));
    const auto zeros = words(made.stem + ".qzeros", m.groups, m.out / 8);
    static constexpr std::uint64_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of output 8 k + i
    const bool awq = packing_.kind == Packed::awq;
    for (std::uint64_t g = 0; g < m.groups; ++g) {
      for (std::uint64_t o = 0; o < m.out; ++o) {
        m.scales[o * m.groups + g] = scales[g * m.out + o];
        const std::uint64_t place = awq ? awq_place[o % 8] : o % 8;
        m.zeros[o * m.groups + g] = static_cast<std::uint8_t>(
            nibble(zeros[g * m.out / 8 + o / 8], place) + (packing_.zeros_less_one ? 1 : 0));
      }
    }
    const auto numbers = awq ? words(packed, m.in, m.out / 8) : words(packed, m.in / 8, m.out);
    for (std::uint64_t i = 0; i < m.in; ++i) {
      for (std::uint64_t o = 0; o < m.out; ++o) {
        m.numbers[o * m.in + i] = awq ? nibble(numbers[i * m.out / 8 + o / 8], awq_place[o % 8])
                                      : nibble(numbers[i / 8 * m.out + o], i % 8);
      }
    }
    return m;
  }

  static std::vector<std::byte> blocks_of(const Int4Matrix& m) {
    const BlockShape shape = block_shape(WeightFormat::int4);
    std::vector<std::byte> bytes(bytes_of(WeightFormat::int4, m.out * m.in));
    std::byte* block = bytes.data();
    for (std::uint64_t o = 0; o < m.out; ++o) {
      for (std::uint64_t begin = 0; begin < m.in; begin += block_numbers, block += shape.bytes) {
        const std::uint64_t group = o * m.groups + begin * m.groups / m.in;
        const std::uint16_t scale = half_of(m.scales[group]);
        std::memcpy(block, &scale, sizeof scale);
        block[2] = static_cast<std::byte>(m.zeros[group]);
        const std::uint8_t* const q = &m.numbers[o * m.in + begin];
        for (int i = 0; i < 16; ++i) block[3 + i] = static_cast<std::byte>(q[i] | q[i + 16] << 4);
      }
    }
    return bytes;
  }

  static std::vector<float> numbers_of(const Int4Matrix& m) {
    std::vector<float> values(m.out * m.in);
    for (std::uint64_t o = 0; o < m.out; ++o) {
      for (std::uint64_t i = 0; i < m.in; ++i) {
        const std::uint64_t group = m.group_of.empty() ? i * m.groups / m.in : m.group_of[i];
        const std::uint64_t at = o * m.groups + group;
        values[o * m.in + i] =
            m.scales[at] * static_cast<float>(int{m.numbers[o * m.in + i]} - int{m.zeros[at]});
      }
    }
    return values;
  }

  Fp8Matrix fp8_of(const Made& made) const {
    Fp8Matrix m;
    m.out = made.tensor.shape[0];
    m.in = made.tensor.shape[1];
    m.numbers.resize(m.out * m.in);
    source_->read(packed_name(made.stem), 0, m.numbers);
    std::string scale_name = made.stem + ".weight_scale";
    if (source_->find(scale_name) == nullptr) scale_name = made.stem + ".weight_scale_inv";
    const StoredTensor* const stored = source_->find(scale_name);
    if (stored == nullptr) throw_missing(scale_name);
    const std::uint64_t count = stored->elements();
    const std::uint64_t across = (m.in + fp8_tile - 1) / fp8_tile;
    const std::uint64_t tiles = (m.out + fp8_tile - 1) / fp8_tile * across;
    require(count == 1 || count == m.out || count == tiles, scale_name,
            cat("has ", count, " numbers, not one, ", m.out, " or ", tiles));
    m.scales = floats(scale_name, count);
    m.tile_inputs = m.in;
    if (count == 1) {
      m.tile_rows = m.out;
    } else if (count != m.out) {
      m.across = across;
      m.tile_rows = m.tile_inputs = fp8_tile;
    }
    return m;
  }

  static std::vector<std::byte> blocks_of(const Fp8Matrix& m) {
    const BlockShape shape = block_shape(WeightFormat::fp8);
    const auto width = static_cast<std::uint64_t>(shape.numbers);
    std::vector<std::byte> bytes(bytes_of(WeightFormat::fp8, m.out * m.in));
    std::byte* block = bytes.data();
    for (std::uint64_t o = 0; o < m.out; ++o) {
      for (std::uint64_t begin = 0; begin < m.in; begin += width, block += shape.bytes) {
        const float scale = m.scale(o, begin);
        std::memcpy(block, &scale, sizeof scale);
        std::memcpy(block + sizeof scale, &m.numbers[o * m.in + begin], width);
      }
    }
    return bytes;
  }

  static std::vector<float> numbers_of(const Fp8Matrix& m) {
    std::vector<float> values(m.out * m.in);
    for (std::uint64_t o = 0; o < m.out; ++o) {
      for (std::uint64_t i = 0; i < m.in; ++i) {
        const std::byte number = m.numbers[o * m.in + i];
        values[o * m.in + i] = m.scale(o, i) * block_fields::value_of_e4m3(number);
      }
    }
    return values;
  }

  std::vector<std::byte> unpacked_bytes(const Made& made) const {
    const auto plain = [](const std::vector<float>& values) {
      const auto bytes = std::as_bytes(std::span(values));
      return std::vector(bytes.begin(), bytes.end());
    };
    const auto either = [&](const auto& matrix) {
      return dtype_of(made.format) ? plain(numbers_of(matrix)) : blocks_of(matrix);
    };
    return packing_.kind == Packed::fp8 ? either(fp8_of(made)) : either(int4_of(made));
  }

  /// Matrices are unpacked as a whole: rows of a layer lie far apart in their files. The last few
  /// are kept, as stacked ones are read in turns and by several threads.
  std::shared_ptr<const std::vector<std::byte>> bytes_of_made(const std::string& name,
                                                              const Made& made) const {
    constexpr std::size_t most_kept = 4;
    const std::lock_guard lock(mutex_);
    for (const auto& [kept, bytes] : kept_) {
      if (kept == name) return bytes;
    }
    kept_.emplace_front(name, std::make_shared<const std::vector<std::byte>>(unpacked_bytes(made)));
    if (kept_.size() > most_kept) kept_.pop_back();
    return kept_.front().second;
  }

  std::unique_ptr<WeightSource> source_;
  const WeightPacking packing_;
  std::map<std::string, Made> made_;
  std::vector<std::string> others_;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<std::string, std::shared_ptr<const std::vector<std::byte>>>> kept_;
};

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t number_in(const Json& object, const char* key, std::int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>()
                                                             : otherwise;
}

/// Reads the groups of compressed-tensors, which must be alike.
std::string read_groups(const Json& object, WeightPacking& packing) {
  const std::string format = text_in(object, "format");
  const auto groups = object.find("config_groups");
  if (groups == object.end() || !groups->is_object() || groups->size() != 1) {
    return "several config_groups";
  }
  const Json& group = groups->front();
  if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
    return "no weights in config_groups";
  }
  const Json& weights = group["weights"];
  const std::int64_t bits = number_in(weights, "num_bits", 0);
  if (format == "pack-quantized" && bits == 4) {
    packing.kind = Packed::int4;
    packing.group = std::max<std::int64_t>(0, number_in(weights, "group_size", 0));
    return "";
  }
  if ((format == "float-quantized" || format == "naive-quantized") && bits == 8 &&
      text_in(weights, "type") == "float") {
    packing.kind = Packed::fp8;
    return "";
  }
  return cat("format ", quote(format), " of ", bits, " bits");
}

/// Empty, or what coppice does not read.
std::string read_method(const Json& object, WeightPacking& packing) {
  const std::string method = text_in(object, "quant_method");
  const std::int64_t bits = number_in(object, "bits", 4);
  packing.group = std::max<std::int64_t>(0, number_in(object, "group_size", 128));
  if (method == "awq") {
    const std::string version = text_in(object, "version");
    if (bits != 4) return cat("AWQ of ", bits, " bits");
    if (!version.empty() && version != "gemm" && version != "GEMM") {
      return cat("AWQ of version ", quote(version));
    }
    packing.kind = Packed::awq;
    return "";
  }
  if (method == "gptq") {
    if (bits != 4) return cat("GPTQ of ", bits, " bits");
    packing.kind = Packed::gptq;
    packing.zeros_less_one = text_in(object, "checkpoint_format") != "gptq_v2";
    return "";
  }
  if (method == "fp8") {
    packing.kind = Packed::fp8;
    return "";
  }
  if (method == "compressed-tensors") return read_groups(object, packing);
  return cat("quant_method ", quote(method));
}

}  // namespace

void read_packing(const Fields& fields, ModelConfig& config) {
  const Json* const object = fields.find("quantization_config");
  if (object == nullptr) return;
  const std::string problem =
      object->is_object() ? read_method(*object, config.packing) : "no object";
  if (problem.empty()) return;
  config.packing = {};
  config.unsupported.push_back(
      cat("weights of quantization_config: ", problem,
          " (coppice reads AWQ, GPTQ, FP8, and compressed-tensors of 4 bits and FP8)"));
}

std::unique_ptr<WeightSource> unpacked(std::unique_ptr<WeightSource> source,
                                       const WeightPacking& packing) {
  return std::make_unique<Unpacked>(std::move(source), packing);
}

}  // namespace coppice

#include "models/gguf/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "models/gguf/ggml_types.h"
#include "models/gguf/gguf_header.h"

namespace coppice {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

constexpr std::uint64_t alignment = 32;  // what readers take where the metadata do not say it

std::uint64_t aligned(std::uint64_t offset) {
  return (offset + alignment - 1) / alignment * alignment;
}

class Header {
 public:
  template <typename Number>
  void number(Number value) {
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void text(const std::string& value) {
    number(std::uint64_t{value.size()});
    bytes_ += value;
  }
  void value(const GgufValue& value) {
    std::visit([&](const auto& one) { typed(one); }, value);
  }
  void append(std::string_view plain) { bytes_ += plain; }
  std::string bytes() && {
    bytes_.resize(aligned(bytes_.size()));
    return std::move(bytes_);
  }

 private:
  static GgufKind kind_of(std::uint32_t) { return GgufKind::u32; }
  static GgufKind kind_of(std::int32_t) { return GgufKind::i32; }
  static GgufKind kind_of(float) { return GgufKind::f32; }
  static GgufKind kind_of(bool) { return GgufKind::boolean; }
  static GgufKind kind_of(const std::string&) { return GgufKind::text; }

  void plain(const std::string& value) { text(value); }
  void plain(bool value) { number(static_cast<std::uint8_t>(value)); }
  template <typename Number>
  void plain(Number value) {
    number(value);
  }

  template <typename Value>
  void typed(const Value& value) {
    number(kind_of(value));
    plain(value);
  }
  template <typename Item>
  void typed(const std::vector<Item>& items) {
    number(GgufKind::list);
    number(kind_of(Item()));
    number(std::uint64_t{items.size()});
    for (const auto& item : items) plain(static_cast<const Item&>(item));
  }

  std::string bytes_;
};

}  // namespace

std::uint64_t GgufTensorToWrite::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) product *= extent;
  return product;
}

GgufWriter::Plan GgufWriter::plan(const GgufMetadata& metadata,
                                  const std::vector<GgufTensorToWrite>& tensors) {
  constexpr std::uint32_t version = 3;
  Header header;
  header.append(gguf_magic);
  header.number(version);
  header.number(std::uint64_t{tensors.size()});
  header.number(std::uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    header.text(key);
    header.value(value);
  }
  Plan plan;
  std::uint64_t offset = 0;  // of a tensor, from the end of the header
  for (const GgufTensorToWrite& tensor : tensors) {
    header.text(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      header.number(*extent);
    }
    header.number(ggml_type(tensor.format).number);
    header.number(offset);
    plan.begins.push_back(offset);
    offset = aligned(offset + bytes_of(tensor.format, tensor.elements()));
  }
  plan.header = std::move(header).bytes();
  for (std::uint64_t& begin : plan.begins) begin += plan.header.size();
  plan.bytes = plan.header.size() + offset;
  return plan;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       const std::vector<GgufTensorToWrite>& tensors)
    : plan_(plan(metadata, tensors)), file_(path, plan_.bytes) {
  file_.write_at(0, std::as_bytes(std::span(plan_.header)));
}

}  // namespace coppice

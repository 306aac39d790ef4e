#include "models/requantised.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/finite.h"
#include "kernels/quantise.h"

namespace coppice {
namespace {

class Requantised final : public WeightSource {
 public:
  Requantised(std::unique_ptr<WeightSource> source,
              const std::map<std::string, WeightFormat>& formats)
      : source_(std::move(source)) {
    for (const auto& [name, wanted] : formats) {
      const StoredTensor& stored = *source_->find(name);
      const auto from = format_named(stored.dtype);
      if (stored.shape.size() != 2 || !from || has_integers(*from)) continue;
      const auto to = fitting(wanted, stored.shape[1]);
      if (!to || *to == *from) continue;
      StoredTensor tensor = stored;
      tensor.dtype = name_of(*to);
      tensor.bytes = bytes_of(*to, tensor.elements());
      made_.emplace(name, Made{std::move(tensor), *from, *to});
    }
  }

  const StoredTensor* find(const std::string& tensor) const override {
    const auto made = made_.find(tensor);
    return made == made_.end() ? source_->find(tensor) : &made->second.tensor;
  }
  const std::string& file_name(const std::string& tensor) const override {
    return source_->file_name(tensor);
  }
  std::string name_in_file(const std::string& tensor) const override {
    return source_->name_in_file(tensor);
  }
  const char* described_by() const override { return source_->described_by(); }
  void read(const std::string& tensor, std::uint64_t offset,
            std::span<std::byte> to) const override {
    const auto found = made_.find(tensor);
    if (found == made_.end()) return source_->read(tensor, offset, to);
    const Made& made = found->second;
    const BlockShape shape = block_shape(made.to);
    const auto numbers = [&](std::uint64_t bytes) {
      return bytes / static_cast<std::uint64_t>(shape.bytes) *
             static_cast<std::uint64_t>(shape.numbers);
    };
    std::vector<std::byte> stored(bytes_of(made.from, numbers(to.size())));
    source_->read(tensor, bytes_of(made.from, numbers(offset)), stored);
    std::vector<float> values(numbers(to.size()));
    dequantise(made.from, stored, values.data());
    if (has_non_finite(std::as_bytes(std::span(values)), DType::f32)) {
      throw_failure(cat(file_name(tensor), ": tensor ", tensor,
                        " holds NaN or infinity; fetch the file again"));
    }
    quantise(made.to, values, to.data());
  }
  std::vector<std::string> names() const override { return source_->names(); }
  std::uint64_t bytes() const override { return source_->bytes(); }
  std::size_t file_count() const override { return source_->file_count(); }
  void require_unchanged() const override { source_->require_unchanged(); }

 private:
  struct Made {
    StoredTensor tensor;
    WeightFormat from, to;
  };

  static std::optional<WeightFormat> fitting(WeightFormat format, std::uint64_t width) {
    const auto fits = [&](WeightFormat one) {
      return width % static_cast<std::uint64_t>(block_shape(one).numbers) == 0;
    };
    if (fits(format)) return format;
    const WeightFormat shorter =
        format == WeightFormat::q4_k ? WeightFormat::q5_0 : WeightFormat::q8_0;
    return fits(shorter) ? std::optional(shorter) : std::nullopt;
  }

  std::unique_ptr<WeightSource> source_;
  std::map<std::string, Made> made_;
};

bool is_table(const std::string& name) {
  return name.ends_with("lm_head.weight") || name.ends_with("embed_tokens.weight");
}

}  // namespace

std::unique_ptr<WeightSource> requantised(std::unique_ptr<WeightSource> source,
                                          WeightFormat format) {
  std::map<std::string, WeightFormat> formats;
  for (const std::string& name : source->names()) {
    const bool more = format == WeightFormat::q4_k && is_table(name);
    formats.emplace(name, more ? WeightFormat::q6_k : format);
  }
  return requantised(std::move(source), formats);
}

std::unique_ptr<WeightSource> requantised(std::unique_ptr<WeightSource> source,
                                          const std::map<std::string, WeightFormat>& formats) {
  return std::make_unique<Requantised>(std::move(source), formats);
}

}  // namespace coppice

#include "models/gguf/copied_metadata.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

template <typename Item>
std::vector<Item> items_of(const Json& list) {
  return list.get<std::vector<Item>>();
}

/// A number of 32 bits; std::nullopt: it has more. Readers want counts unsigned and what
/// general.sampling has signed.
std::optional<GgufValue> integer(const std::string& key, const Json& value) {
  const bool is_sampling = key.starts_with("general.sampling.");
  if (value.is_number_unsigned() || value >= 0) {
    if (value > UINT32_MAX) return std::nullopt;
    const auto number = value.get<std::uint32_t>();
    if (!is_sampling || number > INT32_MAX) return number;
  }
  if (value < INT32_MIN) return std::nullopt;
  return value.get<std::int32_t>();
}

std::optional<GgufValue> list(const Json& value) {
  if (value.empty() || value.front().is_string()) return items_of<std::string>(value);
  if (value.front().is_boolean()) return items_of<bool>(value);
  if (value.front().is_number_float()) return items_of<float>(value);
  const bool fits = std::all_of(value.begin(), value.end(), [](const Json& item) {
    return item >= INT32_MIN && item <= INT32_MAX;
  });
  return fits ? std::optional<GgufValue>(items_of<std::int32_t>(value)) : std::nullopt;
}

std::optional<GgufValue> value_of(const std::string& key, const Json& value) {
  if (value.is_array()) return list(value);
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_float()) return value.get<float>();
  if (value.is_string()) return value.get<std::string>();
  return integer(key, value);
}

}  // namespace

GgufMetadata copied_metadata(const GgufFile& file) {
  constexpr std::string_view own[] = {"general.architecture", "general.type", "general.file_type",
                                      "general.quantization_version", "general.alignment"};
  GgufMetadata metadata;
  for (const auto& [key, value] : file.metadata().items()) {
    if (std::find(std::begin(own), std::end(own), key) != std::end(own)) continue;
    if (key.starts_with("split.")) continue;
    std::optional<GgufValue> copy =
        value.is_binary() ? list(file.left_out_list(key)) : value_of(key, value);
    if (!copy) file.fields().refuse(key.c_str(), "of numbers of 32 bits");
    metadata.emplace_back(key, std::move(*copy));
  }
  return metadata;
}

}  // namespace coppice

// Every JSON text that coppice reads: strict, bounded, in time linear in its length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace coppice {

/// A parsed value. Its destruction allocates nothing: nlohmann::json's own does, and ends the
/// program where it cannot. Move-only.
template <typename Json>
class ParsedJson {
 public:
  explicit ParsedJson(Json&& value) noexcept : value_(std::move(value)) {}
  ParsedJson(ParsedJson&&) noexcept = default;
  ParsedJson& operator=(ParsedJson&&) = delete;
  ~ParsedJson();
  const Json& operator*() const { return value_; }
  const Json* operator->() const { return &value_; }
  Json& edit() { return value_; }

 private:
  Json value_;
};
using JsonObject = ParsedJson<nlohmann::json>;
/// One whose objects keep the order of their keys; looking one up takes time linear in their
/// number.
using OrderedJson = ParsedJson<nlohmann::ordered_json>;

/// Parses `text`, which came from `file` (for the message). Throws Error(failure): no JSON, not
/// UTF-8, a key twice in one object, nesting beyond 64 levels, values of more than 512 MiB, a
/// number out of range, not an object.
JsonObject parse_json_object(std::string_view text, const std::string& file);

/// The same of any value.
JsonObject parse_json_value(std::string_view text, const std::string& file);

/// The same of what somebody typed, or a request holds: no message speaks of a file.
OrderedJson parse_typed_json(std::string_view text, const std::string& name);

/// Reads and parses a file of at most `largest` bytes; `remedy` is for one that is not there.
JsonObject read_json_object(const std::filesystem::path& path, std::uintmax_t largest,
                            const char* remedy = "name a Hugging Face model folder");

/// A value as it stands in its file, shortened, for messages.
std::string shown(const nlohmann::json& value);

}  // namespace coppice

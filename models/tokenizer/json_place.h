// A value in tokenizer.json and where it stands, so that every complaint names the place.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace coppice::tokenization {

class JsonPlace {
 public:
  /// The file's outermost object. `value` and `file` must outlive all places in it.
  JsonPlace(const nlohmann::json& value, const std::string& file) : value_(&value), file_(&file) {}

  /// A member or element; throws if it is missing.
  JsonPlace at(const char* key) const;
  JsonPlace at(std::size_t index) const;
  /// A member unless it is missing or null.
  std::optional<JsonPlace> find(const char* key) const;
  std::size_t size() const;  ///< of a list

  /// The value as one of these types; throws Error(failure) if it is another.
  const std::string& text() const;
  bool flag() const;
  double number() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// The member "type".
  const std::string& type() const { return at("type").text(); }
  bool flag(const char* key, bool otherwise) const;

  const nlohmann::json& operator*() const { return *value_; }
  const nlohmann::json* operator->() const { return value_; }

  /// "FILE: PLACE: what".
  [[noreturn]] void refuse(const std::string& what) const;
  /// For a kind of `what` (normalizer, ...) that coppice does not know.
  [[noreturn]] void refuse_type(const char* what) const;
  const std::string& path() const { return path_; }
  const std::string& file() const { return *file_; }

 private:
  JsonPlace child(const nlohmann::json& value, const std::string& step) const;
  [[noreturn]] void wrong_type(const char* wanted) const;

  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace coppice::tokenization

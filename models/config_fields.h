// Checked access to the fields of a JSON object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

// Beyond any model, and small enough that products of three stay far inside 64 bits.
inline constexpr std::int64_t most_vocab = 1 << 24;
inline constexpr std::int64_t most_width = 1 << 20;
inline constexpr std::int64_t most_layers = 1 << 12;
inline constexpr std::int64_t most_heads = 1 << 14;
inline constexpr std::int64_t most_head_dim = 1 << 12;
inline constexpr std::int64_t most_context = 1 << 30;

/// One JSON object of a file, over defaults for fields that it lacks. null counts as absent, and
/// takes no default. All that reads throws Error(failure) naming file, field, value and what is
/// wanted. Both objects must outlive this one.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string where, const nlohmann::json* defaults = nullptr);

  const nlohmann::json* find(const char* name) const;
  bool has(const char* name) const { return find(name) != nullptr; }
  const nlohmann::json& object() const { return object_; }
  const std::string& where() const { return where_; }
  /// The object in the field `name`, which must be one.
  Fields inside(const char* name, const nlohmann::json* defaults = nullptr) const;

  [[noreturn]] void refuse(const char* name, const std::string& wanted) const;
  [[noreturn]] void missing(const char* name) const;

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) const;
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most,
                       std::int64_t otherwise) const;
  /// A finite number above 0.
  double positive(const char* name) const;
  double positive(const char* name, double otherwise) const;
  bool boolean(const char* name, bool otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  /// A list of `count` finite numbers above 0.
  std::vector<double> positives(const char* name, std::size_t count) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  const nlohmann::json* defaults_;
};

}  // namespace coppice

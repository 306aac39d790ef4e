// A JSON schema's document: its places, and what references lead to.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json_file.h"

namespace coppice::constraints {

using SchemaJson = nlohmann::ordered_json;

class SchemaDocument {
 public:
  explicit SchemaDocument(std::string_view text);

  const SchemaJson& root() const { return *json_; }
  /// Whether keywords beside a "$ref" count for nothing: before draft 2019-09.
  bool is_old() const { return is_old_; }
  /// What a "$ref" of the schema at `from` leads to.
  const SchemaJson& target(const SchemaJson& from, const std::string& reference) const;
  /// Keeps a schema that stands for what the one at `origin` says.
  const SchemaJson& keep(SchemaJson schema, const SchemaJson& origin);
  bool is_kept(const SchemaJson& schema) const { return origins_.contains(&schema); }

  /// "#/properties/a" of a value in the document; of what was kept, its origin's.
  std::string path(const SchemaJson& value) const;
  [[noreturn]] void refuse(const SchemaJson& at, const std::string& what) const;
  [[noreturn]] void refuse(const SchemaJson& at, std::string_view keyword,
                           const std::string& what) const;
  /// Finds a member; null if there is none.
  static const SchemaJson* find(const SchemaJson& object, std::string_view key);

 private:
  void collect_names(const SchemaJson& value);

  OrderedJson json_;
  bool is_old_ = false;
  std::unordered_map<std::string, const SchemaJson*> names_;  ///< by "$id" and "#anchor"
  std::deque<SchemaJson> kept_;
  std::size_t kept_values_ = 0;
  std::unordered_map<const SchemaJson*, const SchemaJson*> origins_;
};

}  // namespace coppice::constraints

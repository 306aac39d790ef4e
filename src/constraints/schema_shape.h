// What a set of schemas says of one value, keyword by keyword.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "constraints/number_text.h"
#include "constraints/schema_document.h"

namespace coppice::constraints {

/// Schemas that a value must satisfy all.
using Schemas = std::vector<const SchemaJson*>;

enum JsonType : unsigned {
  null_type = 1,
  boolean_type = 2,
  number_type = 4,
  string_type = 8,
  array_type = 16,
  object_type = 32,
  any_type = 63,
};
JsonType type_of(const SchemaJson& value);

/// One way to satisfy schemas: all that holds at once, after one alternative of each "anyOf" was
/// taken.
struct SchemaShape {
  bool is_impossible = false;
  unsigned types = any_type;
  std::vector<const SchemaJson*> values;  ///< lists of "enum": the value is in each

  NumberRange number;

  std::int32_t least_characters = 0, most_characters = no_limit;
  std::vector<const SchemaJson*> patterns;
  std::vector<const SchemaJson*> formats;

  struct Items {
    Schemas first;
    const SchemaJson* rest = nullptr;
  };
  std::vector<Items> items;
  std::int32_t least_items = 0, most_items = no_limit;

  struct Properties {
    const SchemaJson* declared = nullptr;
    const SchemaJson* by_pattern = nullptr;
    const SchemaJson* others = nullptr;
  };
  std::vector<Properties> properties;
  std::vector<std::string> required;
  Schemas names;
  std::int32_t least_properties = 0, most_properties = no_limit;

  bool requires_property(const std::string& key) const;
};

/// Reads schemas. What asserts something and is not supported is refused.
class ShapeReader {
 public:
  explicit ShapeReader(SchemaDocument& document) : document_(document) {}

  /// All ways to satisfy the schemas. `exclusive` is called for each "oneOf" with its alternatives,
  /// and refuses them where more than one could hold.
  template <typename Exclusive>
  std::vector<SchemaShape> read(const Schemas& schemas, const Exclusive& exclusive) {
    std::vector<SchemaShape> shapes;
    Reading reading;
    expansions_ = 0;
    for (const SchemaJson* schema : schemas) gather(*schema, reading);
    expand(std::move(reading), shapes);
    for (const auto& [place, alternatives] : exclusive_) exclusive(*place, alternatives);
    return shapes;
  }

 private:
  struct Choice {
    const SchemaJson* place;
    Schemas alternatives;
  };
  struct Reading {
    SchemaShape shape;
    std::vector<const SchemaJson*> seen;
    std::vector<Choice> choices;
    int depth = 0;
  };
  void gather(const SchemaJson& schema, Reading& reading);
  void gather_keyword(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                      Reading& reading);
  void gather_number(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                     SchemaShape& shape);
  void gather_types(const SchemaJson& schema, const SchemaJson& value, SchemaShape& shape);
  void gather_not(const SchemaJson& schema, const SchemaJson& value, SchemaShape& shape);
  void gather_dependencies(const SchemaJson& schema, const std::string& key,
                           const SchemaJson& value, Reading& reading);
  void expand(Reading&& reading, std::vector<SchemaShape>& shapes);
  Schemas list_of_schemas(const SchemaJson& schema, const std::string& key,
                          const SchemaJson& value);
  std::int32_t size_of(const SchemaJson& schema, const std::string& key, const SchemaJson& value);

  SchemaDocument& document_;
  std::map<const SchemaJson*, Schemas> exclusive_;
  std::size_t expansions_ = 0;
};

}  // namespace coppice::constraints

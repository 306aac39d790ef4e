// What a set of schemas says of one value, keyword by keyword.
#pragma once

#include <functional>
#include <string>
#include <utility>
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
  std::vector<const SchemaJson*> values;       ///< lists of "enum": the value is in each
  std::vector<const SchemaJson*> others_than;  ///< lists of values, none of them structured

  NumberRange number;

  std::int32_t least_characters = 0, most_characters = no_limit;
  std::vector<const SchemaJson*> patterns, no_patterns;
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
  /// `exclusive` gets a "oneOf" and its alternatives, and returns some of which no two hold at
  /// once.
  using Exclusive = std::function<Schemas(const SchemaJson&, const Schemas&)>;
  ShapeReader(SchemaDocument& document, Exclusive exclusive)
      : document_(document), exclusive_(std::move(exclusive)) {}

  /// All ways to satisfy the schemas.
  std::vector<SchemaShape> read(const Schemas& schemas) {
    std::vector<SchemaShape> shapes;
    Reading reading;
    for (const SchemaJson* schema : schemas) gather(*schema, reading);
    expand(std::move(reading), shapes);
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
  /// Refuses a key that is probably a misspelt keyword, and would assert nothing.
  void check_spelling(const SchemaJson& schema, const std::string& key);
  void gather_keyword(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                      Reading& reading);
  void gather_number(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                     SchemaShape& shape);
  void gather_types(const SchemaJson& schema, const SchemaJson& value, SchemaShape& shape);
  /// "not" as the alternatives that one of its keywords does not hold.
  void gather_not(const SchemaJson& schema, const SchemaJson& value, Reading& reading);
  void negate(const SchemaJson& value, std::vector<SchemaJson>& alternatives, int depth);
  void gather_if(const SchemaJson& schema, const SchemaJson& value, Reading& reading);
  void gather_dependencies(const SchemaJson& schema, const std::string& key,
                           const SchemaJson& value, Reading& reading);
  void expand(Reading&& reading, std::vector<SchemaShape>& shapes);
  Schemas list_of_schemas(const SchemaJson& schema, const std::string& key,
                          const SchemaJson& value);
  std::int32_t size_of(const SchemaJson& schema, const std::string& key, const SchemaJson& value);

  SchemaDocument& document_;
  Exclusive exclusive_;
  std::size_t expansions_ = 0;
};

}  // namespace coppice::constraints

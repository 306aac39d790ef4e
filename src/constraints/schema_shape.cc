#include "constraints/schema_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "constraints/schema_keywords.h"

namespace coppice::constraints {
namespace {

// Ways to take one alternative of each "anyOf" that one value is under.
constexpr std::size_t most_shapes = 512;
// Keywords of schemas that are made here. A document that has them is refused.
constexpr const char* no_values = "\x01values";
constexpr const char* no_pattern = "\x01pattern";
constexpr const char* no_integer = "\x01integer";
// Members of a list under "not" whose pairs or beginnings are.
constexpr std::size_t most_negated = 32;
// References that lead to references.
constexpr int deepest_reference = 200;

constexpr std::array<std::pair<std::string_view, unsigned>, 7> type_names = {
    {{"null", null_type},
     {"boolean", boolean_type},
     {"number", number_type},
     {"integer", number_type},
     {"string", string_type},
     {"array", array_type},
     {"object", object_type}}};

// Keywords that assert something which no automaton here can, and what may be done.
const std::map<std::string_view, std::string_view>& refused_keywords() {
  static const std::map<std::string_view, std::string_view> all = {
      {"contains", "remove it, or say what all items are"},
      {"unevaluatedItems", "use \"items\""},
      {"unevaluatedProperties", "use \"additionalProperties\" where the properties are"},
      {"$dynamicRef", "use \"$ref\""},
      {"$recursiveRef", "use \"$ref\""},
      {"extends", "use \"allOf\""},
      {"disallow", "say what is allowed"}};
  return all;
}

}  // namespace

JsonType type_of(const SchemaJson& value) {
  switch (value.type()) {
    case SchemaJson::value_t::null:
      return null_type;
    case SchemaJson::value_t::boolean:
      return boolean_type;
    case SchemaJson::value_t::string:
      return string_type;
    case SchemaJson::value_t::array:
      return array_type;
    case SchemaJson::value_t::object:
      return object_type;
    default:
      return number_type;
  }
}

bool SchemaShape::requires_property(const std::string& key) const {
  return std::ranges::find(required, key) != required.end();
}

void ShapeReader::gather(const SchemaJson& schema, Reading& reading) {
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) reading.shape.is_impossible = true;
    return;
  }
  if (!schema.is_object()) {
    document_.refuse(
        schema, cat("a schema is an object or true or false, not ", shown(schema), "; correct it"));
  }
  if (std::ranges::find(reading.seen, &schema) != reading.seen.end()) return;
  reading.seen.push_back(&schema);
  if (++reading.depth > deepest_reference) {
    document_.refuse(schema, "too many references lead to each other; make them fewer");
  }
  if (const SchemaJson* reference = SchemaDocument::find(schema, "$ref")) {
    if (!reference->is_string()) document_.refuse(schema, "$ref", "no text; correct it");
    gather(document_.target(schema, reference->get_ref<const std::string&>()), reading);
    if (document_.is_old()) {
      --reading.depth;
      return;
    }
  }
  SchemaShape::Items items;
  SchemaShape::Properties properties;
  for (const auto& [key, value] : schema.get_ref<const SchemaJson::object_t&>()) {
    if (key.starts_with('\x01') && !document_.is_kept(schema)) {
      document_.refuse(schema, key, "no keyword; remove it");
    }
    check_spelling(schema, key);
    if (key == "prefixItems" || (key == "items" && value.is_array())) {
      items.first = list_of_schemas(schema, key, value);
    } else if (key == "items") {
      items.rest = &value;
    } else if (key == "additionalItems") {
      const SchemaJson* list = SchemaDocument::find(schema, "items");
      if (list != nullptr && list->is_array()) items.rest = &value;
    } else if (key == "properties" || key == "patternProperties") {
      if (!value.is_object()) document_.refuse(schema, key, "no object of schemas; correct it");
      (key == "properties" ? properties.declared : properties.by_pattern) = &value;
    } else if (key == "additionalProperties") {
      properties.others = &value;
    } else {
      gather_keyword(schema, key, value, reading);
    }
  }
  if (!items.first.empty() || items.rest != nullptr) reading.shape.items.push_back(items);
  if (properties.declared != nullptr || properties.by_pattern != nullptr ||
      properties.others != nullptr) {
    reading.shape.properties.push_back(properties);
  }
  --reading.depth;
}

Schemas ShapeReader::list_of_schemas(const SchemaJson& schema, const std::string& key,
                                     const SchemaJson& value) {
  if (!value.is_array()) document_.refuse(schema, key, "no list of schemas; correct it");
  Schemas all;
  for (const SchemaJson& one : value) all.push_back(&one);
  return all;
}

std::int32_t ShapeReader::size_of(const SchemaJson& schema, const std::string& key,
                                  const SchemaJson& value) {
  const double size = value.is_number() ? value.get<double>() : -1;
  if (size < 0 || std::trunc(size) != size) {
    document_.refuse(schema, key, cat(shown(value), " is no number of things; correct it"));
  }
  return static_cast<std::int32_t>(std::min<double>(size, most_repeats));
}

void ShapeReader::check_spelling(const SchemaJson& schema, const std::string& key) {
  const std::string meant = misspelt_keyword(key);
  if (meant.empty()) return;
  document_.refuse(schema, key,
                   cat("no keyword; did you mean ", quote(meant),
                       "? Put \"x-\" before a name that is to assert nothing"));
}

void ShapeReader::gather_keyword(const SchemaJson& schema, const std::string& key,
                                 const SchemaJson& value, Reading& reading) {
  SchemaShape& shape = reading.shape;
  const auto at_least = [&](std::int32_t& least) {
    least = std::max(least, size_of(schema, key, value));
  };
  const auto at_most = [&](std::int32_t& most) {
    const std::int32_t size = size_of(schema, key, value);
    most = most == no_limit ? size : std::min(most, size);
  };
  if (key == "type") {
    gather_types(schema, value, shape);
  } else if (key == "enum" || key == "const") {
    if (key == "enum" && !value.is_array()) {
      document_.refuse(schema, key, "no list of values; correct it");
    }
    const bool is_list = key == "enum";
    shape.values.push_back(is_list ? &value : &document_.keep(SchemaJson::array({value}), schema));
  } else if (key == "allOf") {
    for (const SchemaJson* part : list_of_schemas(schema, key, value)) gather(*part, reading);
  } else if (key == "anyOf" || key == "oneOf") {
    const Schemas alternatives = list_of_schemas(schema, key, value);
    if (alternatives.empty()) document_.refuse(schema, key, "an empty list; remove it");
    const bool is_exclusive = key == "oneOf" && alternatives.size() > 1;
    reading.choices.push_back(
        {&value, is_exclusive ? exclusive_(value, alternatives) : alternatives});
  } else if (key == "not") {
    gather_not(schema, value, reading);
  } else if (key == "if") {
    gather_if(schema, value, reading);
  } else if (key == no_values) {
    shape.others_than.push_back(&value);
  } else if (key == no_pattern) {
    shape.no_patterns.push_back(&value);
  } else if (key == no_integer) {
    shape.number.is_fraction = true;
  } else if (key == "minLength") {
    at_least(shape.least_characters);
  } else if (key == "maxLength") {
    at_most(shape.most_characters);
  } else if (key == "minItems") {
    at_least(shape.least_items);
  } else if (key == "maxItems") {
    at_most(shape.most_items);
  } else if (key == "minProperties") {
    at_least(shape.least_properties);
  } else if (key == "maxProperties") {
    at_most(shape.most_properties);
  } else if (key == "pattern" || key == "format") {
    if (!value.is_string()) document_.refuse(schema, key, "no text; correct it");
    (key == "pattern" ? shape.patterns : shape.formats).push_back(&value);
  } else if (key == "propertyNames") {
    shape.names.push_back(&value);
  } else if (key == "required") {
    if (value.is_boolean() && document_.is_old()) return;  // draft 3's, which draft 4 knows no more
    if (!value.is_array()) document_.refuse(schema, key, "no list of names; correct it");
    for (const SchemaJson& name : value) {
      if (!name.is_string()) document_.refuse(schema, key, "no list of names; correct it");
      if (!shape.requires_property(name)) shape.required.push_back(name);
    }
  } else if (key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies") {
    gather_dependencies(schema, key, value, reading);
  } else if (key == "uniqueItems") {
    if (!value.is_boolean()) document_.refuse(schema, key, "neither true nor false; correct it");
    const SchemaJson* most = SchemaDocument::find(schema, "maxItems");
    const bool is_single = most != nullptr && most->is_number() && most->get<double>() < 2;
    if (value.get<bool>() && !is_single) {
      document_.refuse(schema, key, "not supported; remove it, or check the answer for it");
    }
  } else if (const auto known = refused_keywords().find(key); known != refused_keywords().end()) {
    const bool says_nothing =
        key.starts_with("unevaluated") && value.is_boolean() && value.get<bool>();
    if (!says_nothing) {
      document_.refuse(schema, key, cat("not supported; ", known->second));
    }
  } else {
    gather_number(schema, key, value, shape);
  }
}

void ShapeReader::gather_types(const SchemaJson& schema, const SchemaJson& value,
                               SchemaShape& shape) {
  unsigned types = 0;
  bool has_number = false;
  const auto add = [&](const SchemaJson& name) {
    const std::string text = name.is_string() ? name.get<std::string>() : "";
    const auto known = std::ranges::find(type_names, text, [](const auto& t) { return t.first; });
    if (text == "any" && document_.is_old()) {
      types = any_type;
      has_number = true;
      return;
    }
    if (known == type_names.end()) {
      document_.refuse(schema, "type", cat(shown(name), " is no type of JSON; correct it"));
    }
    types |= known->second;
    has_number = has_number || text == "number";
  };
  if (value.is_array()) {
    for (const SchemaJson& name : value) add(name);
  } else {
    add(value);
  }
  if ((types & number_type) != 0 && !has_number) shape.number.is_integer = true;
  shape.types &= types;
}

void ShapeReader::gather_number(const SchemaJson& schema, const std::string& key,
                                const SchemaJson& value, SchemaShape& shape) {
  const bool is_lower = key == "minimum" || key == "exclusiveMinimum";
  const bool is_upper = key == "maximum" || key == "exclusiveMaximum";
  if (!is_lower && !is_upper && key != "multipleOf" && key != "divisibleBy") return;
  if (value.is_boolean() && key.starts_with("exclusive")) return;  // draft 4's: see below
  if (!value.is_number())
    document_.refuse(schema, key, cat(shown(value), " is no number; correct it"));
  const Decimal number = Decimal::of(value);
  if (!is_lower && !is_upper) {
    if (number.is_negative || number.is_zero()) {
      document_.refuse(schema, key, cat(shown(value), " is not above 0; correct it"));
    }
    shape.number.multiples_of.push_back(number);
    return;
  }
  const SchemaJson* old =
      SchemaDocument::find(schema, is_lower ? "exclusiveMinimum" : "exclusiveMaximum");
  const bool excludes =
      key.starts_with("exclusive") || (old != nullptr && old->is_boolean() && old->get<bool>());
  if (is_lower) {
    shape.number.raise({number, excludes});
  } else {
    shape.number.cut({number, excludes});
  }
}

void ShapeReader::gather_not(const SchemaJson& schema, const SchemaJson& value, Reading& reading) {
  std::vector<SchemaJson> alternatives;
  negate(value, alternatives, 0);
  Choice choice{&value, {}};
  for (SchemaJson& one : alternatives) {
    choice.alternatives.push_back(&document_.keep(std::move(one), schema));
  }
  if (choice.alternatives.empty()) reading.shape.is_impossible = true;
  reading.choices.push_back(std::move(choice));
}

void ShapeReader::negate(const SchemaJson& value, std::vector<SchemaJson>& alternatives,
                         int depth) {
  if (value.is_boolean()) {
    if (!value.get<bool>()) alternatives.push_back(true);
    return;
  }
  if (!value.is_object()) document_.refuse(value, "no schema; correct it");
  if (depth > deepest_reference) document_.refuse(value, "\"not\" of itself; remove it");
  const auto refuse = [&](const std::string& key) {
    document_.refuse(value, key,
                     "not supported in \"not\", \"if\" or a \"oneOf\" whose alternatives "
                     "may hold at once; say what is allowed instead");
  };
  const auto add = [&](const char* type, SchemaJson one) {
    one["type"] = type;
    alternatives.push_back(std::move(one));
  };
  const auto negated = [](const SchemaJson& part) { return SchemaJson{{"not", part}}; };
  static const std::map<std::string_view, std::pair<const char*, const char*>> opposites = {
      {"minLength", {"string", "maxLength"}},
      {"maxLength", {"string", "minLength"}},
      {"minItems", {"array", "maxItems"}},
      {"maxItems", {"array", "minItems"}},
      {"minProperties", {"object", "maxProperties"}},
      {"maxProperties", {"object", "minProperties"}},
      {"minimum", {"number", "exclusiveMaximum"}},
      {"maximum", {"number", "exclusiveMinimum"}},
      {"exclusiveMinimum", {"number", "maximum"}},
      {"exclusiveMaximum", {"number", "minimum"}}};
  for (const auto& [key, part] : value.get_ref<const SchemaJson::object_t&>()) {
    check_spelling(value, key);
    // Pairs of alternatives and beginnings of lists are written out.
    if ((key == "oneOf" || key == "prefixItems") && part.size() > most_negated) refuse(key);
    if (const auto opposite = opposites.find(key); opposite != opposites.end()) {
      const auto& [type, keyword] = opposite->second;
      if (std::string_view(type) == "number") {
        if (!part.is_number()) refuse(key);
        add(type, {{keyword, part}});
        continue;
      }
      const std::int32_t size = size_of(value, key, part);
      if (key.starts_with("max")) {
        add(type, {{keyword, size + 1}});
      } else if (size > 0) {
        add(type, {{keyword, size - 1}});
      }
    } else if (key == "type") {
      SchemaShape named;
      gather_types(value, part, named);
      SchemaJson others = SchemaJson::array();
      for (const auto& [name, type] : type_names) {
        if ((named.types & type) == 0 && name != "integer") others.push_back(name);
      }
      if (!others.empty()) alternatives.push_back({{"type", others}});
      if (named.number.is_integer) add("number", {{no_integer, true}});
    } else if (key == "enum" || key == "const") {
      const SchemaJson all = key == "enum" ? part : SchemaJson::array({part});
      if (!all.is_array()) refuse(key);
      for (const SchemaJson& one : all) {
        if (one.is_structured()) refuse(key);
      }
      alternatives.push_back({{no_values, all}});
    } else if (key == "required" && part.is_array()) {
      for (const SchemaJson& name : part) {
        if (!name.is_string()) refuse(key);
        add("object", {{"properties", {{name.get<std::string>(), false}}}});
      }
    } else if (key == "properties" && part.is_object()) {
      for (const auto& [name, inner] : part.items()) {
        add("object",
            {{"required", SchemaJson::array({name})}, {"properties", {{name, negated(inner)}}}});
      }
    } else if (key == "prefixItems" && part.is_array()) {
      SchemaJson before = SchemaJson::array();
      for (const SchemaJson& inner : part) {
        SchemaJson items = before;
        items.push_back(negated(inner));
        before.push_back(true);
        add("array", {{"minItems", items.size()}, {"prefixItems", items}});
      }
    } else if (key == "pattern" && part.is_string()) {
      add("string", {{no_pattern, part}});
    } else if (key == "not") {
      alternatives.push_back(part);
    } else if (key == "allOf" && part.is_array()) {
      for (const SchemaJson& one : part) alternatives.push_back(negated(one));
    } else if ((key == "anyOf" || key == "oneOf") && part.is_array()) {
      SchemaJson none = SchemaJson::array();
      for (const SchemaJson& one : part) none.push_back(negated(one));
      alternatives.push_back({{"allOf", none}});
      for (std::size_t i = 0; i < part.size() && key == "oneOf"; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          alternatives.push_back({{"allOf", SchemaJson::array({part[i], part[j]})}});
        }
      }
    } else if (key == "$ref" && part.is_string()) {
      negate(document_.target(value, part.get_ref<const std::string&>()), alternatives, depth + 1);
      if (document_.is_old()) return;
    } else if (is_assertion(key) && key != "then" && key != "else") {
      refuse(key);
    }
  }
}

void ShapeReader::gather_if(const SchemaJson& schema, const SchemaJson& value, Reading& reading) {
  const SchemaJson* then = SchemaDocument::find(schema, "then");
  const SchemaJson* otherwise = SchemaDocument::find(schema, "else");
  if (then == nullptr && otherwise == nullptr) return;
  const auto both = [&](SchemaJson one, const SchemaJson* other) -> const SchemaJson* {
    SchemaJson all = SchemaJson::array({std::move(one)});
    if (other != nullptr) all.push_back(*other);
    return &document_.keep({{"allOf", std::move(all)}}, schema);
  };
  reading.choices.push_back({&value, {both(value, then), both({{"not", value}}, otherwise)}});
}

void ShapeReader::gather_dependencies(const SchemaJson& schema, const std::string& key,
                                      const SchemaJson& value, Reading& reading) {
  if (!value.is_object()) document_.refuse(schema, key, "no object; correct it");
  for (const auto& [name, needs] : value.items()) {
    const SchemaJson& without = document_.keep({{"properties", {{name, false}}}}, schema);
    SchemaJson with = {{"required", SchemaJson::array({name})}};
    if (needs.is_array()) {
      for (const SchemaJson& other : needs) with["required"].push_back(other);
    } else {
      with["allOf"] = SchemaJson::array({needs});
    }
    reading.choices.push_back({&value, {&without, &document_.keep(std::move(with), schema)}});
  }
}

void ShapeReader::expand(Reading&& reading, std::vector<SchemaShape>& shapes) {
  if (reading.shape.is_impossible || reading.shape.types == 0) return;
  if (reading.choices.empty() || ++expansions_ > 16 * most_shapes) {
    if (shapes.size() == most_shapes || !reading.choices.empty()) {
      const SchemaJson& place = reading.seen.empty() ? document_.root() : *reading.seen.front();
      document_.refuse(place, cat("more than ", most_shapes,
                                  " combinations of alternatives; make \"anyOf\" fewer"));
    }
    shapes.push_back(std::move(reading.shape));
    return;
  }
  const Choice choice = reading.choices.back();
  reading.choices.pop_back();
  for (const SchemaJson* alternative : choice.alternatives) {
    Reading one = reading;
    // What this value has been found under already is not under again.
    if (std::ranges::find(one.seen, alternative) != one.seen.end()) {
      expand(std::move(one), shapes);
      continue;
    }
    gather(*alternative, one);
    expand(std::move(one), shapes);
  }
}

}  // namespace coppice::constraints

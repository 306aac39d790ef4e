#include "constraints/schema.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "constraints/code_points.h"
#include "constraints/formats.h"
#include "constraints/json_text.h"
#include "constraints/regex.h"
#include "constraints/schema_shape.h"

namespace coppice::constraints {
namespace {

// Properties of one object, each of which is a state or two.
constexpr std::size_t most_properties_of_object = 5000;
// Keys that match one pattern and not another are told apart for each set of patterns.
constexpr std::size_t most_key_patterns = 6;
// Beyond, schemas in schemas are compiled one after the other instead of one within the other.
constexpr int deepest_compilation = 40;
// How deep "oneOf" is searched for what tells alternatives apart.
constexpr int deepest_comparison = 6;

class SchemaCompiler {
 public:
  SchemaCompiler(Expressions& expressions, std::string_view schema, JsonSpace space)
      : x_(expressions), json_(expressions, space), document_(schema) {}

  Expr compile() {
    const Expr all = language({&document_.root()});
    while (!waiting_.empty()) {
      auto [schemas, rule] = std::move(waiting_.back());
      waiting_.pop_back();
      x_.define(rule, texts(schemas));
    }
    return all;
  }

 private:
  struct Known {
    Expr language = -1;      ///< -1: under way
    std::int32_t rule = -1;  ///< that stands for it meanwhile
  };

  // Schemas that say nothing are left out, so that what is left names a language.
  static Schemas distinct(const Schemas& schemas) {
    Schemas all;
    for (const SchemaJson* schema : schemas) {
      const bool says_nothing =
          schema->is_boolean() ? schema->get<bool>() : schema->is_object() && schema->empty();
      if (!says_nothing && std::ranges::find(all, schema) == all.end()) all.push_back(schema);
    }
    return all;
  }

  /// Values that satisfy all schemas.
  Expr language(const Schemas& given) {
    const Schemas schemas = distinct(given);
    if (schemas.empty()) return json_.value();
    const auto [entry, is_new] = known_.try_emplace(schemas);
    if (!is_new) {
      if (entry->second.language >= 0) return entry->second.language;
      return recursion(entry->second);
    }
    if (depth_ >= deepest_compilation) {
      const Expr later = recursion(entry->second);
      waiting_.emplace_back(schemas, entry->second.rule);
      return entry->second.language = later;
    }
    ++depth_;
    const Expr found = texts(schemas);
    --depth_;
    Known& known = known_.at(schemas);
    if (known.rule >= 0) x_.define(known.rule, found);
    return known.language = found;
  }

  Expr recursion(Known& known) {
    if (known.rule < 0) known.rule = x_.declare("JSON schema: a \"$ref\"");
    return x_.rule(known.rule);
  }

  std::vector<SchemaShape> shapes_of(const Schemas& schemas) {
    ShapeReader reader(document_, [&](const SchemaJson& place, const Schemas& alternatives) {
      return exclusive(place, alternatives);
    });
    return reader.read(schemas);
  }

  Expr texts(const Schemas& schemas) {
    std::vector<Expr> all;
    for (const SchemaShape& shape : shapes_of(schemas)) all.push_back(texts(shape));
    return x_.either(std::move(all));
  }

  Expr texts(const SchemaShape& shape) {
    if (!shape.values.empty()) {
      std::vector<Expr> all;
      for (const SchemaJson* value : values_of(shape)) all.push_back(json_.literal(*value));
      return x_.either(std::move(all));
    }
    std::vector<Expr> all;
    const auto has = [&](JsonType type) { return (shape.types & type) != 0; };
    for (const SchemaJson& value : {SchemaJson(nullptr), SchemaJson(true), SchemaJson(false)}) {
      if (has(type_of(value)) && !is_excluded(shape, value)) all.push_back(x_.text(value.dump()));
    }
    if (has(number_type)) all.push_back(number(range_of(shape)));
    if (has(string_type)) all.push_back(string(shape));
    if (has(array_type)) all.push_back(array(shape));
    if (has(object_type)) all.push_back(object(shape));
    return x_.either(std::move(all));
  }

  // The first list's values that everything else admits.
  std::vector<const SchemaJson*> values_of(const SchemaShape& shape) {
    std::vector<const SchemaJson*> found;
    for (const SchemaJson& value : *shape.values.front()) {
      if (admits(shape, value, 1)) found.push_back(&value);
    }
    return found;
  }

  Expr number(const NumberRange& range) {
    if (range.is_open()) return range.is_integer ? json_.integer() : json_.number();
    return number_text(x_, range);
  }

  // Counted: lists may be long, and looked through for each value of another.
  bool holds(const SchemaJson& list, const SchemaJson& value) {
    x_.count(static_cast<std::int64_t>(list.size()));
    return std::ranges::find(list, value) != list.end();
  }

  bool is_excluded(const SchemaShape& shape, const SchemaJson& value) {
    return std::ranges::any_of(shape.others_than,
                               [&](const SchemaJson* list) { return holds(*list, value); });
  }

  static NumberRange range_of(const SchemaShape& shape) {
    NumberRange range = shape.number;
    for (const SchemaJson* list : shape.others_than) {
      for (const SchemaJson& value : *list) {
        if (value.is_number()) range.others_than.push_back(Decimal::of(value));
      }
    }
    return range;
  }

  static bool excludes_strings(const SchemaShape& shape) {
    return std::ranges::any_of(shape.others_than, [](const SchemaJson* list) {
      return std::ranges::any_of(*list, [](const SchemaJson& value) { return value.is_string(); });
    });
  }

  bool is_plain(const SchemaShape& shape) {
    return shape.patterns.empty() && shape.no_patterns.empty() && !excludes_strings(shape) &&
           std::ranges::all_of(shape.formats, [&](const SchemaJson* format) {
             return format_pattern(*format, place_of(*format)).empty();
           });
  }

  std::string place_of(const SchemaJson& value) { return "JSON schema: " + document_.path(value); }

  Expr string(const SchemaShape& shape) {
    if (shape.most_characters != no_limit && shape.least_characters > shape.most_characters) {
      return nothing;
    }
    if (is_plain(shape)) return json_.string(shape.least_characters, shape.most_characters);
    return json_.quoted(characters(shape));
  }

  // A string's characters, in the one spelling that patterns are compared with.
  Expr characters(const SchemaShape& shape) {
    std::vector<Expr> all = {json_.characters(shape.least_characters, shape.most_characters)};
    for (const SchemaJson* one : shape.patterns) all.push_back(pattern(*one, *one));
    for (const SchemaJson* one : shape.no_patterns) {
      all.push_back(x_.complement(pattern(*one, *one)));
    }
    std::vector<Expr> excluded;
    for (const SchemaJson* list : shape.others_than) {
      for (const SchemaJson& value : *list) {
        if (value.is_string()) excluded.push_back(x_.text(json_spelt(value.get<std::string>())));
      }
    }
    if (!excluded.empty()) all.push_back(x_.complement(x_.either(std::move(excluded))));
    for (const SchemaJson* format : shape.formats) {
      const std::string where = place_of(*format);
      const std::string text = format_pattern(*format, where);
      if (!text.empty()) all.push_back(compile_regex(x_, text, RegexUse::json_search, where));
    }
    // Patterns are made of characters as they are, so a string of any length adds nothing.
    const bool has_pattern =
        !shape.patterns.empty() ||
        (shape.no_patterns.empty() && !is_plain(shape) && !excludes_strings(shape));
    if (has_pattern && shape.least_characters == 0 && shape.most_characters == no_limit) {
      all.erase(all.begin());
    }
    return x_.both(std::move(all));
  }

  Expr pattern(const SchemaJson& place, const std::string& text) {
    const auto [entry, is_new] = patterns_.try_emplace(text, nothing);
    if (is_new) {
      entry->second = compile_regex(x_, text, RegexUse::json_search, place_of(place));
    }
    return entry->second;
  }

  // What an item at a place must satisfy; behind all "prefixItems" the place does not matter.
  static Schemas item_at(const SchemaShape& shape, std::size_t place) {
    Schemas all;
    for (const SchemaShape::Items& items : shape.items) {
      if (place < items.first.size()) {
        all.push_back(items.first[place]);
      } else if (items.rest != nullptr) {
        all.push_back(items.rest);
      }
    }
    return all;
  }
  static std::size_t items_told_apart(const SchemaShape& shape) {
    std::size_t most = 0;
    for (const SchemaShape::Items& items : shape.items) most = std::max(most, items.first.size());
    return most;
  }

  Expr array(const SchemaShape& shape) {
    std::vector<Expr> first;
    for (std::size_t i = 0, n = items_told_apart(shape); i < n; ++i) {
      first.push_back(language(item_at(shape, i)));
    }
    const Expr rest = language(item_at(shape, first.size()));
    return json_.array(first, rest, shape.least_items, shape.most_items);
  }

  bool matches(const SchemaJson& place, const std::string& text, const std::string& key) {
    return x_.matches(pattern(place, text), json_spelt(key));
  }

  // What a property must satisfy.
  Schemas property(const SchemaShape& shape, const std::string& key) {
    Schemas all;
    for (const SchemaShape::Properties& part : shape.properties) {
      bool is_known = false;
      if (part.declared != nullptr) {
        if (const SchemaJson* declared = SchemaDocument::find(*part.declared, key)) {
          all.push_back(declared);
          is_known = true;
        }
      }
      if (part.by_pattern != nullptr) {
        for (const auto& [text, schema] : part.by_pattern->items()) {
          if (!matches(schema, text, key)) continue;
          all.push_back(&schema);
          is_known = true;
        }
      }
      if (!is_known && part.others != nullptr) all.push_back(part.others);
    }
    return all;
  }

  Expr key_characters(const SchemaShape& shape) {
    std::vector<Expr> all = {json_.characters()};
    for (const SchemaJson* names : shape.names) {
      std::vector<Expr> ways;
      for (const SchemaShape& one : shapes_of({names})) {
        if ((one.types & string_type) == 0) continue;
        if (one.values.empty()) {
          ways.push_back(characters(one));
          continue;
        }
        for (const SchemaJson* value : values_of(one)) {
          if (value->is_string()) ways.push_back(x_.text(json_spelt(value->get<std::string>())));
        }
      }
      all.push_back(x_.either(std::move(ways)));
    }
    return x_.both(std::move(all));
  }

  Expr object(const SchemaShape& shape) {
    std::vector<std::string> keys;
    std::set<std::string> met;
    for (const SchemaShape::Properties& part : shape.properties) {
      if (part.declared == nullptr) continue;
      for (const auto& [key, _] : part.declared->items()) {
        if (met.insert(key).second) keys.push_back(key);
      }
    }
    for (const std::string& key : shape.required) {
      if (met.insert(key).second) keys.push_back(key);
    }
    if (keys.size() > most_properties_of_object) {
      document_.refuse(
          *shape.properties.front().declared,
          cat(keys.size(), " properties; at most ", most_properties_of_object, " are supported"));
    }
    const Expr allowed_keys = key_characters(shape);
    std::vector<JsonText::Member> members;
    for (const std::string& key : keys) {
      const bool is_required = shape.requires_property(key);
      const std::string spelt = json_spelt(key);
      const bool is_allowed = shape.names.empty() || x_.matches(allowed_keys, spelt);
      const Expr value = is_allowed ? language(property(shape, key)) : nothing;
      if (value == nothing && is_required) return nothing;
      if (value == nothing) continue;
      members.push_back({json_.member(json_.quoted(x_.text(spelt)), value), is_required});
    }
    return json_.object(members, other_members(shape, keys, allowed_keys), shape.least_properties,
                        shape.most_properties);
  }

  // Members under keys that are not declared. Which patterns a key matches decides what its value
  // must satisfy, so each set of patterns has keys of its own.
  Expr other_members(const SchemaShape& shape, const std::vector<std::string>& declared,
                     Expr allowed_keys) {
    std::vector<std::pair<std::string, const SchemaJson*>> key_patterns;
    for (const SchemaShape::Properties& part : shape.properties) {
      if (part.by_pattern == nullptr) continue;
      for (const auto& [text, schema] : part.by_pattern->items()) {
        const bool is_known = std::ranges::any_of(
            key_patterns, [&, &name = text](const auto& one) { return one.first == name; });
        if (!is_known) key_patterns.emplace_back(text, &schema);
      }
    }
    if (key_patterns.size() > most_key_patterns) {
      document_.refuse(*key_patterns.front().second, cat("more than ", most_key_patterns,
                                                         " \"patternProperties\" are not "
                                                         "supported; join some"));
    }
    std::vector<Expr> all;
    for (std::size_t chosen = 0; chosen < std::size_t{1} << key_patterns.size(); ++chosen) {
      const auto is_chosen = [&](std::string_view text) {
        for (std::size_t i = 0; i < key_patterns.size(); ++i) {
          if (key_patterns[i].first == text) return (chosen >> i & 1) != 0;
        }
        return false;
      };
      Schemas wanted;
      bool is_impossible = false;
      for (const SchemaShape::Properties& part : shape.properties) {
        bool is_known = false;
        if (part.by_pattern != nullptr) {
          for (const auto& [text, schema] : part.by_pattern->items()) {
            if (!is_chosen(text)) continue;
            wanted.push_back(&schema);
            is_known = true;
          }
        }
        if (!is_known && part.others != nullptr) wanted.push_back(part.others);
      }
      for (const SchemaJson* schema : wanted) {
        is_impossible = is_impossible || *schema == SchemaJson(false);
      }
      if (is_impossible) continue;
      std::vector<Expr> conditions = {allowed_keys};
      std::vector<Expr> names;
      for (const std::string& key : declared) names.push_back(x_.text(json_spelt(key)));
      if (!names.empty()) conditions.push_back(x_.complement(x_.either(std::move(names))));
      for (std::size_t i = 0; i < key_patterns.size(); ++i) {
        const Expr matching = pattern(*key_patterns[i].second, key_patterns[i].first);
        conditions.push_back((chosen >> i & 1) != 0 ? matching : x_.complement(matching));
      }
      const Expr keys = x_.both(std::move(conditions));
      if (keys == nothing) continue;
      all.push_back(json_.member(json_.quoted(keys), language(wanted)));
    }
    return x_.either(std::move(all));
  }

  /// Whether a value that is given satisfies what a shape says. It is in the first `lists` lists.
  bool admits(const SchemaShape& shape, const SchemaJson& value, std::size_t lists = 0) {
    x_.count(1);
    const JsonType type = type_of(value);
    if ((shape.types & type) == 0) return false;
    if (is_excluded(shape, value)) return false;
    for (std::size_t i = lists; i < shape.values.size(); ++i) {
      if (!holds(*shape.values[i], value)) return false;
    }
    if (type == number_type) {
      const NumberRange range = range_of(shape);
      const Decimal number_value = Decimal::of(value);
      if (range.is_integer && !number_value.fraction.empty()) return false;
      if (range.is_open()) return true;
      std::string text = number_value.is_negative ? "-" : "";
      text += number_value.whole;
      if (!number_value.fraction.empty()) text += "." + number_value.fraction;
      return x_.matches(number_text(x_, range), text);
    }
    if (type == string_type) {
      return x_.matches(characters(shape), json_spelt(value.get<std::string>()));
    }
    const auto size = static_cast<std::int32_t>(value.size());
    const auto fits = [&](std::int32_t least, std::int32_t most) {
      return size >= least && (most == no_limit || size <= most);
    };
    if (type == array_type) {
      if (!fits(shape.least_items, shape.most_items)) return false;
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (!admits(item_at(shape, i), value[i])) return false;
      }
    }
    if (type == object_type) {
      if (!fits(shape.least_properties, shape.most_properties)) return false;
      for (const std::string& key : shape.required) {
        if (SchemaDocument::find(value, key) == nullptr) return false;
      }
      const Expr allowed_keys = key_characters(shape);
      for (const auto& [key, item] : value.items()) {
        if (!x_.matches(allowed_keys, json_spelt(key))) return false;
        if (!admits(property(shape, key), item)) return false;
      }
    }
    return true;
  }

  bool admits(const Schemas& schemas, const SchemaJson& value) {
    return std::ranges::any_of(shapes_of(schemas),
                               [&](const SchemaShape& shape) { return admits(shape, value); });
  }

  // "oneOf" asks that exactly one holds: where two may, each of them without the other.
  Schemas exclusive(const SchemaJson& place, const Schemas& alternatives) {
    // What is met under itself is taken as "anyOf" meanwhile, which admits more.
    const auto [known, is_new] = exclusive_.try_emplace(&place, alternatives);
    if (!is_new) return known->second;
    std::vector<std::vector<SchemaShape>> shapes;
    for (const SchemaJson* one : alternatives) shapes.push_back(shapes_of({one}));
    std::vector<std::vector<std::size_t>> others(shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (are_disjoint(shapes[i], shapes[j], 0)) continue;
        others[i].push_back(j);
        others[j].push_back(i);
      }
    }
    Schemas apart = alternatives;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (others[i].empty()) continue;
      SchemaJson all = SchemaJson::array({*alternatives[i]});
      for (const std::size_t j : others[i]) all.push_back({{"not", *alternatives[j]}});
      apart[i] = &document_.keep({{"allOf", std::move(all)}}, place);
      try {
        shapes_of({apart[i]});
      } catch (const Error&) {
        document_.refuse(place, cat("alternative ", i,
                                    " may hold beside another, and what says so "
                                    "is not supported; write \"anyOf\" if both may hold, or tell "
                                    "them apart by a \"const\""));
      }
    }
    return exclusive_[&place] = apart;
  }

  bool are_disjoint(const std::vector<SchemaShape>& some, const std::vector<SchemaShape>& others,
                    int depth) {
    return std::ranges::all_of(some, [&](const SchemaShape& a) {
      return std::ranges::all_of(others, [&](const SchemaShape& b) {
        x_.count(100);
        return are_disjoint(a, b, depth);
      });
    });
  }

  bool are_disjoint(const SchemaShape& a, const SchemaShape& b, int depth) {
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if (one->values.empty()) continue;
      return std::ranges::none_of(values_of(*one), [&, &rest = *other](const SchemaJson* value) {
        return admits(rest, *value);
      });
    }
    const unsigned types = a.types & b.types;
    if ((types & (null_type | boolean_type)) != 0) return false;
    const auto lie_apart = [](std::int32_t least, std::int32_t most, std::int32_t other_least,
                              std::int32_t other_most) {
      return (most != no_limit && most < other_least) ||
             (other_most != no_limit && other_most < least);
    };
    if ((types & number_type) != 0) {
      NumberRange range = range_of(a);
      range.meet(range_of(b));
      if (number(range) != nothing) return false;
    }
    if ((types & string_type) != 0) {
      if (x_.both({characters(a), characters(b)}) != nothing) return false;
    }
    if ((types & array_type) != 0) {
      if (!lie_apart(a.least_items, a.most_items, b.least_items, b.most_items)) return false;
    }
    if ((types & object_type) != 0) {
      const bool sizes =
          lie_apart(a.least_properties, a.most_properties, b.least_properties, b.most_properties);
      if (!sizes && !differ_in_property(a, b, depth)) return false;
    }
    return true;
  }

  // Whether a property that one of them requires is different in both, or not allowed in the other.
  bool differ_in_property(const SchemaShape& a, const SchemaShape& b, int depth) {
    if (depth >= deepest_comparison) return false;
    std::set<std::string> keys(a.required.begin(), a.required.end());
    keys.insert(b.required.begin(), b.required.end());
    return std::ranges::any_of(keys, [&](const std::string& key) {
      return are_disjoint(shapes_of(property(a, key)), shapes_of(property(b, key)), depth + 1);
    });
  }

  Expressions& x_;
  JsonText json_;
  SchemaDocument document_;
  std::map<Schemas, Known> known_;
  std::vector<std::pair<Schemas, std::int32_t>> waiting_;
  std::map<std::string, Expr> patterns_;
  std::map<const SchemaJson*, Schemas> exclusive_;
  int depth_ = 0;
};

}  // namespace

Expr compile_schema(Expressions& expressions, std::string_view schema, JsonSpace space) {
  return SchemaCompiler(expressions, schema, space).compile();
}

}  // namespace coppice::constraints

#include "constraints/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/nearest.h"

namespace coppice::constraints {
namespace {

constexpr std::array<std::string_view, 44> assertions = {
    "$dynamicRef", "$ref", "$recursiveRef", "additionalItems", "additionalProperties", "allOf",
    "anyOf", "const", "contains", "dependencies", "dependentRequired", "dependentSchemas",
    "disallow", "divisibleBy", "enum", "exclusiveMaximum", "exclusiveMinimum", "extends", "format",
    "if", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern", "patternProperties",
    "prefixItems", "properties", "propertyNames", "required", "type", "unevaluatedItems",
    "unevaluatedProperties", "uniqueItems",
    // They assert something beside "if".
    "else", "then"};

// Annotations of forms and of other schema languages that are spelt much like a keyword.
constexpr std::array<std::string_view, 4> other_words = {"form", "inclusiveMaximum",
                                                         "inclusiveMinimum", "multiple"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

bool is_assertion(std::string_view keyword) {
  return std::ranges::find(assertions, keyword) != assertions.end();
}

std::string misspelt_keyword(std::string_view key) {
  constexpr std::size_t most_changes = 2;
  if (is_assertion(key) || key.starts_with("x-") ||
      std::ranges::find(other_words, key) != other_words.end()) {
    return "";
  }
  static const std::vector<std::string> words = [] {
    std::vector<std::string> all;
    for (const std::string_view word : assertions) {
      if (word.size() > 3) all.emplace_back(word);  // "if" and "not" are near to anything short
    }
    return all;
  }();
  std::string meant = nearest(key, words, most_changes);
  // A mark in front, as in "_format" or "@type", makes another word of a keyword, or disables it.
  if (!meant.empty() && !is_letter(key.front()) && key.front() != meant.front()) return "";
  return meant;
}

}  // namespace coppice::constraints

#include "constraints/schema_document.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace coppice::constraints {
namespace {

// Schemas that stand for others, and the values in them, which are copies of the document's.
constexpr std::size_t most_kept = 4000, most_kept_values = 1'000'000;

std::size_t values_in(const SchemaJson& value) {
  std::size_t count = 1;
  if (value.is_structured()) {
    for (const SchemaJson& inner : value) count += values_in(inner);
  }
  return count;
}

/// Appends the path of the first value in `in` that `is_wanted`.
bool find_path(const SchemaJson& in, const std::function<bool(const SchemaJson&)>& is_wanted,
               std::string& path) {
  if (is_wanted(in)) return true;
  const std::size_t length = path.size();
  if (in.is_object()) {
    for (const auto& [key, value] : in.items()) {
      path += "/" + key;
      if (find_path(value, is_wanted, path)) return true;
      path.resize(length);
    }
  } else if (in.is_array()) {
    std::size_t i = 0;
    for (const SchemaJson& value : in) {
      path += cat("/", i++);
      if (find_path(value, is_wanted, path)) return true;
      path.resize(length);
    }
  }
  return false;
}

// A step of a JSON pointer, with what "%41" and "~1" stand for.
std::string unescaped(std::string_view step) {
  std::string text;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      const char c = at < step.size() ? step[at] : ' ';
      const std::string_view digits = "0123456789abcdef";
      const std::size_t value = digits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c | 0x20) : c);
      return value == digits.npos ? -1 : static_cast<int>(value);
    };
    if (step[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      text.push_back(static_cast<char>(digit(i + 1) * 16 + digit(i + 2)));
      i += 2;
    } else {
      text.push_back(step[i]);
    }
  }
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '~' && i + 1 < text.size();
    if (is_escape && (text[i + 1] == '0' || text[i + 1] == '1')) {
      plain.push_back(text[++i] == '0' ? '~' : '/');
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

OrderedJson parsed_schema(std::string_view text) {
  try {
    return parse_typed_json(text, "JSON schema");
  } catch (const Error& error) {
    throw_usage(error.what());
  }
}

}  // namespace

SchemaDocument::SchemaDocument(std::string_view text) : json_(parsed_schema(text)) {
  const SchemaJson* draft = json_->is_object() ? find(*json_, "$schema") : nullptr;
  if (draft != nullptr && draft->is_string()) {
    const auto& name = draft->get_ref<const std::string&>();
    is_old_ = name.find("draft-0") != name.npos;
  }
  collect_names(*json_);
}

const SchemaJson* SchemaDocument::find(const SchemaJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto& members = object.get_ref<const SchemaJson::object_t&>();
  const auto found = std::ranges::find_if(members, [&](const auto& m) { return m.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

void SchemaDocument::collect_names(const SchemaJson& value) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      // The members of "enum" and "const" are values.
      if (key == "enum" || key == "const" || key == "default" || key == "examples") continue;
      if (member.is_string() && (key == "$id" || key == "id")) {
        std::string id = member.get<std::string>();
        if (id.ends_with('#')) id.pop_back();
        if (!id.empty()) names_.try_emplace(id, &value);
      } else if (member.is_string() && (key == "$anchor" || key == "$dynamicAnchor")) {
        names_.try_emplace("#" + member.get<std::string>(), &value);
      }
      collect_names(member);
    }
  } else if (value.is_array()) {
    for (const SchemaJson& item : value) collect_names(item);
  }
}

const SchemaJson& SchemaDocument::target(const SchemaJson& from,
                                         const std::string& reference) const {
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string base = reference.substr(0, hash), fragment = reference.substr(hash);
  const SchemaJson* value = &root();
  if (!base.empty()) {
    const auto named = names_.find(base);
    if (named == names_.end()) {
      refuse(from, "$ref",
             cat("leads to ", quote(base),
                 ", which is another document; copy it into "
                 "\"$defs\""));
    }
    value = named->second;
  }
  if (fragment.size() < 2) return *value;
  if (fragment[1] != '/') {
    const auto named = names_.find(fragment);
    if (named == names_.end()) {
      refuse(from, "$ref", cat("no \"$anchor\" of ", quote(fragment), "; define it"));
    }
    return *named->second;
  }
  std::string_view left = std::string_view(fragment).substr(1);
  while (!left.empty()) {
    left.remove_prefix(1);
    const std::string step = unescaped(left.substr(0, left.find('/')));
    left.remove_prefix(std::min(left.find('/'), left.size()));
    const SchemaJson* next = find(*value, step);
    if (value->is_array() && !step.empty() && step.size() < 8 &&
        step.find_first_not_of("0123456789") == step.npos) {
      const auto i = static_cast<std::size_t>(std::stoi(step));
      next = i < value->size() ? &(*value)[i] : nullptr;
    }
    if (next == nullptr) {
      refuse(from, "$ref", cat("nothing at ", quote(reference), "; correct the reference"));
    }
    value = next;
  }
  return *value;
}

const SchemaJson& SchemaDocument::keep(SchemaJson schema, const SchemaJson& origin) {
  kept_values_ += values_in(schema);
  if (kept_.size() == most_kept || kept_values_ > most_kept_values) {
    refuse(origin, "too many conditions under conditions; make them simpler");
  }
  kept_.push_back(std::move(schema));
  origins_[&kept_.back()] = &origin;
  return kept_.back();
}

std::string SchemaDocument::path(const SchemaJson& value) const {
  const auto is_value = [&](const SchemaJson& one) { return &one == &value; };
  std::string found = "#";
  if (find_path(root(), is_value, found)) return found;
  for (const SchemaJson& kept : kept_) {
    if (!find_path(kept, is_value, found)) continue;
    const SchemaJson& origin = *origins_.at(&kept);
    found = path(origin);
    // What was kept holds copies of what its origin holds.
    if (&kept != &value)
      find_path(
          origin, [&](const SchemaJson& one) { return one == value; }, found);
    return found;
  }
  return "#";
}

void SchemaDocument::refuse(const SchemaJson& at, const std::string& what) const {
  throw_usage(cat("JSON schema: ", printable(path(at)), ": ", what));
}

void SchemaDocument::refuse(const SchemaJson& at, std::string_view keyword,
                            const std::string& what) const {
  throw_usage(cat("JSON schema: ", printable(path(at)), "/", printable(keyword), ": ", what));
}

}  // namespace coppice::constraints

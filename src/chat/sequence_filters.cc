// Filters over lists and mappings.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "chat/arguments.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

// "a.b.0" leads into nested values; a whole number is an index.
Value at_path(Interpreter& interpreter, Value value, const Value& path) {
  if (!path.is_string()) return interpreter.item(value, path);
  std::string_view rest = path.text().view();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string step(rest.substr(0, dot));
    const bool index = !step.empty() && step.size() < 9 &&
                       step.find_first_not_of("0123456789") == std::string::npos;
    value = interpreter.item(value, index ? Value(std::stoi(step)) : Value(step));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

// What an item is compared by: its attribute, if that is not null, and without regard to case if
// asked.
Value sort_key(Interpreter& interpreter, const Value& item, const Value* attribute, bool exact) {
  Value key = attribute != nullptr ? at_path(interpreter, item, *attribute) : item;
  if (!exact && key.is_string()) return Value(with_case(key.text(), Case::lower));
  return key;
}

Value first(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "first"));
  const std::vector<Value> items = items_of(value);
  if (items.empty()) return Value::undefined("No first item, sequence was empty.");
  if (value.is_list(List::Kind::generator)) value.as_list().taken -= items.size() - 1;
  return items.front();
}
Value last(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "last"));
  if (value.is_list(List::Kind::generator)) {
    throw TemplateError("'generator' object is not reversible; put |list before |last");
  }
  const std::vector<Value> items = items_of(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value count(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "length"));
  if (value.is_string()) return Value(length(value.text().view()));
  if (value.is_list() && !value.is_list(List::Kind::generator)) {
    return Value(value.as_list().items.size());
  }
  if (value.is_dict()) return Value(value.as_dict().items.size());
  if (value.is_undefined()) return Value(0);
  throw TemplateError(cat("object of type ", value.type_name(), " has no len()"));
}

Value join(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "join", {"d", "attribute"});
  const Value* attribute = words.unless_none(1);
  const Text separator = words.get(0) != nullptr ? str(words[0]) : Text();
  Text out;
  bool is_first = true;
  for (const Value& item : items_of(value)) {
    if (!is_first) out.append(separator);
    is_first = false;
    append_str(sort_key(interpreter, item, attribute, true), out);
  }
  return Value(std::move(out));
}

Value list(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "list"));
  return Value::list(items_of(value));
}

std::vector<Value> pairs(const Dict& dict) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) items.push_back(Value::tuple({key, value}));
  return items;
}

Value items(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "items"));
  if (value.is_undefined()) return Value::generator({});
  if (!value.is_dict()) throw TemplateError("Can only get item pairs from a mapping.");
  return Value::generator(pairs(value.as_dict()));
}

void sort_values(std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  // Equal ones keep their order, reversed or not, as Python's sort does.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return compare(reverse ? b.first : a.first, reverse ? a.first : b.first, "<") < 0;
  });
}

Value sort(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "sort", {"reverse", "case_sensitive", "attribute"});
  const Value* attribute = words.unless_none(2);
  const bool exact = words.flag(1);
  Arguments comma;
  comma.positional.emplace_back(std::string(","));
  std::vector<Value> paths;
  if (attribute != nullptr) paths.push_back(*attribute);
  if (attribute != nullptr && attribute->is_string()) {
    paths = items_of(string_method(attribute->text(), "split", comma));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items_of(value)) {
    Value key;
    if (attribute == nullptr) {
      key = sort_key(interpreter, item, nullptr, exact);
    } else {
      // Keys in a list are compared only where they differ: attributes that are absent do not.
      std::vector<Value> keys;
      for (const Value& path : paths) keys.push_back(sort_key(interpreter, item, &path, exact));
      key = Value::tuple(std::move(keys));
    }
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_values(keyed, words.small(0, 0) != 0);
  std::vector<Value> sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::list(std::move(sorted));
}

Value dict_sort(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!defined(value).is_dict()) throw TemplateError("dictsort needs a mapping");
  const std::string what = words.text(1, "key").bytes();
  if (what != "key" && what != "value") throw TemplateError("by must be key or value");
  const Value index(what == "key" ? 0 : 1);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& pair : pairs(value.as_dict())) {
    keyed.emplace_back(sort_key(interpreter, pair, &index, words.flag(0)), pair);
  }
  sort_values(keyed, words.small(2, 0) != 0);
  std::vector<Value> sorted;
  for (auto& [key, pair] : keyed) sorted.push_back(std::move(pair));
  return Value::list(std::move(sorted));
}

Value unique(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> seen, kept;
  for (Value& item : items_of(value)) {
    const Value key = sort_key(interpreter, item, words.unless_none(1), words.flag(0));
    hashable(key);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& old) { return equal(old, key); })) {
      continue;
    }
    seen.push_back(key);
    kept.push_back(std::move(item));
  }
  return Value::generator(std::move(kept));
}

Value reverse(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "reverse"));
  std::vector<Value> all = items_of(value);
  std::reverse(all.begin(), all.end());
  if (value.is_list(List::Kind::generator)) return Value::list(std::move(all));
  if (!value.is_string()) return Value::generator(std::move(all));
  Text out;
  for (const Value& c : all) out.append(c.text());
  return Value(std::move(out));
}

Value group(const Value& value, const Arguments& given, bool by_count) {
  const Bound words(given, by_count ? "slice" : "batch",
                    {by_count ? "slices" : "linecount", "fill_with"}, 1);
  const std::int64_t n = words.count(0);
  if (n < 1 || n > 100'000) throw TemplateError("the count must be 1 to 100000");
  const Value* fill = words.unless_none(1);
  const std::vector<Value> all = items_of(value);
  const auto groups = static_cast<std::size_t>(n);
  std::vector<Value> out;
  std::vector<Value> row;
  if (by_count) {
    const std::size_t each = all.size() / groups, longer = all.size() % groups;
    for (std::size_t g = 0, at = 0; g < groups; ++g) {
      const std::size_t take = each + (g < longer ? 1 : 0);
      row.assign(all.begin() + static_cast<std::ptrdiff_t>(at),
                 all.begin() + static_cast<std::ptrdiff_t>(at + take));
      at += take;
      if (fill != nullptr && g >= longer) row.push_back(*fill);
      out.push_back(Value::list(std::move(row)));
    }
    return Value::generator(std::move(out));
  }
  for (const Value& item : all) {
    row.push_back(item);
    if (row.size() == groups) {
      out.push_back(Value::list(std::move(row)));
      row.clear();
    }
  }
  if (!row.empty()) {
    while (fill != nullptr && row.size() < groups) row.push_back(*fill);
    out.push_back(Value::list(std::move(row)));
  }
  return Value::generator(std::move(out));
}
Value batch(Interpreter&, const Value& value, const Arguments& given) {
  return group(value, given, false);
}
Value slice(Interpreter&, const Value& value, const Arguments& given) {
  return group(value, given, true);
}

Value sum(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "sum", {"attribute", "start"});
  Value total = words.get(1) != nullptr ? words[1] : Value(0);
  if (total.is_string()) throw TemplateError("sum() can't sum strings; use join");
  for (const Value& item : items_of(value)) {
    total = binary("+", total, sort_key(interpreter, item, words.unless_none(0), true));
  }
  return total;
}

Value extreme(Interpreter& interpreter, const Value& value, const Arguments& given, int sign) {
  const Bound words(given, sign < 0 ? "min" : "max", {"case_sensitive", "attribute"});
  const std::vector<Value> all = items_of(value);
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return sort_key(interpreter, item, words.unless_none(1), words.flag(0));
  };
  const Value* best = &all[0];
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (compare(key(all[i]), key(*best), "<") == sign) best = &all[i];
  }
  return *best;
}
Value min(Interpreter& interpreter, const Value& value, const Arguments& given) {
  return extreme(interpreter, value, given, -1);
}
Value max(Interpreter& interpreter, const Value& value, const Arguments& given) {
  return extreme(interpreter, value, given, 1);
}

Arguments without(const Arguments& given, std::size_t count) {
  Arguments rest;
  for (std::size_t i = count; i < given.positional.size(); ++i) {
    rest.positional.push_back(given.positional[i]);
  }
  rest.named = given.named;
  return rest;
}

Value map(Interpreter& interpreter, const Value& value, const Arguments& given) {
  std::vector<Value> out;
  if (!is_true(value)) return Value::generator({});  // none as well
  if (!given.positional.empty()) {
    const std::string_view name = text_of(given.positional[0], "a filter").view();
    const Arguments rest = without(given, 1);
    for (const Value& item : items_of(value)) out.push_back(interpreter.filter(name, item, rest));
    return Value::generator(std::move(out));
  }
  if (given.named.empty()) throw TemplateError("map requires a filter argument");
  const Bound words(given, "map", {"attribute", "default"}, 1);
  for (const Value& item : items_of(value)) {
    Value found = sort_key(interpreter, item, words.unless_none(0), true);
    out.push_back(found.is_undefined() && words.get(1) != nullptr ? words[1] : std::move(found));
  }
  return Value::generator(std::move(out));
}

Value choose(Interpreter& interpreter, const Value& value, const Arguments& given, bool attribute,
             bool wanted) {
  const std::size_t skipped = attribute ? 1 : 0;
  if (!is_true(value)) return Value::generator({});  // none as well
  if (given.positional.size() < skipped)
    throw TemplateError("Missing parameter for attribute name");
  const bool tested = given.positional.size() > skipped;
  const Arguments rest = without(given, skipped + 1);
  const bool leads = attribute && !given.positional[0].is_none();
  std::vector<Value> out;
  for (Value& item : items_of(value)) {
    const Value subject = leads ? at_path(interpreter, item, given.positional[0]) : item;
    const bool holds =
        tested
            ? interpreter.test(text_of(given.positional[skipped], "a test").view(), subject, rest)
            : is_true(subject);
    if (holds == wanted) out.push_back(std::move(item));
  }
  return Value::generator(std::move(out));
}
Value select(Interpreter& i, const Value& value, const Arguments& given) {
  return choose(i, value, given, false, true);
}
Value reject(Interpreter& i, const Value& value, const Arguments& given) {
  return choose(i, value, given, false, false);
}
Value select_attr(Interpreter& i, const Value& value, const Arguments& given) {
  return choose(i, value, given, true, true);
}
Value reject_attr(Interpreter& i, const Value& value, const Arguments& given) {
  return choose(i, value, given, true, false);
}

// (grouper, list) pairs in the order of their keys.
Value group_by(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const Value *attribute = words.unless_none(0), *fallback = words.get(1);
  const bool exact = words.flag(2);
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items_of(value)) {
    Value key = sort_key(interpreter, item, attribute, exact);
    if (key.is_undefined() && fallback != nullptr) key = *fallback;
    keyed.emplace_back(std::move(key), std::move(item));
  }
  sort_values(keyed, false);
  std::vector<Value> out;
  for (std::size_t at = 0; at < keyed.size();) {
    const std::size_t from = at;
    std::vector<Value> members;
    while (at < keyed.size() && equal(keyed[at].first, keyed[from].first)) {
      members.push_back(keyed[at++].second);
    }
    const Value grouper = sort_key(interpreter, members[0], attribute, true);
    out.push_back(Value::tuple(
        {grouper.is_undefined() ? keyed[from].first : grouper, Value::list(std::move(members))}));
  }
  return Value::list(std::move(out));
}

}  // namespace

const Table<Filter>& sequence_filters() {
  static const Table<Filter> all = {
      {"batch", batch},     {"count", count},      {"dictsort", dict_sort},
      {"first", first},     {"groupby", group_by}, {"items", items},
      {"join", join},       {"last", last},        {"length", count},
      {"list", list},       {"map", map},          {"max", max},
      {"min", min},         {"reject", reject},    {"rejectattr", reject_attr},
      {"reverse", reverse}, {"select", select},    {"selectattr", select_attr},
      {"slice", slice},     {"sort", sort},        {"sum", sum},
      {"unique", unique}};
  return all;
}

}  // namespace coppice::chat

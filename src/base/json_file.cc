#include "base/json_file.h"

#include <string>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace coppice {
namespace {

constexpr std::size_t deepest_nesting = 64;

// Values take up to 34 times the bytes of their text; those of the largest tokenizers in use take
// 200 MiB.
constexpr std::size_t most_mib = 512;

// What a text takes beside the value or key that holds it.
std::size_t text_bytes(const std::string& text) {
  constexpr std::size_t in_place = 15, overhead = 16;
  return text.size() <= in_place ? 0 : text.size() + overhead;
}

// Empties a value from its leaves up, so that no destructor finds children that it would have to
// move into memory of its own. Recursion ends at deepest_nesting.
template <typename Json>
void dismantle(Json& value) noexcept {
  if (value.is_array()) {
    auto& items = value.template get_ref<typename Json::array_t&>();
    for (Json& item : items) dismantle(item);
    items.clear();
  } else if (value.is_object()) {
    auto& items = value.template get_ref<typename Json::object_t&>();
    for (auto& [key, item] : items) dismantle(item);
    items.clear();
  }
}

// Builds the value from the parser's events, and stops it at the first thing that is refused.
// (nlohmann's own parser with a callback takes quadratic time: at every object's end it walks the
// parent's elements.)
template <typename Json>
class Builder {
 public:
  /// `remedy` for what is no JSON, or not such as coppice reads.
  explicit Builder(const char* remedy) : remedy_(remedy) {}
  ~Builder() { dismantle(root_); }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  Json take() { return std::move(root_); }
  /// What was refused and its remedy, once an event has returned false.
  const std::string& problem() const { return problem_; }

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(typename Json::number_integer_t value) { return add(value) != nullptr; }
  bool number_unsigned(typename Json::number_unsigned_t value) { return add(value) != nullptr; }
  bool number_float(typename Json::number_float_t value, const std::string&) {
    return add(value) != nullptr;
  }
  bool string(std::string& value) { return add(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) { return refuse(cat("holds binary data; ", remedy_)); }

  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    auto& items = open_.back()->template get_ref<typename Json::object_t&>();
    constexpr std::size_t entry_bytes = 96;
    if (!pay(entry_bytes + text_bytes(name))) return false;
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      // Its own look-up is linear, and objects from outside are as large as they like.
      if (!keys_.back().insert(name).second) return refuse_twice(name);
      using Items = std::vector<typename Json::object_t::value_type>;
      named_ = &static_cast<Items&>(items).emplace_back(std::move(name), nullptr).second;
    } else {
      const auto [entry, is_new] = items.try_emplace(std::move(name));
      if (!is_new) return refuse_twice(entry->first);
      named_ = &entry->second;
    }
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const typename Json::exception& error) {
    constexpr int out_of_range = 406;
    if (error.id == out_of_range) {
      return refuse(cat("holds a number out of range before byte ", byte, "; correct it"));
    }
    return refuse(cat("not valid JSON at byte ", byte, "; ", remedy_));
  }

 private:
  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool refuse_twice(const std::string& name) {
    return refuse(cat("key ", quote(name), " appears twice; remove one"));
  }

  /// Counts memory that a value is about to take, as allocators round it.
  bool pay(std::size_t bytes) {
    bytes_ += bytes;
    return bytes_ <= most_mib << 20 ||
           refuse(cat("holds values that take more than ", most_mib, " MiB of memory; ", remedy_));
  }

  // Elements do not move while a child of theirs is open: only the innermost array grows.
  Json* add(Json&& value) {
    constexpr std::size_t in_list = 2 * sizeof(Json), list = 32, object = 64, text = 48;
    std::size_t bytes = value.is_array() ? list : value.is_object() ? object : 0;
    if (value.is_string()) bytes = text + text_bytes(value.template get_ref<std::string&>());
    if (!open_.empty() && open_.back()->is_array()) bytes += in_list;
    if (!pay(bytes)) return nullptr;
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& items = open_.back()->template get_ref<typename Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    *named_ = std::move(value);
    return named_;
  }
  bool open(Json&& empty) {
    if (open_.size() == deepest_nesting) {
      return refuse(cat("nested deeper than ", deepest_nesting, " levels; ", remedy_));
    }
    Json* const added = add(std::move(empty));
    if (added == nullptr) return false;
    open_.push_back(added);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Json root_;
  std::size_t bytes_ = 0;
  std::vector<Json*> open_;  ///< the containers that are not closed yet, outermost first
  std::vector<std::unordered_set<std::string>> keys_;  ///< theirs, where the order is kept
  Json* named_ = nullptr;                              ///< where the value of the last key goes
  std::string problem_;
  const char* remedy_;
};

template <typename Json>
ParsedJson<Json> parsed(std::string_view text, const std::string& file, const char* remedy) {
  // The parser takes a NUL byte for the end of its input.
  if (const auto nul = text.find('\0'); nul != text.npos) {
    throw_failure(cat(file, ": not JSON: NUL byte at ", nul, "; ", remedy));
  }
  Builder<Json> builder(remedy);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    throw_failure(cat(file, ": ", builder.problem()));
  }
  return ParsedJson<Json>(builder.take());
}

}  // namespace

template <typename Json>
ParsedJson<Json>::~ParsedJson() {
  dismantle(value_);
}
template class ParsedJson<nlohmann::json>;
template class ParsedJson<nlohmann::ordered_json>;

JsonObject parse_json_value(std::string_view text, const std::string& file) {
  return parsed<nlohmann::json>(text, file, "correct it or fetch the file again");
}

OrderedJson parse_typed_json(std::string_view text, const std::string& name) {
  return parsed<nlohmann::ordered_json>(text, name, "correct it");
}

JsonObject parse_json_object(std::string_view text, const std::string& file) {
  JsonObject value = parse_json_value(text, file);
  if (!value->is_object()) {
    throw_failure(
        cat(file, ": holds a JSON ", value->type_name(), ", not an object; name the right file"));
  }
  return value;
}

JsonObject read_json_object(const std::filesystem::path& path, std::uintmax_t largest,
                            const char* remedy) {
  return parse_json_object(read_file(path, "", largest, remedy), path.string());
}

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_binary()) return "a long list";  // left out of a GGUF file's metadata
  if (value.is_structured() && value.size() > 16) return cat("a JSON ", value.type_name());
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

}  // namespace coppice

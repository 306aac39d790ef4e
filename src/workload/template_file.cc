#include "workload/template_file.h"

#include "base/error.h"
#include "base/files.h"

namespace coppice::workload {

using Json = nlohmann::json;

JsonObject read_template_file(const std::filesystem::path& file) {
  constexpr std::uintmax_t largest = std::uintmax_t{256} << 20;
  const std::string text = read_file(file, "template file", largest);
  return parse_json_value(text, file.string());
}

const Json& field(const Json& object, const char* key, const std::string& place) {
  if (!object.is_object()) {
    throw_failure(cat(place, " is ", shown(object), ", not an object; correct the file"));
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    throw_failure(cat(place, ": \"", key, "\" is missing; correct the file"));
  }
  return *found;
}

std::int64_t whole_number(const Json& value, std::int64_t least, std::int64_t most,
                          const std::string& place) {
  const bool small = value.is_number_unsigned()
                         ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                         : value.is_number_integer();
  if (!small || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    throw_failure(cat(place, " is ", shown(value), ", not a whole number from ", least, " to ",
                      most, "; correct the file"));
  }
  return value.get<std::int64_t>();
}

std::string prompt_of(const Json& object, const std::string& place) {
  const auto found = object.find("prompt");
  if (found == object.end() || found->is_null()) return "";
  const Json* text = &*found;
  if (text->is_array()) {
    if (text->empty()) return "";
    text = &text->front();
  }
  if (!text->is_string()) {
    throw_failure(cat(place, ": \"prompt\" is ", shown(*found),
                      ", not a text or a list of texts; correct the file"));
  }
  return text->get<std::string>();
}

}  // namespace coppice::workload

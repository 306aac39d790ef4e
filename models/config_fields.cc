#include "models/config_fields.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_file.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

bool is_positive(const Json& value) {
  if (!value.is_number()) return false;
  const double number = value.get<double>();
  return std::isfinite(number) && number > 0.0;
}

}  // namespace

Fields::Fields(const Json& object, std::string where, const Json* defaults)
    : object_(object), where_(std::move(where)), defaults_(defaults) {}

const Json* Fields::find(const char* name) const {
  for (const Json* object : {&object_, defaults_}) {
    if (object == nullptr) continue;
    const auto it = object->find(name);
    if (it != object->end()) return it->is_null() ? nullptr : &*it;
  }
  return nullptr;
}

Fields Fields::inside(const char* name, const Json* defaults) const {
  const Json* value = find(name);
  if (value == nullptr) missing(name);
  if (!value->is_object()) refuse(name, "an object");
  return {*value, cat(where_, ": ", name), defaults};
}

void Fields::refuse(const char* name, const std::string& wanted) const {
  throw_failure(cat(where_, ": ", name, " is ", shown(*find(name)), ", but must be ", wanted,
                    "; correct the file or fetch it again"));
}

void Fields::missing(const char* name) const {
  throw_failure(cat(where_, ": ", name, " is missing; fetch the file again"));
}

std::int64_t Fields::integer(const char* name, std::int64_t least, std::int64_t most) const {
  const Json* value = find(name);
  if (value == nullptr) missing(name);
  const std::string wanted = cat("an integer from ", least, " to ", most);
  if (!value->is_number_integer()) refuse(name, wanted);
  if (value->is_number_unsigned() &&
      value->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    refuse(name, wanted);
  }
  const auto number = value->get<std::int64_t>();
  if (number < least || number > most) refuse(name, wanted);
  return number;
}

std::int64_t Fields::integer(const char* name, std::int64_t least, std::int64_t most,
                             std::int64_t otherwise) const {
  return has(name) ? integer(name, least, most) : otherwise;
}

double Fields::positive(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) missing(name);
  if (!is_positive(*value)) refuse(name, "a number above 0");
  return value->get<double>();
}

double Fields::positive(const char* name, double otherwise) const {
  return has(name) ? positive(name) : otherwise;
}

bool Fields::boolean(const char* name, bool otherwise) const {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::string Fields::text(const char* name, const std::string& otherwise) const {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(name, "a string");
  return value->get<std::string>();
}

std::vector<double> Fields::positives(const char* name, std::size_t count) const {
  const Json* value = find(name);
  if (value == nullptr) missing(name);
  std::vector<double> numbers;
  for (const Json& one : value->is_array() ? *value : Json::array()) {
    if (is_positive(one)) numbers.push_back(one.get<double>());
  }
  if (numbers.size() != count || value->size() != count) {
    refuse(name, cat("a list of ", count, " numbers above 0"));
  }
  return numbers;
}

}  // namespace coppice

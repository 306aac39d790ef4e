#include "server/api/fields.h"

#include <utility>

#include "base/error.h"
#include "server/api/api_error.h"
#include "server/talk/json_values.h"

namespace coppice::server {
namespace {

template <typename Number>
ApiError out_of_range(const std::string& path, Number value, Number least, Number most) {
  using Limits = std::numeric_limits<Number>;
  if (most == Limits::max()) return bad_field(path, cat(value, " is below ", least));
  if (least == Limits::lowest()) return bad_field(path, cat(value, " is above ", most));
  return bad_field(path, cat(value, " is not between ", least, " and ", most));
}

}  // namespace

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

const Json* Fields::find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(std::string_view name) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw bad_field(path(name), "give true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw bad_field(path(name), "give a string");
  return value->get<std::string>();
}

std::optional<double> Fields::number(std::string_view name, double least, double most) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) throw bad_field(path(name), "give a number");
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) throw out_of_range(path(name), number, least, most);
  return number;
}

std::optional<std::int64_t> Fields::integer(std::string_view name, std::int64_t least,
                                            std::int64_t most) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  std::int64_t whole = 0;
  if (value->is_number_unsigned()) {
    const auto number = value->get<std::uint64_t>();
    if (!std::in_range<std::int64_t>(number)) {
      throw bad_field(path(name), cat(number, " is above ", most));
    }
    whole = static_cast<std::int64_t>(number);
  } else if (value->is_number_integer()) {
    whole = value->get<std::int64_t>();
  } else if (is_whole_float(*value)) {
    whole = static_cast<std::int64_t>(value->get<double>());
  } else {
    throw bad_field(path(name), "give a whole number");
  }
  if (whole < least || whole > most) throw out_of_range(path(name), whole, least, most);
  return whole;
}

const Json* Fields::object(std::string_view name) {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_object()) throw bad_field(path(name), "give an object");
  return value;
}

const Json* Fields::list(std::string_view name) {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_array()) throw bad_field(path(name), "give a list");
  return value;
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void Fields::refuse_others() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.contains(name)) continue;
    throw ApiError(400, cat("Unrecognized request argument supplied: ", printable(where_ + name)),
                   where_ + name, "unknown_parameter");
  }
}

}  // namespace coppice::server

#include "server/talk/request_json.h"

#include <algorithm>

#include "server/talk/json_values.h"

namespace coppice::server {
namespace {

std::string joined(std::initializer_list<std::string_view> words) {
  std::string all;
  for (const std::string_view word : words) {
    if (!all.empty()) all += ", ";
    all += word;
  }
  return all;
}

}  // namespace

void Place::refuse(const std::string& message) const {
  throw BadRequest(path_.empty() ? message : path_ + ": " + message, path_);
}

bool Place::has(const char* name) const {
  const auto found = value_->find(name);
  return found != value_->end() && !found->is_null();
}

Place Place::at(const char* name) const {
  const std::string path = path_.empty() ? name : path_ + "." + name;
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) throw BadRequest(path + ": required", path);
  return Place(*found, path);
}

Place Place::at(std::size_t item) const {
  return Place((*value_)[item], path_ + "." + std::to_string(item));
}

const Place& Place::require_object() const {
  if (!value_->is_object()) refuse("must be an object");
  return *this;
}

const Place& Place::require_list() const {
  if (!value_->is_array()) refuse("must be a list");
  return *this;
}

const std::string& Place::text() const {
  if (!value_->is_string()) refuse("must be a string");
  return value_->get_ref<const std::string&>();
}

bool Place::boolean() const {
  if (!value_->is_boolean()) refuse("must be true or false");
  return value_->get<bool>();
}

std::int64_t Place::integer(std::int64_t least) const {
  const bool is_large = value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX;
  const bool is_whole = value_->is_number_integer() || is_whole_float(*value_);
  if (!is_whole || is_large) refuse("must be an integer");
  const auto number = value_->get<std::int64_t>();
  if (number < least) refuse("must be at least " + std::to_string(least));
  return number;
}

const std::string& Place::word(std::initializer_list<std::string_view> words) const {
  const std::string& value = text();
  if (std::ranges::find(words, value) == words.end()) refuse("must be one of " + joined(words));
  return value;
}

void Place::require_members(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : require_object().json().items()) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const std::string path = path_.empty() ? name : path_ + "." + name;
    throw BadRequest(path + ": extra inputs are not permitted; leave it out", path);
  }
}

void copy_members(const Json& from, Json& to, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto found = from.find(name); found != from.end() && !found->is_null()) {
      to[name] = *found;
    }
  }
}

std::string renamed_id(const Json& chat, std::string_view prefix) {
  const std::string id = chat.value("id", "");
  const std::size_t dash = id.find_first_of("-_");
  return std::string(prefix) + (dash == std::string::npos ? id : id.substr(dash + 1));
}

Json chunk_of_completion(const Json& completion) {
  Json chunk = completion;
  for (Json& choice : chunk["choices"]) {
    Json& message = choice["message"];
    if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
      for (std::size_t i = 0; i < message["tool_calls"].size(); ++i) {
        message["tool_calls"][i]["index"] = i;
      }
    }
    choice["delta"] = std::move(message);
    choice.erase("message");
  }
  return chunk;
}

}  // namespace coppice::server

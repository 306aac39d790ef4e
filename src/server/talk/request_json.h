// Reading requests: JSON with the field's name in each complaint.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace coppice::server {

using Json = nlohmann::ordered_json;

/// A request that cannot be answered: HTTP status 400. `param` is the field's path, such as
/// "messages.0.content"; empty if the request as a whole is meant.
struct BadRequest : std::runtime_error {
  BadRequest(const std::string& message, std::string path)
      : std::runtime_error(message), param(std::move(path)) {}
  std::string param;
};

/// A value in a request, and where it stands.
class Place {
 public:
  explicit Place(const Json& value, std::string path = {})
      : value_(&value), path_(std::move(path)) {}

  const Json& json() const { return *value_; }
  [[noreturn]] void refuse(const std::string& message) const;

  /// Whether an object has the member, and it is not null.
  bool has(const char* name) const;
  Place at(const char* name) const;  ///< refuses a missing or null member
  Place at(std::size_t item) const;
  std::size_t size() const { return value_->size(); }

  // Each refuses a value of another type.
  const Place& require_object() const;
  const Place& require_list() const;
  const std::string& text() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least) const;
  /// One of some words.
  const std::string& word(std::initializer_list<std::string_view> words) const;
  /// Refuses members of other names.
  void require_members(std::initializer_list<std::string_view> names) const;

  bool is_text() const { return value_->is_string(); }

 private:
  const Json* value_;
  std::string path_;
};

/// Copies members that two forms have in common, as they are.
void copy_members(const Json& from, Json& to, std::initializer_list<const char*> names);

/// An id of another form from the same answer: "chatcmpl-1f" becomes "msg_1f".
std::string renamed_id(const Json& chat, std::string_view prefix);

/// A server-sent event. Its data has the name as "type", too.
struct NamedEvent {
  std::string name;
  Json data;
};

/// A whole chat completion as the only chunk of a stream, so that both are translated by one code.
Json chunk_of_completion(const Json& completion);

}  // namespace coppice::server

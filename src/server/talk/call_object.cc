#include "server/talk/call_object.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace coppice::server {
namespace {

// Names and ids are short.
constexpr std::size_t longest_text = 4096;

bool text_of(const std::string& json, std::string& text) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_string()) return false;
  text = value.get<std::string>();
  return !text.empty();
}

}  // namespace

CallObject::Status CallObject::feed(char c, bool takes_others) {
  const bool was_in_key = json_.in_key() && json_.depth() == 1;
  const bool begins_value = json_.depth() == 1 && json_.expects_value();
  if (!json_.feed(c) || (json_.depth() == 0 && !json_.done())) return Status::failed;
  if (was_in_key || (json_.in_key() && json_.depth() == 1)) {
    key_.push_back(c);
    if (key_.size() > longest_text) return Status::failed;
    if (!json_.in_key() && !end_key(takes_others)) return Status::failed;
    return Status::more;
  }
  if (begins_value && !json_.expects_value()) in_value_ = true;
  if (in_value_) {
    if (member_ == Member::arguments) {
      if (begins_value && c != '{') return Status::failed;
      has_arguments_ = true;
      arguments_.push_back(c);
    } else if (member_ != Member::other) {
      if (begins_value && c != '"') return Status::failed;
      value_.push_back(c);
      if (value_.size() > longest_text) return Status::failed;
    }
    if ((json_.depth() == 1 && json_.expects_comma()) || json_.done()) {
      in_value_ = false;
      if (!end_value()) return Status::failed;
    }
  }
  if (!json_.done()) return Status::more;
  return is_call() ? Status::done : Status::failed;
}

bool CallObject::end_key(bool takes_others) {
  const bool needs_name = !takes_others && name_.empty();
  std::string key;
  if (!text_of(std::exchange(key_, {}), key)) key.clear();
  if (key == "name") {
    member_ = Member::name;
    return name_.empty();
  }
  if (needs_name) return false;
  if (key == "arguments" || key == "parameters") {
    member_ = Member::arguments;
    return !has_arguments_;
  }
  if (key == "id") {
    member_ = Member::id;
    return !std::exchange(has_id_, true);
  }
  member_ = Member::other;
  return takes_others || key == "type";
}

bool CallObject::end_value() {
  switch (std::exchange(member_, Member::none)) {
    case Member::name:
      return text_of(std::exchange(value_, {}), name_);
    case Member::id:
      return text_of(std::exchange(value_, {}), id_);
    default:
      return true;
  }
}

std::string CallObject::take_arguments() { return std::exchange(arguments_, {}); }

}  // namespace coppice::server

#include "models/tokenizer/json_place.h"

#include "base/error.h"
#include "base/json_file.h"

namespace coppice::tokenization {

JsonPlace JsonPlace::child(const nlohmann::json& value, const std::string& step) const {
  JsonPlace place = *this;
  place.value_ = &value;
  if (!place.path_.empty() && step.front() != '[') place.path_ += '.';
  place.path_ += step;
  return place;
}

JsonPlace JsonPlace::at(const char* key) const {
  if (!value_->is_object()) wrong_type("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) refuse(cat("has no ", quote(key), "; fetch the file again"));
  return child(*found, key);
}

JsonPlace JsonPlace::at(std::size_t index) const {
  if (!value_->is_array()) wrong_type("a list");
  if (index >= value_->size()) {
    refuse(cat("is a list of ", value_->size(), ", too short; fetch the file again"));
  }
  return child(value_->at(index), cat("[", index, "]"));
}

std::optional<JsonPlace> JsonPlace::find(const char* key) const {
  if (!value_->is_object()) wrong_type("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return child(*found, key);
}

std::size_t JsonPlace::size() const {
  if (!value_->is_array()) wrong_type("a list");
  return value_->size();
}

const std::string& JsonPlace::text() const {
  if (!value_->is_string()) wrong_type("a text");
  return value_->get_ref<const std::string&>();
}

bool JsonPlace::flag() const {
  if (!value_->is_boolean()) wrong_type("true or false");
  return value_->get<bool>();
}

bool JsonPlace::flag(const char* key, bool otherwise) const {
  const auto place = find(key);
  return place ? place->flag() : otherwise;
}

double JsonPlace::number() const {
  if (!value_->is_number()) wrong_type("a number");
  return value_->get<double>();
}

std::int64_t JsonPlace::integer(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                        : value_->is_number_integer() && value_->get<std::int64_t>() <= most;
  const std::int64_t value = fits ? value_->get<std::int64_t>() : 0;
  if (!fits || value < least) {
    refuse(cat("is ", shown(*value_), ", not a whole number from ", least, " to ", most,
               "; fetch the file again"));
  }
  return value;
}

void JsonPlace::wrong_type(const char* wanted) const {
  refuse(cat("is ", shown(*value_), ", not ", wanted, "; fetch the file again"));
}

void JsonPlace::refuse(const std::string& what) const {
  throw_failure(cat(*file_, ": ", path_.empty() ? "" : path_ + ": ", what));
}

void JsonPlace::refuse_type(const char* what) const {
  refuse(cat("the ", what, " ", quote(type()),
             " is unknown to coppice; give prompts as token ids with --prompt-ids"));
}

}  // namespace coppice::tokenization

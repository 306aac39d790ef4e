#include "chat/arguments.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::chat {

Bound::Bound(const Arguments& given, std::string_view what,
             std::initializer_list<std::string_view> names, std::size_t required)
    : what_(what), names_(names), values_(names.size(), nullptr) {
  const std::size_t most = names_.size(), all = given.positional.size() + given.named.size();
  if (all > most || all < required) {
    throw TemplateError(cat(what, " takes ",
                            required == most ? cat(most) : cat(required, " to ", most),
                            " arguments, not ", all));
  }
  for (std::size_t i = 0; i < given.positional.size(); ++i) values_[i] = &given.positional[i];
  for (const auto& [key, value] : given.named) {
    const auto found = std::find(names_.begin(), names_.end(), key.view());
    if (found == names_.end() || key.empty()) {
      throw TemplateError(cat(what, " has no argument ", quote(key.view())));
    }
    const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place != nullptr) throw TemplateError(cat(what, " got ", quote(*found), " twice"));
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) throw TemplateError(cat(what, " needs ", name(i)));
  }
}

std::string Bound::name(std::size_t index) const {
  return names_[index].empty() ? cat("argument ", index + 1) : quote(names_[index]);
}

const Value* Bound::unless_none(std::size_t index) const {
  return values_[index] == nullptr || values_[index]->is_none() ? nullptr : values_[index];
}

bool Bound::flag(std::size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : is_true(*values_[index]);
}

const Text& Bound::text(std::size_t index) const {
  return text_of(*values_[index], cat(what_, ": ", name(index)));
}
Text Bound::text(std::size_t index, const char* fallback) const {
  return values_[index] == nullptr ? Text(fallback) : text(index);
}

std::int64_t Bound::integer(std::size_t index) const {
  return int_of(*values_[index], cat(what_, ": ", name(index)));
}
std::int64_t Bound::count(std::size_t index) const {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  return std::clamp(integer(index), -most, most);
}
std::int64_t Bound::count(std::size_t index, std::int64_t fallback) const {
  return values_[index] == nullptr ? fallback : count(index);
}

std::int64_t Bound::small(std::size_t index, std::int64_t fallback) const {
  const std::int64_t value = count(index, fallback);
  if (value != static_cast<std::int32_t>(value)) {
    throw TemplateError(cat(what_, ": ", name(index), " is out of range"));
  }
  return value;
}

}  // namespace coppice::chat

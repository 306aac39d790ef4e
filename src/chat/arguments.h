// The arguments of a call, matched with the parameters of what is called.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "chat/value.h"

namespace coppice::chat {

/// Every filter, test, method and function takes its arguments through this, so that whatever a
/// template passes is either right or a TemplateError that names the argument.
class Bound {
 public:
  /// Matches by position and by name, as Python does: throws for too many or too few, and for a
  /// name that is unknown or given twice. `names` without a word: by position only. The first
  /// `required` must be given. Lives no longer than `given`.
  Bound(const Arguments& given, std::string_view what,
        std::initializer_list<std::string_view> names = {}, std::size_t required = 0);

  /// Null: not given.
  const Value* get(std::size_t index) const { return values_[index]; }
  /// Null: not given, or none.
  const Value* unless_none(std::size_t index) const;
  /// One that is required.
  const Value& operator[](std::size_t index) const { return *values_[index]; }

  bool flag(std::size_t index, bool fallback = false) const;
  const Text& text(std::size_t index) const;
  Text text(std::size_t index, const char* fallback) const;
  /// Any whole number.
  std::int64_t integer(std::size_t index) const;
  /// One that counts characters, items or digits. Beyond 2^40 all mean the same: such numbers
  /// become 2^40, so that sums and products with lengths stay in range.
  std::int64_t count(std::size_t index) const;
  std::int64_t count(std::size_t index, std::int64_t fallback) const;
  /// One that Python stores in 32 bits: throws beyond them.
  std::int64_t small(std::size_t index, std::int64_t fallback) const;

 private:
  std::string name(std::size_t index) const;

  std::string_view what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace coppice::chat

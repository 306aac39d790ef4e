// JSON as it is written: the parts that languages of JSON texts are built of.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "constraints/language.h"

namespace coppice::constraints {

class JsonText {
 public:
  JsonText(Expressions& expressions, JsonSpace space);

  /// Any value.
  Expr value();
  /// A string of so many characters, however they are spelt.
  Expr string(std::int32_t least = 0, std::int32_t most = no_limit);
  /// A string of these characters, which are spelt as json_spelt() does.
  Expr quoted(Expr characters);
  /// Characters of a string in their one spelling, so many.
  Expr characters(std::int32_t least = 0, std::int32_t most = no_limit);
  Expr number();
  Expr integer();  ///< as integers are written: no "-0", fraction or exponent
  /// A value that is given, white space apart. Objects keep their order.
  Expr literal(const nlohmann::ordered_json& value);

  /// An array of `first`, then of `rest`, between `least` and `most` in all. Items that nothing can
  /// be (`nothing`) end it.
  Expr array(std::span<const Expr> first, Expr rest, std::int32_t least, std::int32_t most);

  /// Key, colon and value. The key is quoted.
  Expr member(Expr key, Expr value);
  struct Member {
    Expr text;  ///< of member()
    bool required;
  };
  /// An object of members in this order, then any number of `more`, between `least` and `most` in
  /// all.
  Expr object(std::span<const Member> members, Expr more, std::int32_t least, std::int32_t most);

 private:
  Expr in_brackets(char open, Expr inside, char close);
  Expr digits(std::int32_t least = 1, std::int32_t most = no_limit);

  Expressions& x_;
  Expr space_, comma_, colon_;
  Expr any_ = nothing;
};

}  // namespace coppice::constraints

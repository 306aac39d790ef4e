// What a text may be, compiled from what a user writes; no vocabulary is asked.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "constraints/expressions.h"

namespace coppice::constraints {

/// Where a JSON schema leaves white space open.
enum class JsonSpace : std::uint8_t {
  some,    ///< everywhere that JSON allows it: up to two line ends, then up to 32 blanks, as
           ///< indented text has them. A model with nothing to say fills its answer with more.
  any,     ///< everywhere that JSON allows it, as much as the model likes
  python,  ///< one space behind each comma and colon, as Python's json.dumps() writes
  none,    ///< nowhere
};

/// A constraint as its user writes it.
struct ConstraintSource {
  enum class Kind : std::uint8_t {
    json,         ///< any JSON value
    json_schema,  ///< JSON that a schema of draft 2020-12 admits (or an older draft, if "$schema"
                  ///< says so). Properties come in the schema's order, additional ones behind them.
                  ///< README.md lists the keywords; others that assert something are refused by
                  ///< their place.
    regex,        ///< the whole text matches: what ECMA-262 writes without flags, except for back
                  ///< references, look-behind and word boundaries. `.` is no line end.
    choice,       ///< one of the texts
    grammar,      ///< what the rule `root` of a grammar in llama.cpp's GBNF syntax spells
  };
  Kind kind = Kind::json;
  std::vector<std::string> texts;     ///< choice: all; json: none; else one
  JsonSpace space = JsonSpace::some;  ///< of JSON

  auto operator<=>(const ConstraintSource&) const = default;
};

/// A set of texts over bytes. Compiled once, then shared between constraints and threads.
struct Language {
  ConstraintSource source;
  Expressions expressions;
  Expr start = nothing;
};

/// Throws Error(usage) for what is wrong or not supported, naming the place and the remedy, and
/// where no text but the empty one is admitted; Error(failure) beyond the bounds in limits.h.
std::shared_ptr<const Language> compile(ConstraintSource source);

/// "json", "json_schema", "regex", "choice" or "grammar".
const char* name_of(ConstraintSource::Kind kind);

}  // namespace coppice::constraints

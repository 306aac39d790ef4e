// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace coppice::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Argument {
  std::string name;  ///< empty: by position
  int stars = 0;     ///< 1: *list, 2: **mapping
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    constant,     ///< value
    name,         ///< text
    list,         ///< parts
    tuple,        ///< parts
    dict,         ///< parts: key, value, key, value
    attribute,    ///< parts[0].text
    item,         ///< parts[0][parts[1]]
    slice,        ///< parts[0][parts[1]:parts[2]:parts[3]], each of the last three may be null
    call,         ///< parts[0](arguments)
    filter,       ///< parts[0] | text(arguments); parts[0] null: of the enclosing block's text
    test,         ///< parts[0] is text(arguments)
    negate,       ///< -parts[0]
    plus,         ///< +parts[0]
    invert,       ///< not parts[0]
    both,         ///< parts[0] and parts[1]
    either,       ///< parts[0] or parts[1]
    binary,       ///< parts[0] text parts[1]
    comparison,   ///< parts[0] words[0] parts[1] words[1] parts[2] ...
    concat,       ///< parts[0] ~ parts[1] ~ ...
    conditional,  ///< parts[1] if parts[0] else parts[2], which may be null
  };
  Kind kind;
  int line = 0;
  int depth = 1;  ///< levels of the tree from here down
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> words = {};
  std::vector<Argument> arguments = {};
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  ///< null: none
};

struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Statement {
  enum class Kind {
    text,          ///< text
    output,        ///< value
    conditional,   ///< if value body else other
    loop,          ///< for target in value if condition body else other; recursive
    assign,        ///< target = value
    assign_block,  ///< target = body through value's filters, which may be null
    macro,         ///< macro
    call,          ///< value (a call) with macro as its caller
    filter,        ///< body through value's filters
    with,          ///< target = value pairs in `assignments`, then body in a scope
    scope,         ///< body in a scope (generation)
    break_loop,
    continue_loop,
  };
  Kind kind;
  int line = 0;
  Text text = {};
  ExpressionPtr target = {}, value = {}, condition = {};
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments = {};
  Block body = {}, other = {};
  bool recursive = false;
  Macro macro = {};
};

}  // namespace coppice::chat

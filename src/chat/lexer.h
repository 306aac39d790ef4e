// Template text to tokens, with Jinja's rules for white space around tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::chat {

struct Token {
  enum class Kind {
    text,  ///< outside tags
    variable_begin,
    variable_end,
    block_begin,
    block_end,
    name,
    integer,
    real,
    string,  ///< escapes resolved
    symbol,
    end,
  };
  Kind kind = Kind::end;
  std::string text;
  std::int64_t integer = 0;
  double real = 0.0;
  int line = 1;
};

/// The settings are those of transformers: trim_blocks and lstrip_blocks on, one newline at the
/// source's end dropped. Throws TemplateError with the line.
std::vector<Token> lex(std::string_view source);

}  // namespace coppice::chat

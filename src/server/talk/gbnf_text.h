// Parts of a GBNF grammar, as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice::server {

/// The text in GBNF's quotes.
std::string gbnf_literal(std::string_view text);
/// The token that was added to the vocabulary as `text`, or these characters in others.
std::string gbnf_token(std::string_view text);
/// Any characters among which `text` does not stand.
std::string gbnf_without(std::string_view text);
/// One of some expressions.
std::string gbnf_one_of(const std::vector<std::string>& all);

}  // namespace coppice::server

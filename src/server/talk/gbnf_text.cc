#include "server/talk/gbnf_text.h"

namespace coppice::server {

std::string gbnf_literal(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      all += '\\';
      all += c;
    } else if (byte < 0x20) {
      all += "\\x";
      all += digits[byte / 16];
      all += digits[byte % 16];
    } else {
      all += c;
    }
  }
  return all + "\"";
}

std::string gbnf_token(std::string_view text) { return "%token(" + gbnf_literal(text) + ")"; }

std::string gbnf_without(std::string_view text) { return "%not(.* " + gbnf_literal(text) + " .*)"; }

std::string gbnf_one_of(const std::vector<std::string>& all) {
  std::string joined;
  for (const std::string& one : all) joined += (joined.empty() ? "" : " | ") + one;
  return "(" + joined + ")";
}

}  // namespace coppice::server

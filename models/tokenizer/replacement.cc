#include "models/tokenizer/replacement.h"

#include "base/error.h"
#include "models/tokenizer/code_points.h"

namespace coppice::tokenization {

Pattern::Pattern(const JsonPlace& place) {
  if (const auto expression = place.find("Regex")) {
    regex.emplace(expression->text(), *expression);
    return;
  }
  const JsonPlace string = place.at("String");
  text = string.text();
  // A find() may compare all of it at every place of a text.
  if (text.size() > Regex::longest_pattern) {
    string.refuse(cat("a pattern of ", text.size(), " bytes; at most ", Regex::longest_pattern,
                      " are allowed; fetch the file again"));
  }
  if (text.empty()) regex.emplace(text);  // matches between characters, as an expression does
}

Replacement::Replacement(const JsonPlace& place)
    : pattern_(place.at("pattern")), content_(place.at("content").text()) {}

std::string Replacement::apply(std::string_view text, Allowance& allowance,
                               bool* takes_start) const {
  // What is written stands where the last character that it replaces stood.
  const auto note = [&](std::size_t begin, std::size_t end) {
    if (takes_start == nullptr) return;
    const bool one = end > 0 && code_point_bytes(text) == end;
    *takes_start = begin == 0 && end > 0 && (content_.empty() || !one);
  };
  if (!pattern_.regex) {
    note(0, text.starts_with(pattern_.text) ? pattern_.text.size() : 0);
    return replaced(text, pattern_.text, content_, [&] { allowance.write(content_.size()); });
  }
  if (text.empty()) return {};  // not even a pattern that matches nothing is looked for
  std::string out;
  std::size_t done = 0, begin = 0, end = 0;
  for (Regex::Matches matches(*pattern_.regex, text, allowance); matches.next(begin, end);
       done = end) {
    if (done == 0) note(begin, end);
    out += text.substr(done, begin - done);
    allowance.write(content_.size());
    out += content_;
  }
  out += text.substr(done);
  return out;
}

}  // namespace coppice::tokenization

#include "models/tokenizer/replacement.h"

#include "base/error.h"
#include "models/tokenizer/code_points.h"

namespace coppice::tokenization {

Pattern::Pattern(const JsonPlace& place) {
  if (const auto expression = place.find("Regex")) {
    regex.emplace(expression->text(), *expression);
    return;
  }
  const JsonPlace literal = place.at("String");
  text = literal.text();
  if (text.empty()) literal.refuse("an empty pattern; fetch the file again");
}

Replacement::Replacement(const JsonPlace& place)
    : pattern_(place.at("pattern")), content_(place.at("content").text()) {}

std::string Replacement::apply(std::string_view text) const {
  if (!pattern_.regex) return replaced(text, pattern_.text, content_);
  std::string out;
  std::size_t done = 0, begin = 0, end = 0;
  for (Regex::Matches matches(*pattern_.regex, text); matches.next(begin, end); done = end) {
    out += text.substr(done, begin - done);
    out += content_;
  }
  out += text.substr(done);
  return out;
}

bool Replacement::removes_start(std::string_view text) const {
  if (!content_.empty()) return false;
  if (!pattern_.regex) return text.starts_with(pattern_.text);
  std::size_t begin = 0, end = 0;
  return Regex::Matches(*pattern_.regex, text).next(begin, end) && begin == 0 && end > 0;
}

}  // namespace coppice::tokenization

#include "base/remedy.h"

namespace coppice {

std::string with_remedy(std::string_view message, std::string_view remedy) {
  std::string text(message);
  const bool ended =
      !text.empty() && std::string_view(".?!").find(text.back()) != std::string::npos;
  text += ended ? " " : "; ";
  const std::size_t first = text.size();
  text += remedy;
  if (ended && !remedy.empty() && text[first] >= 'a' && text[first] <= 'z') {
    text[first] = static_cast<char>(text[first] - 'a' + 'A');
  }
  return text;
}

}  // namespace coppice

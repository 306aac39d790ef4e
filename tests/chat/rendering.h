// Templates rendered over one set of names.
#pragma once

#include <string>
#include <vector>

#include "chat/text.h"

namespace coppice::testing {

/// Renders `source` over names that rendering.cc lists, all foreign. Throws what ChatTemplate does.
chat::Text render(const std::string& source);
/// The same over the names of a JSON object; `foreign`: marked so.
chat::Text render(const std::string& source, const std::string& context, bool foreign = true);

/// The text, what is foreign in brackets.
std::string in_brackets(const chat::Text& text);

struct Rendering {
  std::string source, text;
};
void expect_renders(const std::vector<Rendering>& cases);

}  // namespace coppice::testing

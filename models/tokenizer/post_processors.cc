#include "models/tokenizer/post_processors.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::tokenization {

void PostProcessors::read(const JsonPlace& place, TokenId pieces) {
  const std::string& type = place.type();
  if (type == "Sequence") {
    const JsonPlace members = place.at("processors");
    for (std::size_t i = 0; i < members.size(); ++i) read(members.at(i), pieces);
  } else if (type == "TemplateProcessing") {
    read_template(place, pieces);
  } else if (type != "ByteLevel") {
    place.refuse_type("post-processor");
  }
}

void PostProcessors::read_template(const JsonPlace& place, TokenId pieces) {
  constexpr std::size_t most_parts = 1024;
  const JsonPlace parts = place.at("single");
  const JsonPlace specials = place.at("special_tokens");
  std::vector<TokenId> made;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const JsonPlace part = parts.at(i);
    if (const auto sequence = part.find("Sequence")) {
      if (sequence->at("id").text() != "A") {
        sequence->refuse("a single text has one part, A; fetch the file again");
      }
      made.push_back(the_text);
      continue;
    }
    const JsonPlace special = part.at("SpecialToken").at("id");
    const JsonPlace ids = specials.at(special.text().c_str()).at("ids");
    for (std::size_t k = 0; k < ids.size() && made.size() <= most_parts; ++k) {
      made.push_back(static_cast<TokenId>(ids.at(k).integer(0, std::max(pieces - 1, 0))));
    }
  }
  // What the package makes of a second template depends on how many tokens the first one adds.
  if (!template_.empty()) place.refuse("a second template is unknown to coppice; merge the two");
  if (made.size() > most_parts || std::count(made.begin(), made.end(), the_text) != 1) {
    parts.refuse("does not hold the text once and a few tokens; fetch the file again");
  }
  template_ = std::move(made);
}

std::vector<TokenId> PostProcessors::apply(std::vector<TokenId> tokens) const {
  const auto text = std::find(template_.begin(), template_.end(), the_text);
  if (text == template_.end()) return tokens;
  tokens.insert(tokens.begin(), template_.begin(), text);
  tokens.insert(tokens.end(), text + 1, template_.end());
  return tokens;
}

}  // namespace coppice::tokenization

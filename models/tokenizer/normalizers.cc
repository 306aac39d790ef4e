#include "models/tokenizer/normalizers.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "models/tokenizer/base64.h"
#include "models/tokenizer/character_map.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/replacement.h"

namespace coppice::tokenization {
namespace {

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
}

/// NFC, NFD, NFKC, NFKD.
class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(int options)
      : options_(static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE)) {}
  void apply(NormalText& text, Allowance&) const override {
    if (is_ascii(text.text)) return;
    utf8proc_uint8_t* mapped = nullptr;
    const auto bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.text.data());
    const utf8proc_ssize_t length =
        utf8proc_map(bytes, static_cast<utf8proc_ssize_t>(text.text.size()), &mapped, options_);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
    if (length < 0) throw_failure(cat("the text cannot be normalized: ", utf8proc_errmsg(length)));
    text.text.assign(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
  }

 private:
  utf8proc_option_t options_;
};

class Lowercase : public Normalizer {
 public:
  void apply(NormalText& text, Allowance&) const override {
    std::string lower;
    lower.reserve(text.text.size());
    for (std::string_view rest = text.text; !rest.empty();) {
      const std::int32_t code = take_code_point(rest);
      append_utf8(utf8proc_tolower(code), lower);
      constexpr std::int32_t dotted_capital_i = 0x130, dot_above = 0x307;
      if (code == dotted_capital_i) append_utf8(dot_above, lower);  // the one that becomes two
    }
    text.text = std::move(lower);
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalText& text, Allowance&) const override {
    if (right_) text.text.resize(text.text.size() - trailing_space(text.text));
    const std::size_t cut = left_ && !text.continues ? leading_space(text.text) : 0;
    if (cut > 0) text.at_start = false;
    text.text.erase(0, cut);
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalText& text, Allowance&) const override {
    if (!text.text.empty() && !text.continues) text.text.insert(0, prefix_);
  }
  bool keeps_bytes() const override { return true; }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  explicit Replace(Replacement replacement) : replacement_(std::move(replacement)) {}
  void apply(NormalText& text, Allowance& allowance) const override {
    bool takes_start = false;
    text.text = replacement_.apply(text.text, allowance, &takes_start);
    if (takes_start) text.at_start = false;
  }
  bool keeps_bytes() const override { return replacement_.keeps_bytes(); }

 private:
  Replacement replacement_;
};

/// sentencepiece's character map, applied as the tokenizers library does: a short grapheme whose
/// beginning is in the map is replaced whole.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(CharacterMap map) : map_(std::move(map)) {}
  void apply(NormalText& text, Allowance& allowance) const override {
    std::string out;
    out.reserve(text.text.size());
    const auto append = [&](std::string_view part) {
      allowance.write(part.size());
      out += part;
    };
    for (std::string_view rest = text.text; !rest.empty();) {
      const std::string_view grapheme = rest.substr(0, grapheme_bytes(rest));
      rest.remove_prefix(grapheme.size());
      if (grapheme.size() < 6) {
        if (const char* normal = map_.find(grapheme)) {
          append(normal);
          continue;
        }
      }
      for (std::string_view left = grapheme; !left.empty();) {
        const std::string_view character = left.substr(0, code_point_bytes(left));
        left.remove_prefix(character.size());
        const char* normal = map_.find(character);
        append(normal != nullptr ? std::string_view(normal) : character);
      }
    }
    text.text = std::move(out);
  }

 private:
  static std::size_t grapheme_bytes(std::string_view text) {
    std::string_view rest = text;
    utf8proc_int32_t state = 0;
    std::int32_t before = take_code_point(rest);
    while (!rest.empty()) {
      std::string_view after = rest;
      const std::int32_t code = take_code_point(after);
      if (utf8proc_grapheme_break_stateful(before, code, &state)) break;
      before = code;
      rest = after;
    }
    return text.size() - rest.size();
  }
  CharacterMap map_;
};

CharacterMap read_map(const JsonPlace& place) {
  std::optional<std::string> bytes = from_base64(place.text());
  if (!bytes || !CharacterMap::is_sound(*bytes)) {
    place.refuse("the character map is damaged; fetch the file again");
  }
  return CharacterMap(std::move(*bytes));
}

}  // namespace

void normalize(const Normalizers& normalizers, NormalText& text, Allowance& allowance) {
  for (const auto& normalizer : normalizers) {
    normalizer->apply(text, allowance);
    allowance.write(text.text.size() + 1);
  }
}

void read_normalizer(const JsonPlace& place, Normalizers& out) {
  const std::string& type = place.type();
  if (type == "Sequence") {
    const JsonPlace members = place.at("normalizers");
    for (std::size_t i = 0; i < members.size(); ++i) read_normalizer(members.at(i), out);
  } else if (type == "NFC") {
    out.push_back(std::make_unique<UnicodeForm>(UTF8PROC_COMPOSE));
  } else if (type == "NFD") {
    out.push_back(std::make_unique<UnicodeForm>(UTF8PROC_DECOMPOSE));
  } else if (type == "NFKC") {
    out.push_back(std::make_unique<UnicodeForm>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT));
  } else if (type == "NFKD") {
    out.push_back(std::make_unique<UnicodeForm>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT));
  } else if (type == "Lowercase") {
    out.push_back(std::make_unique<Lowercase>());
  } else if (type == "Strip") {
    out.push_back(
        std::make_unique<Strip>(place.at("strip_left").flag(), place.at("strip_right").flag()));
  } else if (type == "Prepend") {
    const JsonPlace prefix = place.at("prepend");
    if (prefix.text().empty()) prefix.refuse("is empty; remove the Prepend");
    out.push_back(std::make_unique<Prepend>(prefix.text()));
  } else if (type == "Replace") {
    out.push_back(std::make_unique<Replace>(Replacement(place)));
  } else if (type == "Precompiled") {
    if (const auto map = place.find("precompiled_charsmap")) {
      out.push_back(std::make_unique<Precompiled>(read_map(*map)));
    }
  } else {
    place.refuse_type("normalizer");
  }
}

}  // namespace coppice::tokenization

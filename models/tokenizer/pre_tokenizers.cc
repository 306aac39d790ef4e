#include "models/tokenizer/pre_tokenizers.h"

#include <functional>
#include <optional>

#include "base/error.h"
#include "models/tokenizer/byte_level.h"
#include "models/tokenizer/code_points.h"
#include "models/tokenizer/replacement.h"

namespace coppice::tokenization {
namespace {

/// Cuts at the matches of a regular expression.
class ExpressionSplit : public PreTokenizer {
 public:
  ExpressionSplit(Regex regex, Delimiters rule, bool invert)
      : regex_(std::move(regex)), rule_(rule), invert_(invert) {}

  void apply(Words& words, Allowance& allowance) const override {
    std::vector<Word> out;
    out.reserve(words.text.size() / 4 + words.words.size());
    std::vector<Stretch> stretches;
    Regex::Matches matches(regex_, words.text, allowance);
    for (const Word& word : words.words) {
      matches.restart(words.of(word));
      stretches.clear();
      std::size_t done = 0, begin = 0, end = 0;
      const auto add = [&](std::size_t from, std::size_t to, bool match) {
        stretches.push_back({word.begin + from, word.begin + to, match != invert_});
      };
      for (; matches.next(begin, end); done = end) {
        if (done != begin) add(done, begin, false);
        add(begin, end, true);
      }
      if (done != word.end - word.begin) add(done, word.end - word.begin, false);
      append_words(word, stretches, rule_, out);
    }
    words.words = std::move(out);
  }
  bool drops_text() const override { return rule_ == Delimiters::removed; }

 private:
  Regex regex_;
  Delimiters rule_;
  bool invert_;
};

/// Cuts at the occurrences of a text.
class TextSplit : public PreTokenizer {
 public:
  TextSplit(std::string delimiter, Delimiters rule, bool invert)
      : delimiter_(std::move(delimiter)), rule_(rule), invert_(invert) {}

  void apply(Words& words, Allowance&) const override {
    std::vector<Word> out;
    std::vector<Stretch> stretches;
    for (const Word& word : words.words) {
      const std::string_view text = words.of(word);
      stretches.clear();
      const auto add = [&](std::size_t from, std::size_t to, bool match) {
        stretches.push_back({word.begin + from, word.begin + to, match != invert_});
      };
      std::size_t done = 0;
      for (std::size_t at; (at = text.find(delimiter_, done)) != text.npos;) {
        if (done != at) add(done, at, false);
        done = at + delimiter_.size();
        add(at, done, true);
      }
      if (done != text.size()) add(done, text.size(), false);
      append_words(word, stretches, rule_, out);
    }
    words.words = std::move(out);
  }
  bool drops_text() const override { return rule_ == Delimiters::removed; }

 private:
  std::string delimiter_;
  Delimiters rule_;
  bool invert_;
};

using Rewriter = std::function<void(const Word& word, std::string_view text, std::string& out)>;

/// Rewrites each word; what is written to `out` takes its place.
void rewrite(Words& words, const Rewriter& rewriter) {
  std::string text;
  text.reserve(2 * words.text.size());
  for (Word& word : words.words) {
    const std::size_t begin = text.size();
    rewriter(word, words.of(word), text);
    word.begin = begin;
    word.end = text.size();
  }
  words.text = std::move(text);
}

class PrefixSpace : public PreTokenizer {
 public:
  void apply(Words& words, Allowance&) const override {
    rewrite(words, [](const Word& word, std::string_view text, std::string& out) {
      if (!text.starts_with(' ') && !word.continues) out += ' ';
      out += text;
    });
  }
};

class SpellBytes : public PreTokenizer {
 public:
  void apply(Words& words, Allowance&) const override {
    rewrite(words, [](const Word&, std::string_view text, std::string& out) {
      out += ByteAlphabet::get().spelt(text);
    });
  }
};

enum class Prefix { always, first, never };

class MarkSpaces : public PreTokenizer {
 public:
  MarkSpaces(std::string mark, Prefix prefix) : mark_(std::move(mark)), prefix_(prefix) {}
  void apply(Words& words, Allowance&) const override {
    rewrite(words, [&](const Word& word, std::string_view text, std::string& out) {
      const bool marked = text.starts_with(' ') || text.starts_with(mark_);
      const bool wanted =
          prefix_ == Prefix::always ? !word.continues : prefix_ == Prefix::first && word.at_start;
      if (wanted && !marked) out += mark_;
      for (const char c : text) {
        if (c == ' ') {
          out += mark_;
        } else {
          out += c;
        }
      }
    });
  }

 private:
  std::string mark_;
  Prefix prefix_;
};

void read_metaspace(const JsonPlace& place, PreTokenizers& out) {
  const JsonPlace replacement = place.at("replacement");
  const std::string& mark = replacement.text();
  if (mark.empty() || code_point_bytes(mark) != mark.size()) {
    replacement.refuse("not one character; fetch the file again");
  }
  Prefix prefix = Prefix::always;
  const auto scheme = place.find("prepend_scheme");
  if (scheme) {
    const std::string& name = scheme->text();
    if (name != "always" && name != "first" && name != "never") {
      scheme->refuse(cat("the scheme ", quote(name), " is unknown; fetch the file again"));
    }
    prefix = name == "always" ? Prefix::always : name == "first" ? Prefix::first : Prefix::never;
  }
  if (!place.flag("add_prefix_space", true)) {
    if (scheme && prefix != Prefix::never) {
      scheme->refuse("contradicts add_prefix_space; correct one of them");
    }
    prefix = Prefix::never;
  }
  out.stages.push_back(std::make_unique<MarkSpaces>(mark, prefix));
  if (place.flag("split", true)) {
    out.stages.push_back(std::make_unique<TextSplit>(mark, Delimiters::merged_with_next, false));
  }
}

void read_pre_tokenizer(const JsonPlace& place, PreTokenizers& out) {
  const std::string& type = place.type();
  const auto add_split = [&](std::string_view expression, Delimiters rule, bool invert = false) {
    out.stages.push_back(std::make_unique<ExpressionSplit>(Regex(expression), rule, invert));
  };
  if (type == "Sequence") {
    const JsonPlace members = place.at("pretokenizers");
    for (std::size_t i = 0; i < members.size(); ++i) read_pre_tokenizer(members.at(i), out);
    return;
  }
  if (out.spells_bytes) {  // not the last stage after all
    out.stages.push_back(std::make_unique<SpellBytes>());
    out.spells_bytes = false;
  }
  if (type == "Split") {
    Pattern pattern(place.at("pattern"));
    const Delimiters rule = read_delimiters(place.at("behavior"));
    const bool invert = place.flag("invert", false);
    if (pattern.regex) {
      out.stages.push_back(
          std::make_unique<ExpressionSplit>(std::move(*pattern.regex), rule, invert));
    } else {
      out.stages.push_back(std::make_unique<TextSplit>(std::move(pattern.text), rule, invert));
    }
  } else if (type == "ByteLevel") {
    if (place.flag("add_prefix_space", true)) {
      out.stages.push_back(std::make_unique<PrefixSpace>());
    }
    if (place.flag("use_regex", true)) {
      add_split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                Delimiters::isolated);
    }
    out.spells_bytes = true;
  } else if (type == "Metaspace") {
    read_metaspace(place, out);
  } else if (type == "Digits") {
    add_split(R"(\p{N})", place.flag("individual_digits", false) ? Delimiters::isolated
                                                                 : Delimiters::contiguous);
  } else if (type == "Punctuation") {
    const auto behavior = place.find("behavior");
    // The package has the punctuation of Unicode 8. What came later lies in these ranges, where
    // nothing older does; two characters have left since.
    add_split(R"([!-/:-@\[-`{-~\x{166D}\x{111C9}[\p{P}&&[^\x{61C}-\x{61D}\x{971}-\x{AEF})"
              R"(\x{AF1}-\x{DF3}\x{1B61}-\x{1BFB}\x{2E43}-\x{3000}\x{10B9D}-\x{11046})"
              R"(\x{112AA}-\x{114C5}\x{11644}-\x{1173B}\x{1173F}-\x{1246F})"
              R"(\x{12475}-\x{16A6D}\x{16B45}-\x{1BC9E}\x{1DA8C}-\x{10FFFF}]]])",
              behavior ? read_delimiters(*behavior) : Delimiters::isolated);
  } else if (type == "Whitespace") {
    add_split(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|)"
              R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)",
              Delimiters::removed, true);
  } else if (type == "WhitespaceSplit") {
    add_split(R"(\s)", Delimiters::removed);
  } else {
    place.refuse_type("pre-tokenizer");
  }
}

}  // namespace

PreTokenizers read_pre_tokenizers(const JsonPlace& place) {
  PreTokenizers out;
  read_pre_tokenizer(place, out);
  return out;
}

}  // namespace coppice::tokenization

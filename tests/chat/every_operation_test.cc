// Every filter, test, method and function of templates, with words of every kind: each renders or
// says in one line why not, and what came in with a conversation stays marked.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "chat/chat_template.h"
#include "chat/interpreter.h"
#include "chat/json.h"
#include "chat/rendering.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

// The conversation's letters are Greek, the templates' own are ASCII: so every other byte of a
// result must be foreign. Keys are Greek, or names of parameters.
constexpr const char* conversation = R"json({
  "u": "αβ γδ.Ω\nς\tσ", "one": "λ", "l": ["α", "βγ", "δ α"], "n": [["α", 1], ["β", 2]],
  "d": {"κλειδί": "τιμή", "ω": {"α": "β"}},
  "names": {"width": "ε", "fillchar": "ζ", "sep": "η", "separators": ["θ", "ι"], "indent": "κ",
            "end": "λ", "format": "%Y μ", "d": "ν", "default_value": "ξ", "default": "ο",
            "fill_with": "π", "attribute": "ρ", "old": "α", "new": "σ", "chars": "α",
            "start": "τ", "message": "υ", "by": "φ", "name": "χ"}})json";

// What operations are given.
const std::vector<std::string> values = {"u",
                                         "one",
                                         "l",
                                         "n",
                                         "d",
                                         "'ab c'",
                                         "''",
                                         "7",
                                         "-1",
                                         "0",
                                         "2.5",
                                         "10**18",
                                         "9223372036854775807",
                                         "-9223372036854775807",
                                         "1e308 * 10",
                                         "true",
                                         "none",
                                         "missing",
                                         "[]",
                                         "('%s', u)",
                                         "{}",
                                         "range(3)",
                                         "l|map('upper')",
                                         "namespace(a=u)",
                                         "joiner"};

const std::vector<std::string> parameters = {
    "width",      "first",        "blank",     "length",    "killwords",      "end",
    "leeway",     "default",      "base",      "precision", "method",         "indent",
    "separators", "ensure_ascii", "sort_keys", "boolean",   "default_value",  "old",
    "new",        "count",        "d",         "attribute", "case_sensitive", "reverse",
    "by",         "linecount",    "slices",    "fill_with", "start",          "sep",
    "maxsplit",   "keepends",     "tabsize",   "chars",     "format",         "message",
    "name"};

// An operation on a value, with words in brackets.
struct Call {
  std::string value, words;
};
std::vector<Call> calls_of_every_kind() {
  std::vector<std::string> lists = {"",
                                    "**names",
                                    "**d",
                                    "*l",
                                    "*u",
                                    "u, u",
                                    "u, one, 2",
                                    "3, one",
                                    "9, one",
                                    "1000000, leeway=-2000000",
                                    "2, true, one, -1",
                                    "-1, -1, -1",
                                    "1, 2, 3, 4, 5, 6",
                                    "'upper'",
                                    "'join'",
                                    "'join', one",
                                    "'%s %s', u",
                                    "attribute=0",
                                    "default=u",
                                    "attribute=1, default=u",
                                    "'a', a=1",
                                    "a=1, **{'a': 2}",
                                    "fill_with=2",
                                    "2, fill_with=one",
                                    "indent=one, separators=(one, u)",
                                    "indent=2, ensure_ascii=true, sort_keys=true"};
  for (const std::string& value : values) lists.push_back(value);
  std::vector<Call> all;
  for (const std::string& value : values) {
    for (const std::string& words : lists) all.push_back({value, words});
  }
  for (const char* value : {"u", "l", "d", "7"}) {
    for (const std::string& name : parameters) {
      for (const char* word : {"=one", "=-1"}) all.push_back({value, name + word});
    }
  }
  if (sanitized) {  // a part of them, of each kind
    std::vector<Call> some;
    for (std::size_t i = 0; i < all.size(); i += 4) some.push_back(all[i]);
    return some;
  }
  return all;
}

template <typename Callee>
std::vector<std::string_view> names_of(const chat::Table<Callee>& table) {
  std::vector<std::string_view> names;
  for (const auto& [name, callee] : table) names.push_back(name);
  return names;
}

// Shown in every way in which it can be.
std::string shown(const std::string& expression, const std::string& words = "one") {
  return "{% set r = " + expression +
         " %}{{ r }}{{ r|string }}{{ [r] }}{{ r|list if r is iterable }}"
         "{% if r.next is defined %}{{ r.next() }}"
         "{% elif r is callable and r is defined %}{{ r(" +
         words + ") }}{{ r(" + words + ") }}{% endif %}";
}

struct Tally {
  int rendered = 0, refused = 0;
  bool operator()(const std::string& source) {
    try {
      static const chat::Value context = chat::parse_json(conversation, "context", true);
      const chat::Text text =
          chat::ChatTemplate::parse(source, "template").render(context, 1767355200);
      EXPECT_TRUE(is_valid_utf8(text.view())) << source;
      for (const chat::Segment& part : text.segments()) {
        if (part.foreign) continue;
        const bool ascii = std::all_of(part.text.begin(), part.text.end(),
                                       [](char c) { return static_cast<unsigned char>(c) < 0x80; });
        EXPECT_TRUE(ascii) << source << " lost the mark of " << part.text;
        if (!ascii) return false;
      }
      ++rendered;
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << source;
      ++refused;
      return false;
    }
  }
};

TEST(EveryOperation, FiltersRenderOrRefuse) {
  const auto all = calls_of_every_kind();
  std::vector<std::string_view> names = names_of(chat::text_filters());
  for (const std::string_view name : names_of(chat::sequence_filters())) names.push_back(name);
  for (const std::string_view name : names) {
    Tally tally;
    for (const auto& [value, words] : all) {
      tally(shown("(" + value + ")|" + std::string(name) + "(" + words + ")"));
    }
    EXPECT_GT(tally.rendered, 0) << name;
    EXPECT_GT(tally.refused, 0) << name;
  }
}

TEST(EveryOperation, TestsRenderOrRefuse) {
  const auto all = calls_of_every_kind();
  for (const std::string_view name : names_of(chat::tests())) {
    const bool word = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == name.npos;
    Tally tally;
    for (const auto& [value, words] : all) {
      const std::string of = std::string(name);
      tally("{{ " +
            (word ? "(" + value + ") is " + of + "(" + words + ")"
                  : "[" + value + "]|select('" + of + "', " + (words.empty() ? "1" : words) +
                        ")|list") +
            " }}");
    }
    EXPECT_GT(tally.rendered, 0) << name;
  }
}

TEST(EveryOperation, MethodsRenderOrRefuse) {
  const auto all = calls_of_every_kind();
  std::vector<std::string_view> names = names_of(chat::string_methods());
  for (const char* name : {"copy", "get", "items", "keys", "values", "count", "index", "append",
                           "update", "pop", "sort", "grouper", "list"}) {
    names.push_back(name);
  }
  for (const std::string_view name : names) {
    Tally tally;
    const bool of_text = name.size() > 5 || name == "strip" || name == "split";
    for (const auto& [value, words] : all) {
      // What has no such method refuses whatever it is given.
      if (of_text && value[0] != 'u' && value[0] != '\'' && !words.empty()) continue;
      tally(shown("(" + value + ")." + std::string(name) + "(" + words + ")"));
    }
    EXPECT_GT(tally.refused, 0) << name;
  }
}

TEST(EveryOperation, FunctionsRenderOrRefuse) {
  const auto all = calls_of_every_kind();
  for (const std::string_view name : names_of(chat::functions())) {
    Tally tally;
    for (const auto& [value, words] : all) {
      tally(shown(std::string(name) + "(" + words + (words.empty() ? "" : ", ") + value + ")", ""));
      if (value == values[0]) tally(shown(std::string(name) + "(" + words + ")", ""));
    }
    EXPECT_GT(tally.refused, 0) << name;
    EXPECT_GT(tally.rendered, name == "raise_exception" ? -1 : 0) << name;
  }
}

// Macros, blocks and operators, which are in no table.
TEST(EveryOperation, StatementsKeepMarks) {
  Tally tally;
  const std::vector<std::string> sources = {
      "{% macro m() %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ m(*l, **d) }}{{ m(**names) }}",
      "{% macro m(a=u) %}{{ a }}{% endmacro %}{{ m() }}{{ m(a=one) }}{{ m(**{'a': one}) }}",
      "{% macro m() %}{{ caller(**d) }}{% endmacro %}{% call m() %}{{ kwargs }}{% endcall %}",
      "{% for k, v in d.items() %}{{ k }}{{ loop.cycle(k, v) }}{{ loop.previtem }}{% endfor %}",
      "{% filter replace('a', one) %}banana{{ u }}{% endfilter %}",
      "{% set x %}{{ u }}{% endset %}{{ x }}{{ x[1:] }}{{ x[::-2] }}{{ x * 2 }}{{ x[-1] }}",
      "{{ dict(**d) }}{{ dict(d, a=one) }}{{ dict(n) }}{{ namespace(**names).end }}",
      "{{ u ~ 1 ~ l ~ d ~ none }}{{ '%s|%r|%5s|%-5.2s' % (u, u, one, u) }}{{ '%(ω)s' % d }}",
      "{{ '{} {!r} {:>9} {:λ^9}'.format(u, u, one, 1) }}",
      "{{ (one ~ '%5d %x %c') % (1, 255, 955) }}{{ '%c' % 955 }}{{ (u ~ '{:+,}').format(1000) }}",
      "{{ strftime_now(u) }}{{ strftime_now('%Y ' ~ one) }}",
      "{{ d|tojson(indent=one) }}{{ l|tojson(separators=(one, u)) }}{{ 'a'.ljust(5, one) }}",
      "{{ 'a'.center(9, one) }}{{ 'a'.rjust(9, one) }}{{ cycler(*l).next() }}",
      "{{ l|groupby(0)|list }}{{ n|groupby(0)|map(attribute='grouper')|join(one) }}"};
  for (const std::string& source : sources) {
    // Greek in the source is the template's own.
    std::string ascii = source;
    for (const auto& [greek, latin] : std::vector<std::pair<std::string, std::string>>{
             {"'%(ω)s' % d", "d.items()|list"}, {"{:λ^9}", "{:x^9}"}}) {
      if (const auto at = ascii.find(greek); at != ascii.npos) {
        ascii.replace(at, greek.size(), latin);
      }
    }
    EXPECT_TRUE(tally(ascii)) << ascii;
  }
}

// What is made of a conversation's bytes, and is ASCII by then.
TEST(EveryOperation, WhatBecomesAsciiStaysMarked) {
  const auto foreign = [](const std::string& source) {
    const chat::Text text = render(source, R"({"t": "a\tb\r\nc<", "c": 60})");
    std::string out;
    for (const chat::Segment& part : text.segments()) {
      if (part.foreign) out += part.text;
    }
    return out;
  };
  EXPECT_EQ(foreign("{{ t.expandtabs(4) }}"), "a   b\r\nc<");
  EXPECT_EQ(foreign("{{ t|indent(2) }}"), "a\tb\nc<");
  EXPECT_EQ(foreign("{{ t|tojson }}"), "a\\tb\\r\\nc<");
  EXPECT_EQ(foreign("{{ [t] }}"), "a\\tb\\r\\nc<");
  EXPECT_EQ(foreign("{{ t|e }}"), "a\tb\r\nc&lt;");
  EXPECT_EQ(foreign("{{ t|urlencode }}"), "a%09b%0D%0Ac%3C");
  EXPECT_EQ(foreign("{{ '%c|' % c }}"), "<");
  EXPECT_EQ(foreign("{{ (t[0] ~ '%d')|format(5) }}"), "a");
  EXPECT_EQ(foreign("{{ strftime_now(t) }}"), "a\tb\r\nc<");
}

}  // namespace
}  // namespace coppice::testing

// Who wrote which byte of a result: for everything that templates can call.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/rendering.h"
#include "reference/sanitized.h"

namespace coppice::testing {
namespace {

constexpr const char* foreign_names = R"({"u": "<u>", "w": "u v", "n": 3, "list": ["a", "b"],
    "d": {"k": "v"}, "fmt": "%s|%5d", "braces": "{:>4}", "time": "%Y!", "words": [{"k": "v"}]})";

std::string marks_of(const std::string& source) {
  return in_brackets(render(source, foreign_names));
}

struct Example {
  std::string source, text;
};
using Examples = std::map<std::string, Example>;

// One for each name of a table; a new one must come with its own.
template <typename Callee>
void expect_marks(const chat::Table<Callee>& table, const Examples& examples) {
  for (const auto& [name, callee] : table) {
    const auto found = examples.find(std::string(name));
    if (found == examples.end()) {
      ADD_FAILURE() << "nothing says which marks " << name << " leaves";
      continue;
    }
    const auto& [source, text] = found->second;
    EXPECT_NE(source.find(name), source.npos) << source;
    try {
      EXPECT_EQ(marks_of(source), text) << source;
    } catch (const Error& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
  }
}

TEST(ChatTemplateMarks, OfTextFilters) {
  expect_marks(
      chat::text_filters(),
      {{"abs", {"{{ n|abs }}", "3"}},
       {"attr", {"{{ ('a' ~ u)|attr('upper')() }}", "A[<U>]"}},
       {"capitalize", {"{{ ('a' ~ u)|capitalize }}", "A[<u>]"}},
       {"center", {"{{ u|center(5) }}.", " [<u>] ."}},
       {"d", {"{{ nope|d(u) }}{{ nope|d('a') }}", "[<u>]a"}},
       {"default", {"{{ u|default('a') }}{{ ''|default(u, true) }}", "[<u><u>]"}},
       {"e", {"{{ ('<' ~ u)|e }}", "&lt;[&lt;u&gt;]"}},
       {"escape", {"{{ ('<' ~ u)|escape }}", "&lt;[&lt;u&gt;]"}},
       {"float", {"{{ n|float }}{{ 'x'|float(u) }}", "3.0[<u>]"}},
       {"forceescape", {"{{ ('<' ~ u)|forceescape }}", "&lt;[&lt;u&gt;]"}},
       {"format", {"{{ fmt|format('a', 7) }}{{ '%s-%3s'|format(u, 'b') }}", "a[|    7<u>]-  b"}},
       {"indent",
        {"{{ ('a\\n' ~ u)|indent(1) }}{{ ('a\n' ~ u)|indent(u) }}", "a\n [<u>]a\n[<u><u>]"}},
       {"int", {"{{ n|int }}{{ 'x'|int(u) }}", "3[<u>]"}},
       {"lower", {"{{ ('A' ~ u)|lower }}", "a[<u>]"}},
       {"replace", {"{{ ('abc' ~ u)|replace('b', u)|replace('u', 'w') }}", "a[<]w[>]c[<]w[>]"}},
       {"round", {"{{ n|round }}", "3"}},
       {"safe", {"{{ ('<' ~ u)|safe }}{{ '<'|safe + u }}", "<[<u>]<[&lt;u&gt;]"}},
       {"string", {"{{ d|string }}{{ u|string }}", "{'[k]': '[v]'}[<u>]"}},
       {"title", {"{{ ('a ' ~ w)|title }}", "A [U V]"}},
       {"tojson",
        {"{{ d|tojson }}{{ {'a': 1, 'b': u}|tojson(indent=u, separators=(u, 'x')) }}",
         "{\"[k]\": \"[v]\"}{\n[<u>]\"a\"x1[<u>]\n[<u>]\"b\"x\"[<u>]\"\n}"}},
       {"trim", {"{{ (' ' ~ u ~ ' ')|trim }}{{ ('a' ~ u)|trim(u) }}", "[<u>]a"}},
       {"truncate", {"{{ ('abc' ~ u)|truncate(5, true, u, 0) }}", "ab[<u>]"}},
       {"upper", {"{{ ('a' ~ u)|upper }}", "A[<U>]"}},
       {"urlencode", {"{{ ('<' ~ u)|urlencode }}", "%3C[%3Cu%3E]"}},
       {"wordcount", {"{{ w|wordcount }}", "2"}}});
}

TEST(ChatTemplateMarks, OfSequenceFilters) {
  expect_marks(
      chat::sequence_filters(),
      {{"batch", {"{{ (list + ['c'])|batch(2, u)|list }}", "[['[a]', '[b]'], ['c', '[<u>]']]"}},
       {"count", {"{{ list|count }}", "2"}},
       {"dictsort", {"{{ {'a': u, u: 'b'}|dictsort }}", "[('[<u>]', 'b'), ('a', '[<u>]')]"}},
       {"first", {"{{ list|first }}{{ (u ~ 'a')|first }}", "[a<]"}},
       {"groupby", {"{{ words|groupby('k') }}", "[('[v]', [{'[k]': '[v]'}])]"}},
       {"items", {"{{ d|items|list }}", "[('[k]', '[v]')]"}},
       {"join", {"{{ ['a', u, 'b']|join('-') }}{{ ['a', 'b']|join(u) }}", "a-[<u>]-ba[<u>]b"}},
       {"last", {"{{ list|last }}{{ ('a' ~ u)|last }}", "[b>]"}},
       {"length", {"{{ u|length }}", "3"}},
       {"list", {"{{ ('a' ~ n ~ u)|list|join }}", "a3[<u>]"}},
       {"map",
        {"{{ ['a', u]|map('upper')|join }}{{ [{}]|map(attribute='x', default=u)|join }}",
         "A[<U><u>]"}},
       {"max", {"{{ ['a', u]|max }}{{ list|max }}", "a[b]"}},
       {"min", {"{{ ['a', u]|min }}{{ list|min }}", "[<u>a]"}},
       {"reject", {"{{ ['a', u]|reject('eq', 'a')|join }}", "[<u>]"}},
       {"rejectattr", {"{{ words|rejectattr('x')|list }}", "[{'[k]': '[v]'}]"}},
       {"reverse", {"{{ ('a' ~ u)|reverse }}", "[>u<]a"}},
       {"select", {"{{ ['a', u]|select|join }}", "a[<u>]"}},
       {"selectattr", {"{{ words|selectattr('k')|list }}", "[{'[k]': '[v]'}]"}},
       {"slice", {"{{ ['a', u, 'b']|slice(2, u)|list }}", "[['a', '[<u>]'], ['b', '[<u>]']]"}},
       {"sort", {"{{ ['a', u]|sort|join }}", "[<u>]a"}},
       {"sum", {"{{ [[u], ['a']]|sum(start=list) }}", "['[a]', '[b]', '[<u>]', 'a']"}},
       {"unique", {"{{ ['a', u, 'A']|unique|join }}", "a[<u>]"}}});
}

TEST(ChatTemplateMarks, OfMethods) {
  expect_marks(
      chat::string_methods(),
      {{"capitalize", {"{{ ('a' ~ u).capitalize() }}", "A[<u>]"}},
       {"casefold", {"{{ ('A' ~ u).casefold() }}", "a[<u>]"}},
       {"center", {"{{ 'a'.center(3, u[0]) }}{{ u.center(5) }}.", "[<]a[<] [<u>] ."}},
       {"count", {"{{ u.count('u') }}", "1"}},
       {"endswith", {"{{ u.endswith('>') }}", "True"}},
       {"expandtabs", {"{{ ('a\\t' ~ u).expandtabs(4) }}", "a   [<u>]"}},
       {"find", {"{{ u.find('u') }}", "1"}},
       {"format",
        {"{{ '{}-{x:_>4}'.format(u, x='a') }}{{ braces.format('a') }}{{ braces.format(1) }}",
         "[<u>]-___a[   ]a[   1]"}},
       {"index", {"{{ u.index('u') }}", "1"}},
       {"isalnum", {"{{ u.isalnum() }}", "False"}},
       {"isalpha", {"{{ u.isalpha() }}", "False"}},
       {"isdecimal", {"{{ u.isdecimal() }}", "False"}},
       {"isdigit", {"{{ u.isdigit() }}", "False"}},
       {"islower", {"{{ u.islower() }}", "True"}},
       {"isnumeric", {"{{ u.isnumeric() }}", "False"}},
       {"isspace", {"{{ u.isspace() }}", "False"}},
       {"isupper", {"{{ u.isupper() }}", "False"}},
       {"join", {"{{ u.join(['a', 'b']) }}{{ '-'.join(list) }}", "a[<u>]b[a]-[b]"}},
       {"ljust", {"{{ 'a'.ljust(3, u[0]) }}", "a[<<]"}},
       {"lower", {"{{ ('A' ~ u).lower() }}", "a[<u>]"}},
       {"lstrip", {"{{ (' ' ~ u).lstrip() }}{{ ('<a' ~ u).lstrip(u) }}", "[<u>]a[<u>]"}},
       {"partition", {"{{ ('a' ~ u ~ 'b').partition('<')|join('-') }}", "a-[<]-[u>]b"}},
       {"removeprefix", {"{{ ('a' ~ u).removeprefix('a') }}", "[<u>]"}},
       {"removesuffix", {"{{ ('a' ~ u).removesuffix(u) }}", "a"}},
       {"replace", {"{{ 'abc'.replace('b', u) }}{{ 'ab'.replace('', u, 1) }}", "a[<u>]c[<u>]ab"}},
       {"rfind", {"{{ u.rfind('u') }}", "1"}},
       {"rindex", {"{{ u.rindex('u') }}", "1"}},
       {"rjust", {"{{ 'a'.rjust(3, u[0]) }}", "[<<]a"}},
       {"rpartition", {"{{ ('a' ~ u ~ 'b').rpartition('<')|join('-') }}", "a-[<]-[u>]b"}},
       {"rsplit", {"{{ ('a ' ~ u ~ ' b').rsplit(' ', 1)|join('-') }}", "a [<u>]-b"}},
       {"rstrip", {"{{ (u ~ ' ').rstrip() }}", "[<u>]"}},
       {"split", {"{{ ('a ' ~ w ~ ' b').split()|join('-') }}", "a-[u]-[v]-b"}},
       {"splitlines", {"{{ ('a\\n' ~ u).splitlines()|join('-') }}", "a-[<u>]"}},
       {"startswith", {"{{ u.startswith('<') }}", "True"}},
       {"strip", {"{{ (' ' ~ u).strip() }}", "[<u>]"}},
       {"swapcase", {"{{ ('A' ~ u).swapcase() }}", "a[<U>]"}},
       {"title", {"{{ ('a ' ~ w).title() }}", "A [U V]"}},
       {"upper", {"{{ ('a' ~ u).upper() }}", "A[<U>]"}},
       {"zfill", {"{{ u.zfill(5) }}", "00[<u>]"}}});
  expect_marks(chat::dict_methods(),
               {{"copy", {"{{ d.copy() }}", "{'[k]': '[v]'}"}},
                {"get", {"{{ d.get('k') }}{{ d.get('x', u) }}", "[v<u>]"}},
                {"items", {"{{ d.items() }}", "dict_items([('[k]', '[v]')])"}},
                {"keys", {"{{ d.keys() }}", "dict_keys(['[k]'])"}},
                {"values", {"{{ d.values() }}", "dict_values(['[v]'])"}}});
  expect_marks(chat::list_methods(),
               {{"copy", {"{{ (list + ['a']).copy() }}", "['[a]', '[b]', 'a']"}},
                {"count", {"{{ list.count('a') }}", "1"}},
                {"index", {"{{ list.index('b') }}", "1"}}});
}

TEST(ChatTemplateMarks, OfFunctions) {
  expect_marks(
      chat::functions(),
      {{"cycler", {"{{ cycler(u, 'a').next() }}", "[<u>]"}},
       {"dict",
        {"{{ dict(**d) }}{{ dict(d, a=u) }}", "{'[k]': '[v]'}{'[k]': '[v]', 'a': '[<u>]'}"}},
       {"joiner", {"{% set j = joiner(u) %}{{ j() }}a{{ j() }}b", "a[<u>]b"}},
       {"namespace",
        {"{% set ns = namespace(**d) %}{{ ns.k }}{% set ns.k = 'a' ~ u %}{{ ns.k }}", "[v]a[<u>]"}},
       {"raise_exception", {"{% if false %}{{ raise_exception(u) }}{% endif %}", ""}},
       {"range", {"{{ range(n) }}", "range(0, 3)"}},
       {"strftime_now",
        {"{{ strftime_now(time) }}{{ strftime_now('%Y' ~ u ~ '%%') }}", "[2026!]2026[<u>]%"}}});
}

TEST(ChatTemplateMarks, OfMacrosAndMappings) {
  EXPECT_EQ(marks_of("{% macro m() %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ m(u, **d) }}"),
            "{'[k]': '[v]'}('[<u>]',)");
  EXPECT_EQ(marks_of("{% macro m(k) %}{{ k }}{% endmacro %}{{ m(**d) }}"), "[v]");
  EXPECT_EQ(marks_of("{{ {u: 1} }}{{ {u: 1}|tojson }}{{ {u: 1}|list|join }}"),
            "{'[<u>]': 1}{\"[<u>]\": 1}[<u>]");
  EXPECT_EQ(marks_of("{{ '%(k)s' % d }}{{ '%(k)s'|format(**d) }}{{ '{k}'.format(**d) }}"), "[vvv]");
  EXPECT_EQ(marks_of("{{ fmt % ('a', 7) }}{{ ('a\\n' ~ '' ~ w.replace(' ', '\\n'))|indent(1) }}"),
            "a[|    7]a\n [u]\n [v]");
  EXPECT_EQ(marks_of("{% for k, v in d|items %}{{ k }}{{ v }}{% endfor %}{{ d.k[::-1] }}"),
            "[kvv]");
}

// Letters that no template writes and that have two cases.
constexpr std::string_view capital = "\U0001E900", small = "\U0001E922";

bool has_own_letter(const chat::Text& text) {
  for (const chat::Segment& part : text.segments()) {
    if (!part.foreign && part.text.find(capital.substr(0, 3)) != part.text.npos) return true;
  }
  return false;
}

// Everything, called with foreign text in all places.
TEST(ChatTemplateMarks, AreNeverLost) {
  const std::string u = std::string(capital) + std::string(small);
  const std::string context = R"({"u": ")" + u + R"(", "c": ")" + std::string(capital) +
                              R"(", "t": "%Y )" + u + R"( %)" + u + R"( %5d", "l": [")" + u +
                              R"(", "a"], "m": {")" + u + R"(": ")" + u + R"("}})";
  ASSERT_TRUE(has_own_letter(render("{{ u }}", context, false)));
  std::vector<std::string> subjects = {"('a' ~ u)", "t", "l", "m", "'a %s'"};
  std::vector<std::string> shapes = {"", "(u, u)", "indent=u", "separators=(u, u)", "'a', end=u"};
  for (const std::string atom : {"u", "t", "l", "c"}) {
    for (const std::string before : {"", "9, ", "'a', ", "5, true, "}) {
      shapes.push_back(before + atom);
    }
  }
  for (const std::string name : {"attribute='x', default", "sep", "start", "k"}) {
    shapes.push_back(name + "=u");
  }
  shapes.push_back("**m");
  if (sanitized) subjects.resize(2);
  int rendered = 0;
  const auto check = [&](const std::string& call) {
    for (const std::string& shape : shapes) {
      const std::string value = call + "(" + shape + ")";
      for (const std::string& source : {"{{ " + value + " }}", "{{ " + value + "|list|tojson }}"}) {
        try {
          const chat::Text text = render(source, context);
          ++rendered;
          EXPECT_FALSE(has_own_letter(text)) << source << "\n" << text.bytes();
        } catch (const Error&) {
        }
      }
    }
  };
  const auto check_all = [&](const auto& table, const std::string& between) {
    for (const std::string& subject : subjects) {
      for (const auto& [name, callee] : table) check(subject + between + std::string(name));
    }
  };
  check_all(chat::text_filters(), "|");
  check_all(chat::sequence_filters(), "|");
  check_all(chat::string_methods(), ".");
  check_all(chat::dict_methods(), ".");
  check_all(chat::list_methods(), ".");
  for (const auto& [name, callee] : chat::functions()) check(std::string(name));
  for (const std::string operation : {"+", "~", "*", "%", "or", "and"}) {
    for (const std::string& a : subjects) {
      for (const std::string& b : subjects) check("(" + a + " " + operation + " " + b + ")|string");
    }
  }
  EXPECT_GT(rendered, 1000);
}

}  // namespace
}  // namespace coppice::testing

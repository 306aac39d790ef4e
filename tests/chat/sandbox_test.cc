// Who wrote which byte, what a template may not do, and what it says when it fails.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "chat/budget.h"
#include "chat/chat_template.h"
#include "chat/interpreter.h"
#include "chat/json.h"
#include "chat/parser.h"
#include "chat/python_text.h"
#include "chat/rendering.h"
#include "chat/unicode.h"

namespace coppice::testing {
namespace {

std::string marked(const std::string& source) {
  return in_brackets(render(source, R"({"u": "<u>", "list": ["a", "b"], "d": {"k": "v"}})"));
}

TEST(ChatTemplateMarks, SurviveEveryOperationOnText) {
  EXPECT_EQ(marked("<s>{{ u }}</s>"), "<s>[<u>]</s>");
  EXPECT_EQ(marked("{{ 'a' + u + 'b' }}{{ 'a' ~ u }}{{ u * 2 }}"), "a[<u>]ba[<u><u><u>]");
  EXPECT_EQ(marked("{{ ('x' + u + 'y')[1:3] }}{{ u[0] }}{{ ('x' + u)[::-1] }}"), "[<u<>u<]x");
  EXPECT_EQ(marked("{{ (' ' + u + ' ')|trim|upper|replace('U', 'w') }}"), "[<]w[>]");
  EXPECT_EQ(marked("{{ 'a-b'|replace('-', u) }}{{ 'x'.join(list) }}"), "a[<u>]b[a]x[b]");
  EXPECT_EQ(marked("{{ list|join(u) }}{{ list|join('-') }}"), "[a<u>ba]-[b]");
  EXPECT_EQ(marked("{{ d|tojson }}{{ d }}{{ u|e }}"), R"({"[k]": "[v]"}{'[k]': '[v]'}[&lt;u&gt;])");
  EXPECT_EQ(marked("{{ '%s!'|format(u) }}{{ '{}!'.format(u) }}{{ '%5s' % u }}"),
            "[<u>]![<u>]!  [<u>]");
  EXPECT_EQ(marked("{% for c in u %}{{ c }},{% endfor %}{{ u|list|first }}"), "[<],[u],[>],[<]");
  EXPECT_EQ(marked("{% set x %}({{ u }}){% endset %}{{ x|indent(1, true) }}"), " ([<u>])");
  EXPECT_EQ(marked("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(u) }}"), "([<u>])");
  EXPECT_EQ(marked("{{ ('k|' + u + '|k').split('|')|join(' ') }}"), "k [<u>] k");
  EXPECT_EQ(marked("{% set ns = namespace(t='a') %}{% set ns.t = ns.t + u %}{{ ns.t }}"), "a[<u>]");
  EXPECT_EQ(marked("{{ ('k' + u)|title }}{{ ('k' + u)|center(6) }}|"), "K[<U>] k[<u>] |");
  EXPECT_EQ(marked("{{ ('A' + u)|truncate(3, true, '', 0) }}{{ u|urlencode }}"), "A[<u%3Cu%3E]");
  EXPECT_EQ(marked("{{ (u + '\\nx')|indent }}{{ ('a' + u).partition('<')|join }}"),
            "[<u>]\n    xa[<u>]");
}

TEST(ChatTemplate, ForgetsMarksOfTextThatIsTrusted) {
  EXPECT_FALSE(render("{{ a }}", R"({"a": "<s>"})", false).has_foreign());
  EXPECT_TRUE(render("{{ a }}", R"({"a": "<s>"})", true).has_foreign());
}

TEST(ChatTemplate, WritesTheDate) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d') }}", "{}").bytes(), "2026-01-02");
  EXPECT_EQ(render("{{ strftime_now('') }}", "{}").bytes(), "");
}

std::string refusal(const std::string& source) {
  try {
    return "rendered: " + render(source).bytes().substr(0, 100);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_LT(std::string(error.what()).size(), 600u);
    return error.what();
  }
}

TEST(ChatTemplate, SaysInOneLineWhatIsWrong) {
  struct Case {
    std::string source, wanted;
  };
  const std::vector<Case> cases = {
      {"\n\n{{ missing.x }}", "template: line 3: 'missing' is undefined"},
      {"{{ d.q.r }}", "'dict object' has no attribute 'q'"},
      {"{{ 1 + 'a' }}", "unsupported operand types for +"},
      {"{{ 'a' + missing }}", "'missing' is undefined"},
      {"{{ raise_exception('no ' + name) }}", "no ada"},
      {"{{ raise_exception('x' * 100000) }}", "..."},
      {"{{ raise_exception('two\\nlines') }}", "two\\nlines"},
      {"{{ words.append('x') }}", "access to attribute 'append' of 'list' object is unsafe"},
      {"{{ d.pop('z') }}", "access to attribute 'pop' of 'dict' object is unsafe"},
      {"{{ words.sort + 'x' }}", "is unsafe"},
      {"{{ words|map('upper')|length }}", "object of type generator object has no len()"},
      {"{{ words|map('upper')|last }}", "not reversible"},
      {"{{ words|map('upper')|tojson }}", "Object of type generator is not JSON serializable"},
      {"{{ range(3)|tojson }}", "Object of type range is not JSON serializable"},
      {"{{ d.items()|tojson }}", "Object of type dict_items is not JSON serializable"},
      {"{{ d.keys() + ['x'] }}", "unsupported operand types for +"},
      {"{{ [1] + range(2) }}", "unsupported operand types for +"},
      {"{{ d|urlencode }}", "urlencode takes a text"},
      {"{{ 0 ** -0.5 }}", "cannot be raised to a negative power"},
      {"{{ 2.5 ** 1000.0 }}", "a power is out of range"},
      {"{{ (-8) ** 0.5 }}", "no real number"},
      {"{{ missing|int }}", "'missing' is undefined"},
      {"{{ '%#x' % 5 }}", "unsupported format character '#'"},
      {"{% raw +%}x{% endraw %}", "unknown tag 'raw'"},
      {"{% macro outer() %}{{ caller() }}{% endmacro %}{% macro wrap() %}{% call outer() %}"
       "{{ caller() }}{% endcall %}{% endmacro %}{% call wrap() %}x{% endcall %}",
       "No caller defined"},
      {"{{ 1 / 0 }}", "division by zero"},
      {"{{ 1 % 0 }}", "modulo by zero"},
      {"{{ nope() }}", "'nope' is undefined"},
      {"{{ name() }}", "is not callable"},
      {"{{ name|nosuchfilter }}", "No filter named 'nosuchfilter'"},
      {"{{ name is nosuchtest }}", "No test named 'nosuchtest'"},
      {"{% for x in 5 %}{% endfor %}", "not iterable"},
      {"{% if %}{% endif %}", "unexpected end of the tag"},
      {"a\n{% if yes %}", "line 2: the template ends before 'endif'"},
      {"{{ 'a", "a string is not closed"},
      {"{# a", "a comment is not closed"},
      {"{% raw %}a", "raw has no endraw"},
      {"{{ a b }}", "found 'b'"},
      {"{% nosuch %}", "unknown tag 'nosuch'"},
      {"{% do x %}", "unknown tag 'do'"},
      {"{% include 'x' %}", "unknown tag 'include'"},
      {"{% for x in words %}{% endif %}", "unknown tag 'endif'"},
      {"{{ 1 < 'a' }}", "not supported between"},
      {"{% set a, b = [1, 2, 3] %}", "too many values to unpack (expected 2, got 3)"},
      {"{% set true = 1 %}", "cannot assign to 'true'"},
      {"{% set messages.x = 1 %}", "cannot assign attribute on non-namespace object"},
      {"{{ missing|tojson }}", "Object of type Undefined is not JSON serializable"},
      {"{{ {[1]: 2} }}", "unhashable type"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "takes not more than 1 argument"},
      {"{% break %}", "outside of a loop"},
      {"{{ ( }}", "unexpected '}'"},
      {"{{ 9223372036854775807 + 1 }}", "leaves the range"},
      {"{{ 99999999999999999999 }}", "out of range"},
      {"{{ name|replace('a') }}", "replace takes 2 to 3 arguments, not 1"},
      {"{% for w in words %}{% macro m() %}{{ w }}{% endmacro %}{% set _ = w %}{% endfor %}"
       "{{ m() }}",
       "'m' is undefined"},
      {"{% set ns = namespace() %}{% for w in words %}{% macro m() %}{{ w }}{% endmacro %}"
       "{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
       "called outside its block"},
  };
  for (const Case& one : cases) {
    EXPECT_NE(refusal(one.source).find(one.wanted), std::string::npos) << one.source << "\n"
                                                                       << refusal(one.source);
  }
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// 2000 pieces, numbered.
std::string many(const std::string& before, const std::string& behind) {
  std::string out;
  for (int i = 0; i < 2000; ++i) out += before + std::to_string(i) + behind;
  return out;
}

TEST(ChatTemplate, BoundsWhatHostileTemplatesTake) {
  const std::string steps = "more than 2 million steps", bytes = "fills more than 64 MiB";
  const std::string deep = "nest too deep", nested = "nested more than 150 levels";
  struct Case {
    std::string source, wanted;
  };
  const std::vector<Case> cases = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", steps},
      {"{{ 'x' * 10**12 }}", bytes},
      {"{{ ('x' * 10**6) * 10**18 }}", bytes},
      {"{{ [0] * 10**12 }}", steps},
      {"{{ range(10**9) }}", "Range too big"},
      {"{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(99) %}"
       "{% set ns.t = ns.t + ns.t %}{% endfor %}",
       bytes},
      {"{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}"
       "{% endfor %}",
       steps},
      {"{% set ns = namespace(t=[]) %}{% for i in range(1000) %}{% set ns.t = [ns.t] %}"
       "{% endfor %}",
       "nest more than 100 levels"},
      {"{% set ns = namespace(t=[]) %}{% for i in range(60) %}{% set ns.t = [ns.t, ns.t] %}"
       "{% endfor %}{{ ns.t }}",
       "holds more than 4000000 values"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", deep},
      {"{% macro m(x) %}{% call m(x) %}{% endcall %}{{ caller }}{% endmacro %}{{ m(1) }}", deep},
      {"{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", deep},
      {"{{ " + repeated("(", 10000) + "1" + repeated(")", 10000) + " }}", nested},
      {"{{ " + repeated("[", 10000) + "1" + repeated("]", 10000) + " }}", nested},
      {"{{ " + repeated("not ", 10000) + "1 }}", nested},
      {"{{ " + repeated("-", 10000) + "1 }}", nested},
      {"{{ 1" + repeated(" + 1", 100000) + " }}", "an expression is too long"},
      {"{{ 1" + repeated(" or 0", 100000) + " }}", "an expression is too long"},
      {"{{ a" + repeated(".a", 100000) + " }}", "an expression is too long"},
      {"{{ a" + repeated("|e", 100000) + " }}", "an expression is too long"},
      {"{{ a" + repeated("()", 100000) + " }}", "an expression is too long"},
      {repeated("{% if yes %}", 10000), nested},
      {repeated("{% for x in words %}", 10000), nested},
      {"{% if no %}" + repeated("{% elif no %}", 10000) + "{% endif %}", nested},
      {"{% for " + repeated("(", 10000) + "a" + repeated(")", 10000) + " in words %}", nested},
      {"{{ '%999999999d' % 1 }}{{ 'a'.center(10**15) }}", bytes},
      {"{{ 'a'|center(10**15) }}", bytes},
      {"{{ ('a\\n' * 100000)|indent(1000000) }}", bytes},
      {"{{ messages|tojson(indent=99999999) }}", bytes},
      {repeated("{{ nested|tojson(indent=1000) }}", 99), "rendered"},
      {"{{ strftime_now('%999d') }}", "too long"},
      // Searches that a naive one would take minutes for.
      {"{% set s = 'a' * 1000000 %}{{ s.rfind('b' ~ 'a' * 500000) }}", steps},
      {"{% set s = 'a' * 1000000 %}{{ s.rfind('a' * 500000 ~ 'b') }}", "rendered: -1"},
      {"{{ 'abc'|truncate(9223372036854775807, true, '', 9223372036854775807) }}", "rendered: abc"},
      {"{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 ~ 'b' %}{{ s.find(t) }} {{ t in s }} "
       "{{ s.count(t) }} {{ s.replace(t, '') == s }} {{ s.split(t)|length }}",
       "rendered: -1 False 0 True 1"},
      {"{% set s = 'a' * 9999999 %}{% set t = 'a' * 9999998 ~ 'b' %}{% for i in range(99999) %}"
       "{% if s == t or s < t %}{% endif %}{% endfor %}",
       steps},
      {many("{% set a", "=1 %}") + "{% for i in range(99999) %}{{ a0 }}{{ a1999 }}{% endfor %}",
       steps},
      {"{% set ns = namespace() %}" + many("{% set ns.a", "=1 %}") +
           "{% for i in range(99999) %}{% set ns.a1999 = ns.a1999 %}{% endfor %}",
       steps},
      {"{% macro m(" + many("a", "=1,") + ") %}{% endmacro %}" + "{% for i in range(99) %}{{ m(" +
           many("a", "=1,") + ") }}{% endfor %}",
       steps},
      // Arguments beyond all bounds.
      {"{{ 'abc'|truncate(1000000, leeway=-2000000) }}", "expected leeway >= 0"},
      {"{{ 'x'|batch(fill_with=2) }}", "batch needs 'linecount'"},
      {"{{ 'x'|slice(fill_with=2) }}", "slice needs 'slices'"},
      {"{{ 'x'|batch(2, linecount=2) }}", "batch got 'linecount' twice"},
      {"{{ dict(a=1, **{'a': 2}) }}", "'a' is given twice"},
      {"{{ 'a'.zfill(-9223372036854775807 - 1) }}{{ 'a'.center(-9223372036854775807 - 1) }}"
       "{{ 'a'[-9223372036854775807 - 1:] }}{{ 'abc'.find('c', -9223372036854775807 - 1) }}",
       "rendered: aaa2"},
      {"{{ '\t'.expandtabs(9223372036854775807) }}", "out of range"},
      {"{{ ''.center(4611686018427387904, '\U0001f600') }}", bytes},
      {"{{ {}['x' * 30000000] }}", "rendered: "},
      {"{{ 1e300|int }}", "leaves the range"},
      {"{{ '%d' % 1e300 }}", "leaves the range"},
      {"{{ '{:x}'.format(-1e19) }}", "leaves the range"},
      {"{{ 9223372036854775807|round(-1) }}", "leaves the range"},
      {"{% set ns = namespace(t=1) %}{% for i in range(500) %}{% set ns.t = namespace(t=ns.t) %}"
       "{% endfor %}{{ ns.t }}{% set ns.t = ns %}{{ ns }}",
       "rendered: <Namespace><Namespace>"},
  };
  for (const Case& one : cases) {
    const std::string said = refusal(one.source);
    EXPECT_NE(said.find(one.wanted), std::string::npos) << one.source.substr(0, 200) << "\n"
                                                        << said;
  }
}

// Texts that are made and not kept, and scans, under a budget so small that each is quick.
TEST(ChatTemplate, ChargesEveryTextAndScan) {
  const std::string steps = "million steps", bytes = "MiB of memory";
  const std::string x = "{% set s = 'x' * 100000 %}", many_times = "{% for i in range(99) %}";
  const auto repeats = [&](const std::string& expression) {
    return x + many_times + "{% if " + expression + " %}{% endif %}{% endfor %}";
  };
  struct Case {
    std::string source, wanted;
  };
  const std::vector<Case> cases = {
      {repeats("s ~ s"), bytes},
      {repeats("s + s"), bytes},
      {repeats("'%s'|format(s)"), bytes},
      {repeats("'%s' % s"), bytes},
      {repeats("'{}'.format(s)"), bytes},
      {repeats("s|tojson"), steps},
      {repeats("[s]|string"), steps},
      {repeats("s|attr(s ~ i)"), bytes},
      {repeats("'{:>9999}'.format(1)") + repeats("'%9999d' % 1"), bytes},
      {"{{ ('a,' * 9000).split(',')|length }}", bytes},
      {"{{ ('x' * 9000)|list|length }}", bytes},
      {repeats("s[10**9]"), steps},
      {repeats("s[-1]"), steps},
      {repeats("s is lower"), steps},
      {repeats("s.isalpha()"), steps},
      {repeats("s|wordcount"), steps},
      {repeats("s|length"), steps},
      {repeats("s.count('x')"), steps},
      {repeats("'b' in s"), steps},
      {repeats("s.rfind('b' ~ s[:500])"), steps},
      {x + "{{ ''.strip(s) }}", steps},
      {"{% set d = dict(range(300)|batch(2)) %}{% for i in range(9999) %}{{ d.nope }}{% endfor %}",
       steps},
      {"{% set d = dict(range(300)|map('string')|batch(2)) %}{% for i in range(99) %}{{ d == d }}"
       "{% endfor %}",
       steps},
      {"{{ namespace(range(2000)|map('string')|batch(2)) }}", steps},
      {"{% macro m() %}{% endmacro %}{{ m(**dict(range(2000)|map('string')|batch(2))) }}", steps},
      {repeated("{% with %}", 140) + "{% for i in range(999) %}{{ nope }}{{ nope }}{% endfor %}" +
           repeated("{% endwith %}", 140),
       steps},
  };
  const chat::Value context = chat::parse_json("{}", "context", true);
  for (const Case& one : cases) {
    const chat::Block block = chat::Parser(one.source).parse();
    const chat::Budget budget(20'000, std::size_t{1} << 20);
    std::string said = "rendered";
    try {
      chat::Interpreter(context.as_dict(), 0).render(block);
    } catch (const chat::TemplateError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(one.wanted), std::string::npos) << one.source.substr(0, 200) << "\n"
                                                        << said;
  }
}

// What a template may take grows with the conversation.
TEST(ChatTemplate, RendersLongConversations) {
  const std::string source =
      "{% for m in messages %}{% if m.content is string and m.content.startswith('x') %}"
      "{% set text = m.content.split('</think>')[-1].lstrip('\\n') %}"
      "{{ '<' ~ m.role + '>' + text|trim + '\\n' }}{% elif 'tool' in m.content %}"
      "{{ m|tojson(indent=2) }}{% else %}{{ m.content|replace('a', 'b')|upper }}{% endif %}"
      "{% endfor %}";
  const std::string text(std::size_t{2} << 20, 'y');
  const auto message = [](const std::string& content) {
    return R"({"role": "user", "content": ")" + content + R"("},)";
  };
  const std::string long_ones =
      message("x" + text) + message("tool" + text) + message("a" + text) + message("");
  const auto conversation = [](const std::string& messages) {
    return "{\"messages\": [" + messages.substr(0, messages.size() - 1) + "]}";
  };
  EXPECT_GT(render(source, conversation(long_ones)).size(), 3 * text.size());
  EXPECT_EQ(render(source, conversation(repeated(message("x y"), 20'000))).size(), 200'000u);
}

// The same work takes the same budget, wherever the text is made or looked at.
TEST(ChatTemplate, ChargesWhatIsMadeAndLookedAt) {
  const chat::Text text(std::string(100'000, 'x'));
  const auto bytes = [&](const auto& work) {
    const chat::Budget budget(1'000'000, std::size_t{1} << 30);
    work();
    return (std::size_t{1} << 30) - budget.bytes_left();
  };
  const auto steps = [&](const auto& work) {
    const chat::Budget budget(1'000'000, std::size_t{1} << 30);
    work();
    return 1'000'000 - budget.steps_left();
  };
  EXPECT_EQ(bytes([&] { chat::Text copy(text); }), text.size());
  EXPECT_EQ(bytes([&] { text.substr(5, 7); }), 7u);
  EXPECT_GE(bytes([&] { chat::html_escaped(text); }), text.size());
  EXPECT_GE(steps([&] { chat::length(text.view()); }), text.size() / 16 / 16);
  EXPECT_GE(steps([&] { chat::find_text(text.view(), "z"); }), text.size() / 8 / 16);
  EXPECT_GE(steps([&] { chat::find_last_text(text.view(), "z"); }), text.size() / 8 / 16);
  EXPECT_GE(steps([&] { chat::with_case(text, chat::Case::upper); }), text.size() / 16);
}

TEST(ChatTemplate, RefusesWhatIsNoText) {
  EXPECT_THROW(chat::ChatTemplate::parse("\xff", "t"), Error);
  EXPECT_THROW(chat::ChatTemplate::parse(std::string((1 << 20) + 1, 'a'), "t"), Error);
}

TEST(ChatJson, KeepsOrderAndRefusesInOneLine) {
  EXPECT_EQ(
      render("{{ a|tojson }}", R"({"a": {"z": 1, "b": [true, null, 1.0, 12345678901234567890]}})")
          .bytes(),
      R"({"z": 1, "b": [true, null, 1.0, 1.2345678901234567e+19]})");
  for (const std::string& json :
       {std::string(), std::string("{"), std::string("[1,]"), std::string("{\"a\": 1, \"a\": 2}"),
        std::string("\"\xff\""), std::string("[1]\0[2]", 7)}) {
    EXPECT_THROW(chat::parse_json(json, "messages", true), Error) << json;
  }
  EXPECT_THROW(chat::parse_json(repeated("[", 1000) + repeated("]", 1000), "messages", true),
               Error);
}

}  // namespace
}  // namespace coppice::testing

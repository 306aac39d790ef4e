// Filters, tests, methods and printed values. What each template gives was checked with Jinja2
// 3.1.6 under the settings of transformers.
#include <gtest/gtest.h>

#include "chat/rendering.h"

namespace coppice::testing {
namespace {

TEST(ChatTemplate, TextFilters) {
  expect_renders({
      {R"t({{ '  a b '|trim }}| {{ 'xxaxx'|trim('x') }} {{ 'aBc dEF'|upper }} {{ 'aBc'|lower }} {{ "hello wOrld-foo (bar)"|title }} {{ 'hELLO World'|capitalize }})t",
       "a b| a ABC DEF abc Hello World-Foo (Bar) Hello world"},
      {"{{ 'a.b.c'|replace('.', '-') }} {{ 'aaa'|replace('a', 'b', 2) }}", "a-b-c bba"},
      {R"t({{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(3, true) }}|{{ 'a\n\nb'|indent('> ', blank=true) }})t",
       "a\n  b\n\n  c|   a\n   b|a\n> \n> b"},
      {"{{ missing|default('x') }} {{ ''|default('x') }} {{ ''|default('x', true) }} {{ "
       "none_value|default('x') }} {{ none_value|d('y', boolean=true) }}",
       "x  x None y"},
      {R"t({{ '<a> & "b"'|e }} {{ '<'|escape|escape }} {{ '<'|safe + '<' }} {{ '<'|safe ~ '<' }})t",
       "&lt;a&gt; &amp; &#34;b&#34; &lt; <&lt; <<"},
      {"{{ 3.7|int }} {{ '12'|int }} {{ 'x'|int(5) }} {{ '3.9'|int }} {{ '1.5'|float }} {{ "
       "'x'|float }} {{ true|int }} {{ ' 42 '|int }}",
       "3 12 5 3 1.5 0.0 1 42"},
      {"{{ 2.5|round }} {{ 3.14159|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ "
       "2.9|round(method='floor') }} {{ 5|round }} {{ 0.5|round }} {{ 1.5|round }}",
       "2.0 3.14 3.0 2.0 5 0.0 2.0"},
      {"{{ 'a b c'|wordcount }} {{ 'abc'|center(9) }}| {{ 'foo bar baz qux'|truncate(9) }} {{ 'foo "
       "bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ "
       "'%s-%s'|format(1, 'b') }}",
       "3    abc   | foo... foo ba... foo bar baz qux 1-b"},
      {"{{ 'a b/c&é'|urlencode }} {{ 7|string + 'x' }} {{ none|string }} {{ [1,'a']|string }}",
       "a%20b/c%26%C3%A9 7x None [1, 'a']"},
      {"{{ messages[1].content|trim|upper }}", R"t(ÜNÏ <B> 'Q' "D")t"},
  });
}

TEST(ChatTemplate, Json) {
  expect_renders({
      {"{{ messages[2]|tojson }}",
       R"t({"role": "assistant", "content": "fine", "tool_calls": [{"name": "f", "arguments": {"b": 1, "a": [1.5, null, true, "x\ny"]}}]})t"},
      {"{{ messages[2].tool_calls|tojson(indent=2) }}",
       "[\n  {\n    \"name\": \"f\",\n    \"arguments\": {\n      \"b\": 1,\n      \"a\": [\n      "
       "  1.5,\n        null,\n        true,\n        \"x\\ny\"\n      ]\n    }\n  }\n]"},
      {R"t({{ [1, 2.0, 1e20, none, true, 'é\n\u0001"<'] | tojson }})t",
       R"t([1, 2.0, 1e+20, null, true, "é\n\u0001\"<"])t"},
      {"{{ d|tojson(sort_keys=true, separators=(',', ':')) }} {{ 'é😀'|tojson(ensure_ascii=true) }} "
       "{{ {}|tojson(indent=2) }} {{ []|tojson }} {{ (1,)|tojson }}",
       R"t({"items":3,"y":"two","z":1} "\u00e9\ud83d\ude00" {} [] [1])t"},
      {"{{ {1: 2, none: 3, true: 4}|tojson }}", R"t({"1": 4, "null": 3})t"},
      {"{{ d|tojson(indent=4) }}", "{\n    \"z\": 1,\n    \"y\": \"two\",\n    \"items\": 3\n}"},
      {"{{ [[], {}]|tojson(indent=1) }}", "[\n [],\n {}\n]"},
  });
}

TEST(ChatTemplate, Sequences) {
  expect_renders({
      {"{{ words|first }} {{ words|last }} {{ words|length }} {{ words|count }} {{ d|length }} {{ "
       "empty|first is defined }}",
       "b b 4 4 3 False"},
      {"{{ words|join(', ') }} {{ [1,2]|join }} {{ messages|join('/', attribute='role') }} {{ "
       "name|join('-') }}",
       "b, a, C, b 12 system/user/assistant a-d-a"},
      {"{{ words|sort }} {{ words|sort(true) }} {{ words|sort(case_sensitive=true) }} {{ "
       "messages|sort(attribute='role')|map(attribute='role')|list }}",
       "['a', 'b', 'b', 'C'] ['C', 'b', 'b', 'a'] ['C', 'a', 'b', 'b'] ['assistant', 'system', "
       "'user']"},
      {"{{ words|unique|list }} {{ words|reverse|list }} {{ name|reverse }} {{ d|dictsort }} {{ "
       "{'b': 2, 'A': 3}|dictsort(by='value') }} {{ {'b': 2, 'A': 3}|dictsort(true) }}",
       "['b', 'a', 'C'] ['b', 'C', 'a', 'b'] ada [('items', 3), ('y', 'two'), ('z', 1)] [('b', 2), "
       "('A', 3)] [('A', 3), ('b', 2)]"},
      {"{{ messages|map(attribute='role')|list }} {{ words|map('upper')|list }} {{ "
       "messages|map(attribute='nope', default='-')|list }}",
       "['system', 'user', 'assistant'] ['B', 'A', 'C', 'B'] ['-', '-', '-']"},
      {"{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ "
       "messages|rejectattr('role', 'in', ['user'])|map(attribute='role')|join(',') }} {{ "
       "messages|selectattr('tool_calls')|list|length }} {{ messages|selectattr('tool_calls', "
       "'defined')|list|length }}",
       "1 system,assistant 1 1"},
      {"{{ [1,2,3,4]|select('odd')|list }} {{ [1,2,3,4]|reject('divisibleby', 2)|list }} {{ "
       "[0,1,'']|select|list }}",
       "[1, 3] [1, 3] [1]"},
      {"{{ [1,2,3]|sum }} {{ [3,1,2]|min }} {{ [3,1,2]|max }} {{ ['b','A']|min }} {{ [{'a': "
       "2}]|sum(attribute='a') }} {{ [{'a': 2}, {'a': 5}]|max(attribute='a') }}",
       "6 1 3 A 2 {'a': 5}"},
      {"{{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3,4,5]|batch(2, 0)|list }} {{ "
       "[1,2,3,4,5]|slice(2)|list }} {{ [1,2,3,4,5]|slice(3, 'x')|list }}",
       "[[1, 2], [3, 4], [5]] [[1, 2], [3, 4], [5, 0]] [[1, 2, 3], [4, 5]] [[1, 2], [3, 4], [5, "
       "'x']]"},
      {"{% for g in messages|groupby('role') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}{% "
       "for k, l in messages|groupby('role') %}{{ k }}{% endfor %}",
       "assistant:1 system:1 user:1 assistantsystemuser"},
      {"{{ d|items|list }} {{ name|list }} {{ {'a': 1}|list }} {{ missing|items|list }}",
       "[('z', 1), ('y', 'two'), ('items', 3)] ['a', 'd', 'a'] ['a'] []"},
  });
}

TEST(ChatTemplate, Tests) {
  expect_renders({
      {"{{ 1 is number }}{{ 'a' is string }}{{ d is mapping }}{{ words is sequence }}{{ d is "
       "sequence }}{{ 'a' is iterable }}{{ 1 is iterable }}{{ none is none }}{{ yes is boolean "
       "}}{{ 1 is boolean }}{{ yes is integer }}{{ 1 is integer }}{{ 1.0 is float }}{{ yes is "
       "number }}",
       "TrueTrueTrueTrueTrueTrueFalseTrueTrueFalseFalseTrueTrueTrue"},
      {"{{ 2 is even }}{{ 3 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 1 is eq 1 "
       "}}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 'a' is in 'abc' }}{{ 1 is in [2] }}{{ "
       "'a' is sameas 'a' }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ none is true "
       "}}",
       "TrueTrueTrueFalseTrueTrueTrueTrueTrueFalseTrueTrueFalseTrueFalse"},
      {"{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ missing is undefined }}{{ range is callable "
       "}}{{ 'x'|safe is escaped }}{{ missing is string }}{{ missing is none }}{{ missing is "
       "sequence }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'nope' is filter }}",
       "TrueTrueTrueTrueTrueFalseFalseTrueTrueTrueFalse"},
  });
}

TEST(ChatTemplate, Methods) {
  expect_renders({
      {"{{ ' a b  c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ "
       "'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ' a b c '.rsplit(maxsplit=1) "
       "}} {{ ''.split() }} {{ ''.split(',') }}",
       "['a', 'b', 'c'] ['a', 'b', '', 'c'] ['a', 'b,c'] ['a,b', 'c'] ['a', 'b c '] [' a b', 'c'] "
       "[] ['']"},
      {R"t({{ 'xaxbx'.strip('x') }} {{ '  a '.lstrip() }}| {{ ' a '.rstrip() }}| {{ 'abcba'.strip('ab') }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }})t",
       R"t(axb a |  a| c ['a', 'b', 'c'] ['a\n', 'b'])t"},
      {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('b', 1) "
       "}}{{ 'abcabc'.find('c') }}{{ 'abcabc'.rfind('c') }}{{ 'abc'.find('z') }}{{ "
       "'abcabc'.index('b') }}{{ 'banana'.count('an') }}{{ 'aaa'.count('aa') }}",
       "TrueTrueTrue25-1121"},
      {"{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ "
       "'-'.join(['a', 'b']) }} {{ 'aXbX'.replace('X', '') }} {{ 'abc'.replace('', '-') }} {{ "
       "'aaa'.replace('a', 'b', 1) }}",
       "('a', '-', 'b-c') ('a-b', '-', 'c') ('abc', '', '') a-b ab -a-b-c- baa"},
      {R"t({{ 'hello world'.title() }} {{ 'hELLO'.capitalize() }} {{ 'aB'.swapcase() }} {{ 'Straße'.upper() }} {{ 'É'.lower() }} {{ "they're".title() }})t",
       "Hello World Hello Ab STRASSE é They'Re"},
      {"{{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3) }} {{ "
       "'ab'.center(5, '*') }} {{ 'a'.center(4, '*') }} {{ 'prefix-x'.removeprefix('prefix-') }} "
       "{{ 'x.txt'.removesuffix('.txt') }}",
       "005 -005 a..   a **ab* *a** x x"},
      {"{{ 'a b '.split(none, 1) }} {{ ' a b'.rsplit(none, 1) }} {{ 'a b '.split(none, 2) }} "
       "{{ 'a '.split(none, 0) }} {{ ' '.split(none, 0) }}",
       "['a', 'b '] [' a', 'b'] ['a', 'b'] ['a '] []"},
      {"{{ '%c%c|% d|%+d|% 5d' % (65, 'é', 5, 5, 5) }} {{ '{: d}|{:+}'.format(3, 2.5) }} "
       "{{ '{:>6}|{:d}'.format(true, false) }} {{ '% 05d' % 7 }}",
       "Aé| 5|+5|    5  3|+2.5      1|0  0007"},
      {"{{ d|attr('z') }}|{{ d|attr('items') is callable }}{{ d|attr('z') is defined }}|"
       "{{ name|attr('upper')() }}",
       "|TrueFalse|ADA"},
      {"{{ 6.0 % -2.0 }} {{ -6 % 2.5 }} {{ 0.3 // 0.1 }} {{ -0.0 // 5 }} {{ 7 // -2.0 }} {{ 5.5 % "
       "2 }}",
       "-0.0 1.5 2.0 -0.0 -4.0 1.5"},
      {"{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ "
       "''.isdigit() }}{{ 'Ab'.isupper() }}{{ 'ab'.islower() }}{{ '1'.isnumeric() }}",
       "TrueTrueTrueTrueFalseFalseTrueTrue"},
      {"{{ '{} {} {}'.format(1, 'a', none) }} {{ '{1}{0}'.format('a', 'b') }} {{ "
       "'{x}-{y[k]}'.format(x=1, y={'k': 2}) }} {{ "
       "'{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}'.format('a', 'b', 'c', 42, 3.14159, 1234567) }} {{ "
       "'{{}}'.format() }} {{ '{!r}'.format('a') }}",
       "1 a None ba 1-2     a|b    |  c  |00042|3.14|1,234,567 {} 'a'"},
      {"{{ d.get('z') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.keys()|list }} {{ "
       "d.values()|list }} {{ words.index('a') }} {{ words.count('b') }} {{ d.copy() }}",
       "1 None 5 ['z', 'y', 'items'] [1, 'two', 3] 1 2 {'z': 1, 'y': 'two', 'items': 3}"},
  });
}

// What map, select and their kin give, ranges, and views of mappings are no lists.
TEST(ChatTemplate, KindsOfSequences) {
  expect_renders({
      {"{{ 'yes' if empty|map('upper') else 'no' }} {{ 'yes' if words|select('none') else 'no' }} "
       "{{ 'yes' if d.keys() and not {}.items() else 'no' }} {{ 'yes' if range(0) else 'no' }}",
       "yes yes yes no"},
      {"{% set g = words|map('upper') %}{{ g|first }} {{ 'C' in g }} {{ g|list }} {{ g|list }}",
       "B True ['B'] []"},
      {"{{ words|map('upper') is sequence }} {{ words|map('upper') is iterable }} "
       "{{ d.items() is sequence }} {{ range(2) is sequence }} {{ (words|map('upper'))[0] }} "
       "{{ d.values()[0] is defined }} {{ words|reverse|list == words[::-1] }} "
       "{{ words|reverse is sequence }} {{ words|map('upper')|reverse is sequence }}",
       "False True False True  False True False True"},
      {"{{ d.keys() }} {{ d.values() }} {{ {'a': 1}.items() }} {{ range(3) }} {{ range(1, 9, 2) }} "
       "{{ d.keys()|length }} {{ range(5)[1] }}",
       "dict_keys(['z', 'y', 'items']) dict_values([1, 'two', 3]) dict_items([('a', 1)]) "
       "range(0, 3) range(1, 9, 2) 3 1"},
      {"{{ range(2) == [0, 1] }} {{ range(2) == range(2) }} "
       "{{ {'a': 1, 'b': 2}.keys() == {'b': 3, 'a': 4}.keys() }} "
       "{{ words|unique == words|unique }} {{ d.values() == d.values() }}",
       "False True True False False"},
      {"{% for x in words|select('ne', 'b') %}{{ loop.index }}{{ x }}{{ loop.length }}{% endfor %} "
       "{{ [[1, 2]]|map('sum')|list }} {{ [4]|map(attribute='x')|list|max is defined }}",
       "1a22C2 [3] False"},
      {"{{ words.sort }}{{ d.pop }}{{ words.append is defined }}", "False"},
  });
}

TEST(ChatTemplate, LettersThatBecomeSeveral) {
  expect_renders({
      {"{{ 'Straße ﬁ ŉ ΐ'.upper() }} {{ 'ß ﬀx ǆ'.title() }} {{ 'ﬀx'|capitalize }} "
       "{{ 'İ'.lower()|length }} {{ 'Straße ﬁ'.casefold() }} {{ 'ẞ'.upper() }}",
       "STRASSE FI ʼN \u0399\u0308\u0301 Ss Ffx ǅ Ffx 2 strasse fi ẞ"},
      {"{{ 'ΟΔΥΣΣΕΥΣ'.lower() }} {{ 'ΑΣ, ΣΑΣ.'|lower }} {{ \"ΑΣ'Α\".lower() }} {{ 'Σ'.lower() }} "
       "{{ '日本abc'.title() }} {{ 'aǅB'.swapcase() }}",
       "οδυσσευς ας, σας. ασ'α σ 日本Abc Aǅb"},
  });
}

TEST(ChatTemplate, Functions) {
  expect_renders({
      {"{{ dict(a=1, b=2) }} {{ dict([('a', 1)]) }} {{ dict({'x': 1}, y=2) }}",
       "{'a': 1, 'b': 2} {'a': 1} {'x': 1, 'y': 2}"},
      {"{% set j = joiner(', ') %}{% for x in [1,2,3] %}{{ j() }}{{ x }}{% endfor %}", "1, 2, 3"},
      {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% "
       "set _ = c.reset() %}{{ c.current }}",
       "ababa"},
      {"{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}", "121"},
      {"{% generation %}a{% set inner = 1 %}{% endgeneration %}{{ inner is defined }}", "aFalse"},
      {"{% for i in [1] %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}",
       "11"},
  });
}

TEST(ChatTemplate, Repr) {
  expect_renders({
      {R"t({{ ["it's", 'a"b', "both'\"", 'new\nline', '\\', 'é', '\x07', '\u200b', '😀'] }})t",
       R"t(["it's", 'a"b', 'both\'"', 'new\nline', '\\', 'é', '\x07', '\u200b', '😀'])t"},
      {"{{ messages[2] }}",
       R"t({'role': 'assistant', 'content': 'fine', 'tool_calls': [{'name': 'f', 'arguments': {'b': 1, 'a': [1.5, None, True, 'x\ny']}}]})t"},
      {"{{ [1.0, 1e16, 1e-5, 123456.789, 1e15, 0.0001] }}",
       "[1.0, 1e+16, 1e-05, 123456.789, 1000000000000000.0, 0.0001]"},
      {"{{ [missing] }} {{ ['a'|safe] }}", "[Undefined] [Markup('a')]"},
      {"{{ {'a': none, 1: (1, 2), (1, 2): [()] } }}", "{'a': None, 1: (1, 2), (1, 2): [()]}"},
  });
}

}  // namespace
}  // namespace coppice::testing

// Statements, expressions and white space. What each template gives was checked with Jinja2 3.1.6
// under the settings of transformers.
#include <gtest/gtest.h>

#include "chat/rendering.h"

namespace coppice::testing {
namespace {

TEST(ChatTemplate, Whitespace) {
  expect_renders({
      {"a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"x {%- if yes -%}  y  {%- endif -%} z", "xyz"},
      {"  {%+ if yes %}k{% endif %}\n", "  k"},
      {"a {# note #}\nb", "a b"},
      {"a\n   {#- note -#}   \nb", "ab"},
      {"{{ 'a' }}\n{{ 'b' }}\n", "a\nb"},
      {"  {{ 'a' }}  \n", "  a  "},
      {"\r\nx\ry\n\n", "\nx\ny\n"},
      {"{% raw %}{{ not }} {% if %}{% endraw %}!", "{{ not }} {% if %}!"},
      {"a {%- raw -%}  {{ b }}  {%- endraw -%} c", "a{{ b }}c"},
      {"{% raw %}\n{{ x }}\n{% endraw %}\nend", "\n{{ x }}\nend"},
      {"{% if yes +%}\nk{% endif %}", "\nk"},
      {"\t{% set x = 1 %}\t\n{{ x }}", "\t\n1"},
      {"{{- 'a' -}}   b", "ab"},
      {"{% if yes %}a{% endif %}\n\n\nb", "a\n\nb"},
      {"a{% if yes %}\n\nb{% endif %}", "a\nb"},
  });
}

TEST(ChatTemplate, Literals) {
  expect_renders({
      {R"t({{ 'a\n\t\x41\u00e9\'' }})t", "a\n\tAé'"},
      {R"t({{ "q'" }})t", "q'"},
      {"{{ 1_000 + 0x1f + 0b11 + 0o7 }}", "1041"},
      {"{{ 1.5e3 }} {{ 2e2 }} {{ 1e16 }} {{ 1.0 }} {{ 0.1 + 0.2 }}",
       "1500.0 200.0 1e+16 1.0 0.30000000000000004"},
      {"{{ [1, 'a', none, true, 2.0, [], {}] }}", "[1, 'a', None, True, 2.0, [], {}]"},
      {"{{ (1,) }} {{ () }} {{ 1, 2 }}", "(1,) () (1, 2)"},
      {R"t({{ {'a': 1, "b'c": ["'"]} }})t", R"t({'a': 1, "b'c": ["'"]})t"},
      {"{{ 'a' 'b' }}", "ab"},
      {"{{ {'a': {'b': {}}} }}", "{'a': {'b': {}}}"},
      {R"t({{ "a\\d \q" }})t", R"t(a\d \q)t"},
      {"{{ big }} {{ small }} {{ 123456789012.5 }} {{ -0.0 }}", "1e+20 1e-07 123456789012.5 -0.0"},
      {"{{ True }} {{ False }} {{ None }} {{ true }} {{ none }}", "True False None True None"},
  });
}

TEST(ChatTemplate, Operators) {
  expect_renders({
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 "
       "}} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
       "3 -4 1 2 3.5 1024 0.5 3.0 0.5"},
      {"{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "3 9 4 64"},
      {"{{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [0] * 2 }} {{ [1] + [2] }} {{ (1,) + (2,) }}",
       "aaa ababab [0, 0] [1, 2] (1, 2)"},
      {"{{ 'a' ~ 1 ~ none ~ 2.5 ~ [1] }}", "a1None2.5[1]"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
       "True False True True"},
      {"{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' != 'b' }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1} "
       "}} {{ (1,) == [1] }}",
       "True True True True True False"},
      {"{{ 'a' in 'cat' }} {{ 2 in [1, 2] }} {{ 'z' in d }} {{ 'q' not in d }} {{ 'x' in missing "
       "}}",
       "True True True True False"},
      {"{{ not yes }} {{ yes and 0 }} {{ '' or 'b' }} {{ none and 1 }}", "False 0 b None"},
      {"{{ 'a' if yes else 'b' }} {{ 'a' if not yes }} {{ 1 if no_such else 2 if yes else 3 }}",
       "a  2"},
      {"{{ '%s is %d or %.2f, %5s|%-5s|%05d %x %%' % ('a', 3, 2.5, 'x', 'y', 42, 255) }}",
       "a is 3 or 2.50,     x|y    |00042 ff %"},
      {"{{ '%s' % name }} {{ '%(a)s' % {'a': 1} }}", "ada 1"},
      {"{{ -n|abs }} {{ +n }} {{ -f }}", "7 7 -2.5"},
      {"{{ not n is defined }} {{ n is not number }} {{ n == 7 and n is odd }}",
       "False False True"},
  });
}

TEST(ChatTemplate, Access) {
  expect_renders({
      {"{{ messages[0].role }} {{ messages[-1]['role'] }} {{ messages[0]['nope'] }}",
       "system assistant "},
      {"{{ d.items is callable }} {{ d['items'] }} {{ d.y }}", "True 3 two"},
      {"{{ name[0] }}{{ name[-1] }}{{ name[9] }}", "aa"},
      {"{{ name[1:] }} {{ name[:-1] }} {{ name[::-1] }} {{ words[1:3] }} {{ words[::2] }} {{ "
       "words[::-1] }} {{ words[5:] }} {{ words[-2:] }} {{ words[-99:99] }}",
       "da ad ada ['a', 'C'] ['b', 'C'] ['b', 'C', 'a', 'b'] [] ['C', 'b'] ['b', 'a', 'C', 'b']"},
      {"{{ missing }} {{ missing is defined }} {{ d.q is defined }} {{ (missing or 'x') }}",
       " False False x"},
      {"{{ nested[1][1][0] }} {{ nested.0.1 }}", "4 2"},
      {"{{ 'Ünï'[1] }} {{ 'Ünï'[::-1] }} {{ 'Ünï'|length }}", "n ïnÜ 3"},
  });
}

TEST(ChatTemplate, Control) {
  expect_renders({
      {"{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first "
       "}}{{ loop.last }}{{ loop.length }};{% endfor %}",
       "103TrueFalse3;212FalseFalse3;321FalseTrue3;"},
      {"{% for w in words if w != 'b' %}{{ loop.index }}/{{ loop.length }}{{ w }}{% else %}none{% "
       "endfor %}",
       "1/2a2/2C"},
      {"{% for x in empty %}x{% else %}nothing{% endfor %}", "nothing"},
      // The else of a loop that no round of which reached its end.
      {"{% for x in [1, 2] %}{{ x }}{% if yes %}{% continue %}{% endif %}{% else %}e{% endfor %} "
       "{% for x in [1, 2] %}{{ x }}{% break %}{% else %}e{% endfor %} "
       "{% for x in [1, 2] %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}",
       "12e 1e 12"},
      // Leaving a loop loses what a block has gathered.
      {"{% for x in [1, 2, 3] %}{% set y %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% "
       "endset "
       "%}[{{ y }}]{% endfor %}",
       "[1][3]"},
      {"{% for x in [1, 2, 3] %}{% filter upper %}a{% if x == 2 %}{% break %}{% endif %}b{% "
       "endfilter %}{% endfor %}",
       "AB"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}", "z=1,y=two,items=3,"},
      {"{% for k in d %}{{ k }}{% endfor %}", "zyitems"},
      {"{% for c in name %}{{ c }}-{% endfor %}", "a-d-a-"},
      {"{% for x in missing %}x{% endfor %}.", "."},
      {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{% for x in range(5) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break "
       "%}{% endif %}{{ x }}{% endfor %}",
       "02"},
      {"{% for x in [1,2] %}{% for y in [3,4] %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index "
       "}};{% endfor %}",
       "13241;13242;"},
      {"{% for w in words %}{{ loop.previtem }}<{{ w }}<{{ loop.nextitem }} {{ loop.cycle('x', "
       "'y') }} {{ loop.changed(w) }};{% endfor %}",
       "<b<a x True;b<a<C y True;a<C<b x True;C<b< y True;"},
      {"{% for x in nested recursive %}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}@{{ "
       "loop.depth }}{% endif %}{% endfor %}",
       "[1@22@2][3@2[4@3]]"},
      {"{% set x = 1 %}{% for i in [1,2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "221"},
      {"{% if yes %}{% set k = 5 %}{% endif %}{{ k }}", "5"},
      {"{% set ns = namespace(a=1) %}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ "
       "ns.a }}{{ ns.b is defined }}",
       "4False"},
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
      {"{% set t %}  block {{ n }} {% endset %}[{{ t }}]", "[  block 7 ]"},
      {"{% set t | upper | trim %} abc {% endset %}[{{ t }}]", "[ABC]"},
      {"{% with a = 1, b = 2 %}{{ a + b }}{% set a = 9 %}{{ a }}{% endwith %}{{ a }}", "39"},
      {"{% filter upper %}abc {{ name }}{% endfilter %}", "ABC ADA"},
      {"{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "BB"},
      {"{% if n > 9 %}a{% elif n > 6 %}b{% else %}c{% endif %}", "b"},
      {"{% if empty %}a{% elif none_value %}b{% elif d %}c{% endif %}", "c"},
      {"{% for i in range(3, 0, -1) %}{{ i }}{% endfor %} {{ range(2)|list }}", "321 [0, 1]"},
  });
}

TEST(ChatTemplate, Macros) {
  expect_renders({
      {"{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=3) "
       "}}{{ m(1, 5, 6) }}{{ m() }}",
       "12x;123;156;2x;"},
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
       "(1, 2){'k': 3}"},
      {"{% macro wrap(t) %}<{{ t }}>{{ caller('z') }}</{{ t }}>{% endmacro %}{% call(x) wrap('p') "
       "%}in {{ x }} {{ name }}{% endcall %}",
       "<p>in z ada</p>"},
      {"{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
       "321"},
      {"{% set g = 'top' %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 'later' %}{{ m() }}",
       "later"},
      {"{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y }}", "1"},
      {"{% macro outer() %}{% macro inner(a) %}({{ a }}){% endmacro %}{{ inner(1) }}{% endmacro "
       "%}{{ outer() }}",
       "(1)"},
      {"{% macro m(x) %}{{ x }}{% endmacro %}{{ [1,2]|map('string')|join('-') }}{{ m('q')|upper }}",
       "1-2Q"},
      {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "11"},
      {"{% macro m() %}{{ caller is defined }}{{ caller() if caller is defined and caller }}{% "
       "endmacro %}{% call m() %}!{% endcall %}",
       "True!"},
  });
}

}  // namespace
}  // namespace coppice::testing

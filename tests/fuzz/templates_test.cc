// Chat templates, damaged and hostile: each renders, or one line says why not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "chat/budget.h"
#include "chat/interpreter.h"
#include "chat/json.h"
#include "chat/parser.h"
#include "fuzz/mutator.h"

namespace coppice::testing {
namespace {

constexpr int mutants = 100;

// What a mutant may take: little, so that many mutants do.
constexpr std::size_t most_steps = 20'000, most_bytes = 1 << 20;

// Foreign text has letters that no template writes, with two cases.
constexpr std::string_view capital = "\U0001E900", small = "\U0001E922";

chat::Value conversation() {
  const std::string u = std::string(capital) + std::string(small);
  return chat::parse_json(R"({"messages": [{"role": "system", "content": " Be )" + u + R"(. "},
          {"role": "user", "content": ")" +
                              u + R"(\n%s {} \t )" + u + R"("},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f)" +
                              u + R"(", "arguments": {"a": [1, 2.5, true, null, ")" + u +
                              R"("]}}}]}],
          "tools": [{"name": "t)" +
                              u + R"(", "parameters": {")" + u + R"(": "string"}}],
          "u": ")" + u + R"(", "f": "%5d)" +
                              u + R"(%s", "d": {")" + u + R"(": 1, "k": ")" + u +
                              R"("}, "n": 3, "bos_token": "<s>", "add_generation_prompt": true})",
                          "context", true);
}

// What templates of models do, and what hostile ones try.
const std::vector<std::string>& seeds() {
  static const std::vector<std::string> all = {
      R"({%- macro say(role, text, mark='##') -%}
{{ mark }} {{ role|title }}: {{ text|trim }}{{ caller() if caller }}{{ kwargs }}{{ varargs }}
{% endmacro -%}
{% set ns = namespace(n=0, seen=[]) %}
{% for m in messages if m.role != 'tool' recursive %}
  {% set ns.n = ns.n + loop.index0 * 2 %}{% set ns.seen = ns.seen + [m.role] %}
  {% if loop.first and m['role'] == "system" %}{{ say(m.role, m.content, **d) }}
  {%- elif m.content is string and 'x' not in m.content[1:-1] %}
    {%- call say('user', m.content ~ '!') %} ({{ ns.n }}){% endcall %}
  {% else %}{% continue %}{% endif %}
{% else %}nothing{% endfor %}
{% filter upper %}{{ {'a': [1, 2.5, none, (true,)], u: u}|tojson(indent=2, separators=(u, u)) }}{% endfilter %}
{% set late %}{% generation %}{{ "%s-%03d"|format(u, 7) }}{% endgeneration %}{% endset %}
{{ late.split('-')|map('upper')|join(', ') if ns.n >= 0 else raise_exception('no') }})",
      R"({{- bos_token }}{%- if tools %}{{ '<tools>\n' }}{%- for tool in tools %}{{ tool | tojson(indent=4) }}
{%- endfor %}{%- endif %}{%- for message in messages[::-1] %}{%- set i = (messages|length - 1) - loop.index0 %}
{%- if message.content is string and message.content.startswith(' ') %}{{ message.content.split('%')[-1].lstrip('\n') }}
{%- elif message.tool_calls is defined and message.tool_calls is not none %}{%- for call in message.tool_calls %}
{{- call.function.name ~ '(' }}{%- for k, v in call.function.arguments|items %}{{ k }}={{ v|tojson if v is not string else v }}{{ ', ' if not loop.last }}{%- endfor %}{{ ')' }}
{%- endfor %}{%- endif %}{{ loop.cycle('a', u) }}{{ loop.changed(i) }}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %})",
      R"({% for k, v in tools[0].parameters.items() %}{{ k|upper }}{{ v is in ['string'] }}{% endfor %}{{ strftime_now('%d %b' ~ u) }}
{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first|replace(u, 'x')|indent(2, true) }}
{{ messages|groupby('role')|map('first')|list|sort(reverse=true)|unique|batch(2, u)|list }}{{ d|dictsort(by='value') }})",
      R"({{ 'abc'|truncate(1000000, leeway=-2000000) }}{{ u|truncate(2, true, u, 0) }}{{ 'a b'|truncate(4) }})",
      R"({{ 'x'|batch(fill_with=2) }}{{ u|slice(3, fill_with=u)|list }}{{ 'x'|slice(fill_with=2) }})",
      R"({{ u[10**9] }}{{ u[-1] }}{{ u[::-2] }}{{ f[1:-1:3] }}{{ messages[9223372036854775807:] }}{{ u.zfill(-9223372036854775807 - 1) }})",
      R"({{ 'x' * 10**12 }}{{ [0] * 10**9 }}{{ ('x' * 10**5) ~ ('y' * 10**5) }}{{ u.center(10**15, u[0]) }}{{ 'a\tb'.expandtabs(9223372036854775807) }})",
      R"({% set ns = namespace(t=u) %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %})",
      R"({% set ns = namespace(t=[u]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t|tojson }}{{ ns.t == ns.t }})",
      R"({{ f % (n, u) }}{{ f|format(n, 'a') }}{{ '{:>5}{x!r:.2}{0[0]}{y[k]}'.format(u, x=u, y=d) }}{{ '%(k)s' % d }}{{ '%-9.3s%c%+.2f%x' % (u, 65, 2.5, 255) }})",
      R"({{ namespace(**d) }}{{ dict(**d) }}{{ dict([(u, 1)]) }}{{ joiner(u)() }}{{ cycler(u, 1).next() }}{{ range(9, -9, -2)|list }})",
      R"({{ u.strip(f) }}{{ f.split(none, 1) }}{{ f.rsplit(u[0]) }}{{ f.partition('%') }}{{ f.find('s', -5, 10**18) }}{{ u.join([u, 'a']) }}{{ f.splitlines(true) }}{{ u.replace('', '-', 2) }})",
      R"({{ '12'|int(base=0) }}{{ 'zz'|int(u, 36) }}{{ '1e999'|float }}{{ 2.675|round(2, 'floor') }}{{ 1e300|round(-400) }}{{ -7 // 2 ** 3 % 5 }}{{ 5|abs }}{{ u|urlencode|wordcount }})",
      R"({% macro m(x) %}{{ m(x) if x else caller }}{% endmacro %}{{ m(1) }}{% call(a) m(0) %}{{ a }}{% endcall %})",
      R"({% with a = 1, b = u %}{% with c = b %}{% set x %}{{ c }}{% endset %}{{ x|e|safe|forceescape }}{% endwith %}{% endwith %}{% raw %}{{ x }}{% endraw %})",
      R"({{ messages|map('attr', 'x')|select('undefined')|list|length }}{{ [3, 1, 2]|sum(start=n)|string|int|round }}{{ ['a', u]|max }}{{ d|items|list|last|reverse|list|join(u) }})"};
  return all;
}

// The words of a template: names, numbers, texts in quotes, signs.
std::vector<std::string> words_of(std::string_view source) {
  std::vector<std::string> words;
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (std::size_t at = 0; at < source.size();) {
    std::size_t end = at + 1;
    if (is_word(source[at])) {
      while (end < source.size() && is_word(source[end])) ++end;
    } else if (source[at] == '\'' || source[at] == '"') {
      end = std::min(source.find(source[at], end), source.size() - 1) + 1;
    } else if (end < source.size() && (source[at] == '{' || source[end] == '}')) {
      ++end;
    }
    words.emplace_back(source.substr(at, end - at));
    at = end;
  }
  return words;
}

class TemplateMutator {
 public:
  explicit TemplateMutator(std::uint32_t seed) : bytes_(seed) {
    for (const std::string& source : seeds()) {
      for (std::string& word : words_of(source)) {
        if (word != " ") pieces_.push_back(std::move(word));
      }
    }
    const auto add = [&](const auto& table, const std::string& before, const std::string& after) {
      for (const auto& [name, callee] : table)
        pieces_.push_back(before + std::string(name) + after);
    };
    for (int round = 0; round < 2; ++round) {
      const std::string after = round == 0 ? "" : "(u)";
      add(chat::text_filters(), "|", after);
      add(chat::sequence_filters(), "|", after);
      add(chat::string_methods(), ".", round == 0 ? "()" : "(u)");
      add(chat::dict_methods(), ".", "()");
      add(chat::list_methods(), ".", "(u)");
      add(chat::functions(), "", "(u)");
      add(chat::tests(), " is ", after);
    }
    for (const char* piece : {"none", "missing", "true",    "-1",  "10**18", "9223372036854775807",
                              "1.5",  "''",      "u",       "f",   "d",      "[]",
                              "(u,)", "{u: u}",  "**d",     "*u",  "|list",  " ~ u",
                              " % u", "(",       ")",       "[",   "]",      ",",
                              "=",    "{{ ",     " }}",     "{% ", " %}",    "{# ",
                              "-%}",  "loop",    "messages"}) {
      for (int i = 0; i < 5; ++i) pieces_.push_back(piece);
    }
  }

  std::string mutate(const std::string& source) {
    if (bytes_.below(4) == 0) return bytes_.mutate(source);
    std::vector<std::string> words = words_of(source);
    for (std::size_t changes = 1 + bytes_.below(5); changes > 0 && !words.empty(); --changes) {
      const auto at = words.begin() + static_cast<std::ptrdiff_t>(bytes_.below(words.size()));
      switch (bytes_.below(4)) {
        case 0:
          *at = pieces_[bytes_.below(pieces_.size())];
          break;
        case 1:
          words.insert(at, pieces_[bytes_.below(pieces_.size())]);
          break;
        case 2:
          words.erase(at);
          break;
        default:
          std::swap(*at, words[bytes_.below(words.size())]);
      }
    }
    std::string out;
    for (const std::string& word : words) out += word;
    return out;
  }

 private:
  Mutator bytes_;
  std::vector<std::string> pieces_;
};

struct Tally {
  int rendered = 0, refused = 0, out_of_budget = 0;
};

void expect_bounded(const std::string& source, const chat::Dict& context, Tally& tally) {
  if (!is_valid_utf8(source)) return;
  const chat::Budget budget(most_steps, most_bytes);
  try {
    const chat::Block block = chat::Parser(source).parse();
    chat::Interpreter interpreter(context, 0);
    const chat::Text text = interpreter.render(block);
    ++tally.rendered;
    EXPECT_TRUE(is_valid_utf8(text.view())) << source;
    EXPECT_LE(text.size(), most_bytes) << source;
    for (const chat::Segment& part : text.segments()) {
      EXPECT_TRUE(part.foreign || part.text.find(capital.substr(0, 3)) == part.text.npos)
          << source << "\nloses who wrote " << part.text;
    }
  } catch (const chat::TemplateError& error) {
    ++tally.refused;
    const std::string_view what = error.what();
    if (what.find("more than 0 million steps") != what.npos ||
        what.find("fills more") != what.npos) {
      ++tally.out_of_budget;
    }
  }
  EXPECT_LE(budget.steps_left(), most_steps) << source;
  EXPECT_LE(budget.bytes_left(), most_bytes) << source;
}

// COPPICE_TEMPLATE_MUTANTS=100000 and COPPICE_TEMPLATE_SEED=2 make another, longer run.
int from_environment(const char* name, int fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : fallback;
}

TEST(Templates, DamagedOrHostileAreBoundedAndKeepTheirMarks) {
  const chat::Value context = conversation();
  TemplateMutator mutator(static_cast<std::uint32_t>(from_environment("COPPICE_TEMPLATE_SEED", 1)));
  Tally tally;
  for (int round = from_environment("COPPICE_TEMPLATE_MUTANTS", mutants); round > 0; --round) {
    for (const std::string& seed : seeds()) {
      std::string source = seed;
      for (int generation = 0; generation < 4; ++generation) {
        expect_bounded(source, context.as_dict(), tally);
        if (::testing::Test::HasFailure()) return;
        source = mutator.mutate(source);
      }
    }
  }
  // Enough of each kind, or the mutants are of no use.
  std::printf("%d rendered, %d refused, %d of them for their budget\n", tally.rendered,
              tally.refused, tally.out_of_budget);
  EXPECT_GT(tally.rendered * 10, tally.refused);
  EXPECT_GT(tally.out_of_budget, 0);
}

}  // namespace
}  // namespace coppice::testing

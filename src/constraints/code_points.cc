#include "constraints/code_points.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "models/tokenizer/code_points.h"

namespace coppice::constraints {
namespace {

constexpr std::uint32_t first_surrogate = 0xd800, last_surrogate = 0xdfff;

}  // namespace

std::vector<std::pair<std::uint32_t, std::uint32_t>> CodePoints::ranges() const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sorted;
  for (const auto& [low, high] : ranges_) {
    if (low < first_surrogate) sorted.emplace_back(low, std::min(high, first_surrogate - 1));
    if (high > last_surrogate) sorted.emplace_back(std::max(low, last_surrogate + 1), high);
  }
  std::erase_if(sorted, [](const auto& range) { return range.first > range.second; });
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> apart;
  for (const auto& range : sorted) {
    if (!apart.empty() && range.first <= apart.back().second + 1) {
      apart.back().second = std::max(apart.back().second, range.second);
    } else {
      apart.push_back(range);
    }
  }
  return apart;
}

CodePoints CodePoints::others() const {
  CodePoints rest;
  std::uint32_t next = 0;
  for (const auto& [low, high] : ranges()) {
    if (low > next) rest.add(next, low - 1);
    next = high + 1;
  }
  if (next <= last) rest.add(next, last);
  return rest;
}

CodePoints CodePoints::without(const CodePoints& some) const {
  CodePoints rest = others();
  rest.add(some);
  return rest.others();
}

bool CodePoints::has(std::uint32_t code_point) const {
  return std::ranges::any_of(ranges_, [&](const auto& range) {
    return code_point >= range.first && code_point <= range.second;
  });
}

std::uint32_t take_utf8(std::string_view& text, bool& is_valid) {
  const int length = utf8_sequence(text);
  const auto lead = static_cast<unsigned char>(text.front());
  is_valid = length > 0;
  if (length <= 1) {
    text.remove_prefix(1);
    return lead;
  }
  return static_cast<std::uint32_t>(tokenization::take_code_point(text));
}

namespace {

// Characters low to high, which have `length` bytes each, as few sequences of byte ranges.
void add_sequences(Expressions& x, std::uint32_t low, std::uint32_t high, int length,
                   std::vector<Expr>& found) {
  // Splits where bytes behind the first do not take their whole range.
  for (int i = 1; i < length; ++i) {
    const std::uint32_t mask = (1u << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      add_sequences(x, low, low | mask, length, found);
      add_sequences(x, (low | mask) + 1, high, length, found);
      return;
    }
    if ((high & mask) != mask) {
      add_sequences(x, low, (high & ~mask) - 1, length, found);
      add_sequences(x, high & ~mask, high, length, found);
      return;
    }
  }
  std::string from, to;
  tokenization::append_utf8(static_cast<std::int32_t>(low), from);
  tokenization::append_utf8(static_cast<std::int32_t>(high), to);
  Expr sequence = empty;
  for (std::size_t i = from.size(); i > 0; --i) {
    const auto set = ByteSet::range(static_cast<unsigned char>(from[i - 1]),
                                    static_cast<unsigned char>(to[i - 1]));
    sequence = x.concat(x.bytes(set), sequence);
  }
  found.push_back(sequence);
}

}  // namespace

Expr utf8(Expressions& expressions, const CodePoints& characters) {
  constexpr std::array<std::uint32_t, 4> lasts = {0x7f, 0x7ff, 0xffff, CodePoints::last};
  std::vector<Expr> found;
  for (auto [low, high] : characters.ranges()) {
    for (std::size_t i = 0; i < lasts.size() && low <= high; ++i) {
      if (low > lasts[i]) continue;
      add_sequences(expressions, low, std::min(high, lasts[i]), static_cast<int>(i) + 1, found);
      low = lasts[i] + 1;
    }
  }
  return expressions.either(std::move(found));
}

Expr json_character(Expressions& expressions, const CodePoints& characters) {
  CodePoints escapes(0, 0x1f);
  escapes.add('"', '"');
  escapes.add('\\', '\\');
  std::vector<Expr> all = {utf8(expressions, characters.without(escapes))};
  for (const auto& [low, high] : escapes.ranges()) {
    for (std::uint32_t c = low; c <= high; ++c) {
      const char character = static_cast<char>(c);
      if (characters.has(c)) all.push_back(expressions.text(json_spelt({&character, 1})));
    }
  }
  return expressions.either(std::move(all));
}

std::string json_spelt(std::string_view text) {
  const std::string quoted = nlohmann::json(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace coppice::constraints

#include "conversation/answer_text.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace coppice::conversation {
namespace {

/// A list of [begin, end) in bytes of the content: added tokens are spelt there, and elsewhere not.
constexpr std::string_view real_key = "added_tokens_at";

/// Spells ordinary tokens. Behind an added token some tokenizers put a space before the first word,
/// which the text then must not have.
std::string spelt(const Tokenizer& tokenizer, TokenId before, const std::vector<TokenId>& tokens) {
  std::string bytes;
  for (const TokenId token : tokens) bytes += tokenizer.bytes_of(token);
  std::string text = to_valid_utf8(bytes);
  if (!text.starts_with(' ') || tokenizer.added_text(before).empty()) return text;
  if (tokenizer.encode_typed(text, before) == tokens) return text;
  std::string without = text.substr(1);
  return tokenizer.encode_typed(without, before) == tokens ? without : text;
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, const chat::Text& text, bool all_own,
                             TokenId before) {
  const std::vector<chat::Segment> segments = text.segments();
  std::vector<TextPart> parts;
  for (const chat::Segment& one : segments) parts.push_back({one.text, one.foreign && !all_own});
  return tokenizer.encode(parts, before);
}

chat::Value named(std::string_view key) { return chat::Value(std::string(key)); }

chat::Text own_text(const chat::Text& text) { return chat::Text(text.bytes()); }

/// The same where `ranges` says so.
chat::Text own_text(const chat::Text& text, const chat::Value& ranges, const std::string& where) {
  const auto refuse = [&] {
    throw_usage(cat(where, ": \"", real_key,
                    "\" must list pairs of bytes of the content, in order; ",
                    "leave it out, and all added tokens that the content spells are real"));
  };
  chat::Text out;
  if (!ranges.is_list()) refuse();
  for (const chat::Value& range : ranges.as_list().items) {
    if (!range.is_list() || range.as_list().items.size() != 2) refuse();
    const chat::Value &from = range.as_list().items[0], &to = range.as_list().items[1];
    if (!from.is_int() || !to.is_int()) refuse();
    const std::int64_t begin = from.as_int(), end = to.as_int();
    if (std::cmp_less(begin, out.size()) || end < begin || std::cmp_greater(end, text.size())) {
      refuse();
    }
    const auto first = static_cast<std::size_t>(begin), last = static_cast<std::size_t>(end);
    out.append(text.view().substr(out.size(), first - out.size()), true);
    out.append(text.view().substr(first, last - first));
  }
  out.append(text.view().substr(out.size()), true);
  return out;
}

/// Text blocks of a content that is a list.
chat::Value own_blocks(const chat::Value& list) {
  std::vector<chat::Value> blocks = list.as_list().items;
  for (chat::Value& block : blocks) {
    if (!block.is_dict()) continue;
    std::vector<std::pair<chat::Value, chat::Value>> items = block.as_dict().items;
    for (auto& [key, value] : items) {
      if (key.text().view() == "text" && value.is_string()) value = own_text(value.text());
    }
    block = chat::Value::dict(std::move(items));
  }
  return chat::Value::list(std::move(blocks));
}

}  // namespace

chat::Text answer_text(const Tokenizer& tokenizer, TokenId before, std::span<const TokenId> tokens,
                       const std::string& shown) {
  chat::Text text;
  std::vector<TokenId> run;  // of ordinary tokens
  std::string of_tokens;     // what they show
  const auto end_run = [&] {
    text.append(spelt(tokenizer, before, run), true);
    run.clear();
  };
  for (const TokenId token : tokens) {
    of_tokens += tokenizer.bytes_of(token);
    const std::string_view added = tokenizer.added_text(token);
    if (added.empty()) {
      run.push_back(token);
      continue;
    }
    end_run();
    text.append(added);
    before = token;
  }
  end_run();
  of_tokens = to_valid_utf8(of_tokens);
  if (!shown.starts_with(of_tokens)) return chat::Text(shown, true);
  text.append(std::string_view(shown).substr(of_tokens.size()), true);
  return text;
}

chat::Value answer_message(const Tokenizer& tokenizer, TokenId before, const chat::Text& text) {
  std::vector<std::pair<chat::Value, chat::Value>> items = {
      {named("role"), chat::Value(chat::Text("assistant", true))},
      {named("content"), chat::Value(text)}};
  if (encoded(tokenizer, text, true, before) != encoded(tokenizer, text, false, before)) {
    std::vector<chat::Value> ranges;
    std::size_t begin = 0;
    for (const chat::Segment& one : text.segments()) {
      const std::size_t end = begin + one.text.size();
      if (!one.foreign) ranges.push_back(chat::Value::list({chat::Value(begin), chat::Value(end)}));
      begin = end;
    }
    items.emplace_back(named(real_key), chat::Value::list(std::move(ranges)));
  }
  return chat::Value::dict(std::move(items));
}

chat::Value owned_answer(const chat::Value& message, const std::string& where) {
  constexpr std::array<std::string_view, 4> written = {"content", "reasoning_content", "reasoning",
                                                       "thinking"};
  const chat::Value* const ranges = message.as_dict().named(real_key);
  std::vector<std::pair<chat::Value, chat::Value>> items = message.as_dict().items;
  for (auto& [key, value] : items) {
    const std::string_view name = key.text().view();
    if (std::find(written.begin(), written.end(), name) == written.end()) continue;
    if (value.is_string()) {
      value = ranges != nullptr && name == "content" ? own_text(value.text(), *ranges, where)
                                                     : own_text(value.text());
    } else if (value.is_list()) {
      value = own_blocks(value);
    }
  }
  return chat::Value::dict(std::move(items));
}

}  // namespace coppice::conversation

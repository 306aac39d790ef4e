#include "cli/chat_session.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/one_request.h"
#include "conversation/answer_text.h"
#include "conversation/tokens.h"
#include "engine/access.h"

namespace coppice::cli {

Generation ChatSession::answer(const std::string& text, const PieceCallback& callback,
                               const std::stop_token& stop) {
  conversation_.add("user", text);
  try {
    return go_on(callback, stop);
  } catch (...) {
    conversation_.remove_last();
    throw;
  }
}

Generation ChatSession::retry(const PieceCallback& callback, const std::stop_token& stop) {
  const chat::Value answer = conversation_.remove_last();
  taken_back_ = true;
  try {
    Generation result = go_on(callback, stop);
    // The answer that this one replaces began the same turn.
    if (turns_.size() > 1) turns_.erase(turns_.end() - 2);
    return result;
  } catch (...) {
    conversation_.add(answer);
    throw;
  }
}

std::optional<std::string> ChatSession::undo() {
  if (!conversation_.has_turn()) return std::nullopt;
  taken_back_ = true;
  // What is typed next may spell what is taken back, and then be other tokens.
  if (!turns_.empty()) {
    marks_.resize(std::min(marks_.size(), turns_.back()));
    turns_.pop_back();
    kept_.resize(marks_.empty() ? 0 : marks_.back().bytes);
  }
  conversation_.remove_last();
  return conversation_.remove_last().as_dict().named("content")->text().bytes();
}

Generation ChatSession::go_on(const PieceCallback& callback, const std::stop_token& stop) {
  // A template may leave out what was said long ago: its text does not bound what is kept.
  EngineAccess(engine_).check_bytes(conversation_.bytes(), 0, "conversation");
  const chat::Text whole = conversation_.text();
  const std::int32_t before = length();
  Request request;
  request.tokens = cut_back(whole);
  request.options = request_;
  request.sequence = &sequence_;
  request.callback = [&](std::int32_t, const Piece& piece) { return callback(piece); };
  computed_again_ = taken_back_ ? 0 : before - length();
  const Mark prompt = {whole.size(), length() + static_cast<std::int32_t>(request.tokens.size())};
  const Outcome outcome = write_request(engine_, request, stop);
  const Generation& result = outcome.samples.front();
  taken_back_ = false;
  turns_.push_back(marks_.size());
  marks_.push_back(prompt);
  const auto begun = static_cast<std::size_t>(prompt.tokens);
  const TokenId last = sequence_.tokens()[begun - 1];
  const auto answered = sequence_.tokens().subspan(begun);
  const Tokenizer& tokenizer = EngineAccess(engine_).tokenizer();
  const chat::Text said = conversation::answer_text(tokenizer, last, answered, result.text);
  kept_ = whole.bytes() + said.bytes();
  // If a stop text cut a token in two, the answer's end is no place to go on from.
  const bool exact = engine_.detokenize(answered) == result.text;
  if (exact && !said.empty()) marks_.push_back({kept_.size(), length()});
  conversation_.add(conversation::answer_message(tokenizer, last, said));
  request_.stream += 1;
  return result;
}

// Keeps of the sequence what `whole` begins with; returns the tokens of the rest.
std::vector<TokenId> ChatSession::cut_back(const chat::Text& whole) {
  const std::string_view text = whole.view();
  const auto differs = std::mismatch(kept_.begin(), kept_.end(), text.begin(), text.end()).first;
  const auto common = static_cast<std::size_t>(differs - kept_.begin());
  while (!marks_.empty() && marks_.back().bytes > common) marks_.pop_back();
  if (!marks_.empty() && marks_.back().bytes == text.size()) {
    // All of it is there. Its last token leads on.
    const std::int32_t last = marks_.back().tokens - 1;
    const TokenId token = sequence_.tokens()[static_cast<std::size_t>(last)];
    marks_.pop_back();
    sequence_.rewind(last);
    return {token};
  }
  const Mark end = marks_.empty() ? Mark{0, 0} : marks_.back();
  const chat::Text rest = whole.substr(end.bytes);
  std::vector<TokenId> tokens =
      conversation::tokens_of(engine_, rest, conversation_.raw(), request_.add_bos,
                              sequence_.tokens().first(static_cast<std::size_t>(end.tokens)));
  sequence_.rewind(end.tokens);
  return tokens;
}

void ChatSession::reset() {
  conversation_.clear();
  sequence_ = engine_.new_sequence();
  kept_.clear();
  marks_.clear();
  turns_.clear();
  computed_again_ = 0;
}

}  // namespace coppice::cli

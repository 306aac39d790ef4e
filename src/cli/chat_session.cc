#include "cli/chat_session.h"

namespace coppice::cli {

Generation ChatSession::answer(const std::string& text, const PieceCallback& callback) {
  conversation_.add("user", text);
  try {
    const chat::Text whole = conversation_.text();
    const bool extends =
        exact_ && whole.view().size() > kept_.size() && whole.view().starts_with(kept_);
    const std::int32_t before = extends ? length() : 0;
    const chat::Text fresh = extends ? whole.substr(kept_.size()) : whole;
    const std::vector<TokenId> tokens =
        tokens_of(engine_, fresh, conversation_.raw(), request_.add_bos, before);
    computed_again_ = 0;
    if (!extends) {
      computed_again_ = length();
      sequence_ = engine_.new_sequence();
      kept_.clear();
      exact_ = true;
    }
    const Generation result = sequence_.generate(tokens, request_, callback);
    const auto answered =
        sequence_.tokens().subspan(static_cast<std::size_t>(before) + tokens.size());
    kept_ = whole.bytes() + result.text;
    // A stop text may have cut a token in two.
    exact_ = engine_.detokenize(answered) == result.text;
    conversation_.add("assistant", result.text);
    request_.stream += 1;
    return result;
  } catch (...) {
    conversation_.remove_last();
    throw;
  }
}

void ChatSession::reset() {
  conversation_.clear();
  sequence_ = engine_.new_sequence();
  kept_.clear();
  exact_ = true;
  computed_again_ = 0;
}

}  // namespace coppice::cli

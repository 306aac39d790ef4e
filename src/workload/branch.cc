#include "workload/branch.h"

#include <utility>

namespace coppice::workload {
namespace {

// What a text is given so that it goes on behind its last token: nothing, or that token once more.
template <typename Text>
std::vector<TokenId> behind(Text& text) {
  if constexpr (requires { text.truncate(0); }) {
    const TokenId last = text.tokens().back();
    text.truncate(static_cast<std::int32_t>(text.tokens().size()) - 1);
    return {last};
  } else {
    return {};
  }
}

}  // namespace

Branch::Branch(Engine& engine, std::vector<TokenId> prompt)
    : text_(engine.new_sequence()), given_(std::move(prompt)) {}

Branch Branch::fork(Engine& engine) const { return copy(engine, 0); }

Branch Branch::copy(Engine& engine, std::int32_t /*mark*/) const {
  const auto tokens = text_.tokens();
  std::vector<TokenId> all(tokens.begin(), tokens.end());
  all.insert(all.end(), given_.begin(), given_.end());
  return {engine, std::move(all)};
}

void Branch::ask(Request& request) {
  request.sequence = &text_;
  if (given_.empty()) given_ = behind(text_);
  request.tokens = std::exchange(given_, {});
}

}  // namespace coppice::workload

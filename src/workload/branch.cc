#include "workload/branch.h"

#include <utility>

namespace coppice::workload {

Branch::Branch(Engine& engine, std::vector<TokenId> prompt, bool shared)
    : text_(engine.new_sequence()) {
  if (!shared) {
    given_ = std::move(prompt);
    return;
  }
  prompt_ = std::make_unique<Prefix>(engine.prefix(prompt));
  text_ = prompt_->begin();
}

Branch Branch::fork() const { return Branch(text_.fork()); }

Branch Branch::copy(Engine& engine, std::int32_t mark) const {
  Branch copy(engine.new_sequence());
  const auto tokens = text_.tokens();
  copy.given_.assign(tokens.begin(), tokens.end());
  copy.given_.insert(copy.given_.end(), given_.begin(), given_.end());
  copy.given_.front() = static_cast<TokenId>(mark % engine.vocab_size());
  return copy;
}

void Branch::ask(Request& request) {
  request.sequence = &text_;
  request.tokens = std::exchange(given_, {});
}

}  // namespace coppice::workload

#include "workload/branch.h"

#include <utility>

namespace coppice::workload {

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
  if (given_.empty()) {
    const auto tokens = text_.tokens();
    given_ = {tokens.back()};
    text_.truncate(static_cast<std::int32_t>(tokens.size()) - 1);
  }
  request.tokens = std::exchange(given_, {});
}

}  // namespace coppice::workload

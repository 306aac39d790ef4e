#include "constraints/constraint.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "constraints/masks.h"

namespace coppice::constraints {

// The least recently used masks go first, by halves: what was not asked for since the cache was
// last half full.
class MaskCache {
 public:
  std::shared_ptr<const Mask> find(Expr state) {
    if (const auto found = recent_.find(state); found != recent_.end()) return found->second;
    const auto found = older_.find(state);
    if (found == older_.end()) return nullptr;
    auto mask = found->second;
    older_.erase(found);
    keep(state, mask);
    return mask;
  }
  void keep(Expr state, const std::shared_ptr<const Mask>& mask) {
    const std::size_t bytes = mask->words.size() * 4 + 100;
    if (!recent_.empty() && (recent_.size() + 1) * bytes > mask_cache / 2) {
      older_ = std::exchange(recent_, {});
    }
    recent_[state] = mask;
  }
  std::size_t size() const { return recent_.size() + older_.size(); }

 private:
  std::unordered_map<Expr, std::shared_ptr<const Mask>> recent_, older_;
};

struct Constraint::Machine {
  Machine(const Vocabulary& vocabulary, const Language& language)
      : expressions(language.expressions), start(language.start), masks(vocabulary, expressions) {}

  mutable std::mutex mutex;
  Expressions expressions;
  const Expr start;
  Masks masks;
  MaskCache cache;
  std::unordered_map<Expr, std::vector<TokenId>> forced;

  void begin_call() {
    expressions.restart();
    expressions.trim();
  }
  void require(State state) const {
    if (state <= 0 || static_cast<std::size_t>(state) >= expressions.size()) {
      throw_usage(cat("state ", state, " is none of this constraint; take it from advance()"));
    }
  }
};

Constraint::Constraint(std::shared_ptr<const Vocabulary> vocabulary,
                       const std::shared_ptr<const Language>& language)
    : vocabulary_(std::move(vocabulary)),
      machine_(std::make_unique<Machine>(*vocabulary_, *language)) {}

Constraint::~Constraint() = default;

const Vocabulary& Constraint::vocabulary() const { return *vocabulary_; }

Constraint::State Constraint::start() const { return machine_->start; }

Constraint::State Constraint::advance(State state, TokenId token) const {
  if (token < 0 || token >= vocabulary_->size()) return nowhere;
  if (vocabulary_->is_end(token)) return accepting(state) ? empty : nowhere;
  const std::string_view bytes = vocabulary_->bytes(token);
  return bytes.empty() ? nowhere : advance(state, bytes);
}

Constraint::State Constraint::advance(State state, std::string_view bytes) const {
  const std::lock_guard lock(machine_->mutex);
  machine_->require(state);
  machine_->begin_call();
  for (const char c : bytes) {
    state = machine_->expressions.next(state, static_cast<unsigned char>(c));
    if (state == nothing) return nowhere;
  }
  return state;
}

bool Constraint::accepting(State state) const {
  if (state == nowhere) return false;
  const std::lock_guard lock(machine_->mutex);
  machine_->require(state);
  return machine_->expressions.nullable(state);
}

std::shared_ptr<const Mask> Constraint::mask(State state) const {
  const std::lock_guard lock(machine_->mutex);
  machine_->require(state);
  if (auto known = machine_->cache.find(state)) return known;
  machine_->begin_call();
  auto mask = machine_->masks.make(state);
  machine_->cache.keep(state, mask);
  return mask;
}

std::string Constraint::forced_text(State state, State* after) const {
  const std::lock_guard lock(machine_->mutex);
  machine_->require(state);
  machine_->begin_call();
  std::string text;
  while (text.size() < longest_forced && !machine_->expressions.nullable(state)) {
    const auto edges = machine_->expressions.edges(state);
    if (edges.size() != 1) break;
    const ByteSet& set = machine_->expressions.set(edges.front().set);
    if (set.count() != 1) break;
    text.push_back(static_cast<char>(set.first()));
    state = edges.front().to;
  }
  if (after != nullptr) *after = state;
  return text;
}

std::vector<TokenId> Constraint::forced(State state) const {
  {
    const std::lock_guard lock(machine_->mutex);
    if (const auto known = machine_->forced.find(state); known != machine_->forced.end()) {
      return known->second;
    }
  }
  std::vector<TokenId> tokens = spelt_forced(state);
  const std::lock_guard lock(machine_->mutex);
  if (machine_->forced.size() >= most_forced) machine_->forced.clear();
  machine_->forced[state] = tokens;
  return tokens;
}

std::vector<TokenId> Constraint::spelt_forced(State state) const {
  State after;
  const std::string text = forced_text(state, &after);
  if (text.empty()) return {};
  std::vector<TokenId> tokens;
  std::string_view left = text;
  for (const TokenId token : vocabulary_->spell(text)) {
    const std::string_view bytes =
        token >= 0 && token < vocabulary_->size() ? vocabulary_->bytes(token) : "";
    if (bytes.empty() || !left.starts_with(bytes)) break;
    left.remove_prefix(bytes.size());
    tokens.push_back(token);
  }
  // The text may go on with what makes a longer token of the last one.
  if (left.empty() && !accepting(after) &&
      vocabulary_->has_longer(vocabulary_->bytes(tokens.back()))) {
    tokens.pop_back();
  }
  return tokens;
}

Constraint::Usage Constraint::usage() const {
  const std::lock_guard lock(machine_->mutex);
  Usage usage;
  usage.states = machine_->expressions.size();
  usage.masks = machine_->cache.size();
  usage.filled = machine_->expressions.filled();
  usage.bytes = machine_->expressions.memory() + machine_->masks.memory() +
                usage.masks * (vocabulary_->words() * 4 + 100);
  return usage;
}

}  // namespace coppice::constraints

#include "engine/custom_drafting.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "drafting/any_tree.h"

namespace coppice {
namespace {

// If any tree is exact, this many nodes are drawn for every one that can be kept.
constexpr std::int64_t drawn_per_kept = 8;

class Growth final : public GrowingTree {
 public:
  Growth(const std::string& name, ChildDraw draw) : name_(name), draw_(draw) {}

  void begin(DraftSource& source, const GrowthLimits& limits, TokenId root) {
    source_ = &source;
    limits_ = limits;
    arena_.reset(root);
    state_.assign(1, Node{});
    kept_ = evaluated_ = 0;
    failure_ = nullptr;
  }

  // The part of the tree that is kept. Siblings that were dropped leave no gap in the ranks.
  void finish(TokenTree& tree) {
    if (failure_) std::rethrow_exception(failure_);
    if (kept_ > limits_.max_size) {
      refuse(cat("grow() left ", kept_, " nodes in the tree, which holds at most ",
                 limits_.max_size, "; keep() fewer"));
    }
    tree.reset(arena_.token[0]);
    index_.assign(state_.size(), 0);
    children_.assign(state_.size(), 0);
    for (std::int32_t node = 1; node < arena_.nodes(); ++node) {
      const auto i = static_cast<std::size_t>(node);
      if (!state_[i].kept) continue;
      const auto parent = static_cast<std::size_t>(arena_.parent[i]);
      index_[i] = tree.add(index_[parent], arena_.token[i], children_[parent]++,
                           arena_.draft_prob[i], arena_.value[i]);
      tree.source.back() = node;
    }
  }

  // Until the next begin() every call is refused.
  void end() { source_ = nullptr; }

  bool failed() const { return failure_ != nullptr; }

  std::int32_t most_drawn() const {
    if (!any_tree_is_exact()) return limits_.max_size;
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(drawn_per_kept * limits_.max_size, INT32_MAX - 1));
  }

  std::int32_t max_size() const override { return limits_.max_size; }
  std::int32_t max_depth() const override { return limits_.max_depth; }
  std::int32_t room() const override { return std::max(0, limits_.max_size - kept_); }
  bool any_tree_is_exact() const override { return draw_ != ChildDraw::sampled; }
  std::int32_t nodes() const override { return arena_.nodes(); }

  DraftNode node(std::int32_t node) const override {
    return guarded([&] {
      require_node("node", node);
      const auto i = static_cast<std::size_t>(node);
      return DraftNode{arena_.token[i],
                       arena_.parent[i],
                       arena_.depth[i],
                       arena_.rank[i],
                       static_cast<double>(arena_.draft_prob[i]),
                       arena_.path_prob[i]};
    });
  }

  void evaluate(std::span<const std::int32_t> nodes) override {
    guarded([&] { evaluate_checked(nodes); });
  }

  std::optional<std::int32_t> draw(std::int32_t node, std::int32_t rank) override {
    return guarded([&] { return draw_checked(node, rank); });
  }

  void keep(std::span<const std::int32_t> nodes) override {
    guarded([&] { keep_checked(nodes); });
  }

 private:
  struct Node {
    bool kept = true;
    bool evaluated = false;
    bool exhausted = false;  // the draft has no further child for it
    std::int32_t drawn = 0;  // children drawn so far
    double mass = 0.0;       // their D
    double value = 1.0;      // of the last child's position, or its own
  };

  // A tree is not to be used once a call has failed, even by a policy that catches what it threw.
  template <typename Call>
  auto guarded(const Call& call) const -> decltype(call()) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      if (source_ == nullptr) refuse("the tree is used outside grow(); do not keep it");
      return call();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw_usage(cat("policy ", name_, ": ", what));
  }

  void require_node(const char* call, std::int32_t node) const {
    if (node < 0 || node >= arena_.nodes()) {
      refuse(cat(call, ": there is no node ", node, "; nodes go from 0 (the root) to ",
                 arena_.nodes() - 1));
    }
    if (!state_[static_cast<std::size_t>(node)].kept) {
      refuse(cat(call, ": node ", node, " was dropped by keep(); use nodes that were kept"));
    }
  }

  void evaluate_checked(std::span<const std::int32_t> nodes) {
    if (nodes.empty()) return;
    batch_.assign(nodes.begin(), nodes.end());
    std::sort(batch_.begin(), batch_.end());
    for (std::size_t b = 0; b < batch_.size(); ++b) {
      const std::int32_t node = batch_[b];
      require_node("evaluate", node);
      const auto i = static_cast<std::size_t>(node);
      if (state_[i].evaluated || (b > 0 && batch_[b - 1] == node)) {
        refuse(cat("evaluate: node ", node,
                   state_[i].evaluated ? " is evaluated already" : " stands twice in the list",
                   "; evaluate every node once"));
      }
      if (arena_.depth[i] >= limits_.max_depth) {
        refuse(cat("evaluate: node ", node, " has depth ", arena_.depth[i],
                   ", the deepest that is allowed; its children would be too deep"));
      }
    }
    const std::size_t others = batch_.size() - (batch_[0] == 0 ? 1 : 0);
    if (others > static_cast<std::size_t>(limits_.max_size - evaluated_)) {
      refuse(cat("evaluate: ", static_cast<std::size_t>(evaluated_) + others,
                 " nodes beside the root would be evaluated, at most ", limits_.max_size,
                 " may be; keep() fewer first"));
    }
    source_->evaluate(arena_, batch_);
    evaluated_ += static_cast<std::int32_t>(others);
    for (const std::int32_t node : batch_) state_[static_cast<std::size_t>(node)].evaluated = true;
  }

  std::optional<std::int32_t> draw_checked(std::int32_t node, std::int32_t rank) {
    require_node("draw", node);
    const auto i = static_cast<std::size_t>(node);
    if (!state_[i].evaluated) {
      refuse(cat("draw: node ", node, " is not evaluated; evaluate() it before"));
    }
    if (rank != state_[i].drawn) {
      refuse(cat("draw: rank ", rank, " of node ", node, ", whose next child has rank ",
                 state_[i].drawn, "; draw ranks in order"));
    }
    if (state_[i].exhausted) return std::nullopt;
    if (arena_.size() >= most_drawn()) {
      refuse(cat("draw: ", arena_.size(), " nodes are drawn, at most ", most_drawn(),
                 " may be; ask room() before"));
    }
    const auto drawn = source_->child(arena_, node, rank);
    if (!drawn) {
      state_[i].exhausted = true;
      return std::nullopt;
    }
    // DySpec, eq. 11, held below what came before.
    const double left = std::max(0.0, 1.0 - state_[i].mass);
    const double value = std::min(state_[i].value, arena_.path_prob[i] * left);
    Node child;
    child.value = value;
    const std::int32_t added = arena_.add(node, drawn->token, rank, drawn->prob, value);
    state_.push_back(child);
    Node& parent = state_[i];
    ++parent.drawn;
    parent.mass += static_cast<double>(drawn->prob);
    parent.value = value;
    ++kept_;
    return added;
  }

  void keep_checked(std::span<const std::int32_t> nodes) {
    require_any_tree_exact(cat("policy ", name_, ": keep"), draw_);
    wanted_.assign(state_.size(), 0);
    wanted_[0] = 1;
    for (const std::int32_t node : nodes) {
      require_node("keep", node);
      wanted_[static_cast<std::size_t>(node)] = 1;
    }
    for (const std::int32_t node : nodes) {
      const std::int32_t parent = arena_.parent[static_cast<std::size_t>(node)];
      if (parent >= 0 && wanted_[static_cast<std::size_t>(parent)] == 0) {
        refuse(cat("keep: node ", node, " is to stay and its parent ", parent,
                   " is not; name parents too"));
      }
    }
    dropped_.clear();
    for (std::size_t i = 1; i < state_.size(); ++i) {
      if (!state_[i].kept || wanted_[i] != 0) continue;
      state_[i].kept = false;
      if (state_[i].evaluated) --evaluated_;
      --kept_;
      dropped_.push_back(static_cast<std::int32_t>(i));
    }
    if (!dropped_.empty()) source_->forget(dropped_);
  }

  const std::string& name_;
  const ChildDraw draw_;
  DraftSource* source_ = nullptr;
  GrowthLimits limits_;
  TokenTree arena_;             // every drawn node
  std::vector<Node> state_;     // by arena node
  std::int32_t kept_ = 0;       // nodes in the tree, the root not counted
  std::int32_t evaluated_ = 0;  // of these
  mutable std::exception_ptr failure_;
  std::vector<std::int32_t> batch_, dropped_, index_, children_;
  std::vector<char> wanted_;
};

class CustomDraftPolicy final : public DraftPolicy {
 public:
  CustomDraftPolicy(std::string name, std::unique_ptr<CustomPolicy> policy, ChildDraw draw)
      : name_(std::move(name)), policy_(std::move(policy)), growth_(name_, draw) {}
  std::string name() const override { return name_; }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    if (limits.max_size <= 0 || limits.max_depth <= 0) {
      tree.reset(tree.token[0]);
      return;
    }
    growth_.begin(source, limits, tree.token[0]);
    const Closing closing{growth_};
    try {
      policy_->grow(growth_);
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      if (!growth_.failed()) {
        throw_failure(cat("policy ", name_, ": its grow() threw ", quote(error.what())));
      }
    } catch (...) {
      if (!growth_.failed()) {
        throw_failure(cat("policy ", name_, ": its grow() threw what is no std::exception"));
      }
    }
    growth_.finish(tree);
  }

 private:
  struct Closing {
    Growth& growth;
    ~Closing() { growth.end(); }
  };

  std::string name_;
  std::unique_ptr<CustomPolicy> policy_;
  Growth growth_;
};

}  // namespace

std::unique_ptr<DraftPolicy> adapt_policy(std::string name, std::unique_ptr<CustomPolicy> policy,
                                          ChildDraw draw) {
  return std::make_unique<CustomDraftPolicy>(std::move(name), std::move(policy), draw);
}

}  // namespace coppice

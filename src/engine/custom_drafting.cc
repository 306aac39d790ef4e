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

class CustomDraftPolicy final : public DraftPolicy, private GrowingTree {
 public:
  CustomDraftPolicy(std::string name, std::unique_ptr<CustomPolicy> policy, AcceptanceRule draw)
      : name_(std::move(name)), policy_(std::move(policy)), draw_(draw) {}
  std::string name() const override { return name_; }

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    state_.assign(1, Node{});
    kept_ = evaluated_ = 0;
    failure_ = nullptr;
    if (frontier_.empty()) return;
    ask("begin()", [&] {
      if (!policy_->begin(*this)) frontier_.clear();
    });
  }

  void take(DraftSource& source) override {
    for (const std::int32_t node : frontier_) {
      state_[static_cast<std::size_t>(node)].evaluated = true;
      if (node != 0) ++evaluated_;
    }
    std::vector<std::int32_t> next;
    source_ = &source;
    ask("grow()", [&] { next = policy_->grow(*this, frontier_); });
    std::sort(next.begin(), next.end());
    check_wanted(next);
    frontier_ = std::move(next);
    if (frontier_.empty() && kept_ > limits_.max_size) {
      refuse(cat("grow() left ", kept_, " nodes in the tree, which holds at most ",
                 limits_.max_size, "; keep() fewer"));
    }
  }

  void finish(TokenTree& tree) override {
    stay_.clear();
    for (std::int32_t node = 1; node < candidates_.nodes(); ++node) {
      if (state_[static_cast<std::size_t>(node)].kept) stay_.push_back(node);
    }
    tree.assign_part(candidates_, stay_);
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

  std::int32_t max_size() const override { return limits_.max_size; }
  std::int32_t max_depth() const override { return limits_.max_depth; }
  std::int32_t room() const override { return std::max(0, limits_.max_size - kept_); }
  bool any_tree_is_exact() const override { return draw_ != AcceptanceRule::rejection; }
  std::int32_t nodes() const override { return candidates_.nodes(); }

  DraftNode node(std::int32_t node) const override {
    return guarded(asked_, [&] {
      require_node("node", node);
      const auto i = static_cast<std::size_t>(node);
      return DraftNode{candidates_.token[i],
                       candidates_.parent[i],
                       candidates_.depth[i],
                       candidates_.rank[i],
                       static_cast<double>(candidates_.draft_prob[i]),
                       candidates_.path_prob[i]};
    });
  }

  std::optional<std::int32_t> draw(std::int32_t node) override {
    return guarded(source_ != nullptr, [&] { return draw_checked(node); });
  }

  void keep(std::span<const std::int32_t> nodes) override {
    guarded(source_ != nullptr, [&] { keep_checked(nodes); });
  }

  // Has the policy do something. Before and after it every call of the tree is refused.
  template <typename Call>
  void ask(const char* what, const Call& call) {
    struct Closing {
      CustomDraftPolicy& tree;
      ~Closing() {
        tree.asked_ = false;
        tree.source_ = nullptr;
      }
    } closing{*this};
    asked_ = true;
    try {
      call();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      if (!failure_)
        throw_failure(cat("policy ", name_, ": its ", what, " threw ", quote(error.what())));
    } catch (...) {
      if (!failure_) {
        throw_failure(cat("policy ", name_, ": its ", what, " threw what is no std::exception"));
      }
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  // A tree is not to be used once a call has failed, even by a policy that catches what it threw.
  template <typename Call>
  auto guarded(bool open, const Call& call) const -> decltype(call()) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      if (!open) refuse("the tree is used outside grow(); do not keep it");
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
    if (node < 0 || node >= candidates_.nodes()) {
      refuse(cat(call, ": there is no node ", node, "; nodes go from 0 (the root) to ",
                 candidates_.nodes() - 1));
    }
    if (!state_[static_cast<std::size_t>(node)].kept) {
      refuse(cat(call, ": node ", node, " was dropped by keep(); use nodes that were kept"));
    }
  }

  void check_wanted(std::span<const std::int32_t> nodes) const {
    constexpr const char* call = "what grow() returned";
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const std::int32_t node = nodes[n];
      require_node(call, node);
      const auto i = static_cast<std::size_t>(node);
      if (state_[i].evaluated || (n > 0 && nodes[n - 1] == node)) {
        refuse(cat(call, ": node ", node,
                   state_[i].evaluated ? " is evaluated already" : " stands twice in the list",
                   "; return every node once"));
      }
      if (candidates_.depth[i] >= limits_.max_depth) {
        refuse(cat(call, ": node ", node, " has depth ", candidates_.depth[i],
                   ", the deepest that is allowed; its children would be too deep"));
      }
    }
    if (nodes.size() > static_cast<std::size_t>(limits_.max_size - evaluated_)) {
      refuse(cat(call, ": ", static_cast<std::size_t>(evaluated_) + nodes.size(),
                 " nodes beside the root would be evaluated, at most ", limits_.max_size,
                 " may be; keep() fewer first"));
    }
  }

  // If any tree is exact, more nodes are drawn than can be kept.
  std::int32_t most_drawn() const {
    if (!any_tree_is_exact()) return limits_.max_size;
    constexpr std::int64_t drawn_per_kept = 8;
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(drawn_per_kept * limits_.max_size, INT32_MAX - 1));
  }

  std::optional<std::int32_t> draw_checked(std::int32_t node) {
    require_node("draw", node);
    const auto i = static_cast<std::size_t>(node);
    if (!state_[i].evaluated) {
      refuse(cat("draw: node ", node, " is not evaluated; return it from grow() before"));
    }
    if (state_[i].exhausted) return std::nullopt;
    if (candidates_.size() >= most_drawn()) {
      refuse(cat("draw: ", candidates_.size(), " nodes are drawn, at most ", most_drawn(),
                 " may be; ask room() before"));
    }
    const auto drawn = source_->child(candidates_, node, state_[i].drawn);
    if (!drawn) {
      state_[i].exhausted = true;
      return std::nullopt;
    }
    // DySpec, eq. 11, held below what came before.
    const double left = std::max(0.0, 1.0 - state_[i].mass);
    const double value = std::min(state_[i].value, candidates_.path_prob[i] * left);
    Node child;
    child.value = value;
    const std::int32_t added =
        candidates_.add(node, drawn->token, state_[i].drawn, drawn->prob, value);
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
    stays_.assign(state_.size(), 0);
    stays_[0] = 1;
    for (const std::int32_t node : nodes) {
      require_node("keep", node);
      stays_[static_cast<std::size_t>(node)] = 1;
    }
    for (const std::int32_t node : nodes) {
      const std::int32_t parent = candidates_.parent[static_cast<std::size_t>(node)];
      if (parent >= 0 && stays_[static_cast<std::size_t>(parent)] == 0) {
        refuse(cat("keep: node ", node, " is to stay and its parent ", parent,
                   " is not; name parents too"));
      }
    }
    dropped_.clear();
    for (std::size_t i = 1; i < state_.size(); ++i) {
      if (!state_[i].kept || stays_[i] != 0) continue;
      state_[i].kept = false;
      if (state_[i].evaluated) --evaluated_;
      --kept_;
      dropped_.push_back(static_cast<std::int32_t>(i));
    }
    if (!dropped_.empty()) source_->forget(dropped_);
  }

  const std::string name_;
  const std::unique_ptr<CustomPolicy> policy_;
  const AcceptanceRule draw_;
  bool asked_ = false;             // whether the policy is at work
  DraftSource* source_ = nullptr;  // while it may draw
  std::vector<Node> state_;        // by candidate
  std::int32_t kept_ = 0;          // nodes in the tree, the root not counted
  std::int32_t evaluated_ = 0;     // of these
  mutable std::exception_ptr failure_;
  std::vector<std::int32_t> dropped_, stay_;
  std::vector<char> stays_;
};

}  // namespace

std::unique_ptr<DraftPolicy> adapt_policy(std::string name, std::unique_ptr<CustomPolicy> policy,
                                          AcceptanceRule draw) {
  return std::make_unique<CustomDraftPolicy>(std::move(name), std::move(policy), draw);
}

}  // namespace coppice

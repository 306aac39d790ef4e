// Policies whose functions are written in C.
#include "c/policy.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c/options.h"

using namespace coppice;
using namespace coppice::c;

struct coppice_growing_tree {
  GrowingTree& tree;
};

namespace {

class ForeignPolicy final : public CustomPolicy {
 public:
  ForeignPolicy(const coppice_policy& policy, std::string name)
      : policy_(policy),
        name_(std::move(name)),
        state_(policy.create == nullptr ? policy.user : policy.create(policy.user)) {}
  ForeignPolicy(const ForeignPolicy&) = delete;
  ~ForeignPolicy() override {
    if (policy_.destroy != nullptr) policy_.destroy(state_);
  }

  bool begin(const GrowingTree& tree) override {
    if (policy_.begin == nullptr) return true;
    const coppice_growing_tree handle{const_cast<GrowingTree&>(tree)};  // handed on as const
    return policy_.begin(state_, &handle) != 0;
  }

  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    coppice_growing_tree handle{tree};
    std::vector<std::int32_t> next(static_cast<std::size_t>(tree.max_size()));
    const std::int32_t count =
        policy_.grow(state_, &handle, evaluated.data(), evaluated.size(), next.data());
    if (count < 0) {
      throw_failure(cat("policy ", name_, ": its grow() returned ", count,
                        ", which ends the generation; ask the policy why"));
    }
    if (count > tree.max_size()) {
      throw_usage(cat("policy ", name_, ": its grow() returned ", count, " nodes; return at most ",
                      tree.max_size()));
    }
    next.resize(static_cast<std::size_t>(count));
    return next;
  }

 private:
  const coppice_policy policy_;
  const std::string name_;
  void* const state_;
};

}  // namespace

namespace coppice::c {

template <>
coppice_policy usual() noexcept {
  return {};
}

Custom custom_of(const coppice_policy* policy) {
  const coppice_policy given = read_struct(policy, "own_policy");
  if (given.grow == nullptr) throw_usage("own_policy: its grow is NULL; give a function");
  Custom custom;
  if (given.name != nullptr) custom.name = given.name;
  custom.factory = [given, name = custom.name] {
    return std::make_unique<ForeignPolicy>(given, name);
  };
  custom.size = given.size;
  custom.depth = given.depth;
  return custom;
}

}  // namespace coppice::c

void coppice_policy_init(coppice_policy* policy, size_t size) { init_struct(policy, size); }

int32_t coppice_growing_tree_max_size(const coppice_growing_tree* tree) {
  return tree->tree.max_size();
}
int32_t coppice_growing_tree_max_depth(const coppice_growing_tree* tree) {
  return tree->tree.max_depth();
}
int32_t coppice_growing_tree_room(const coppice_growing_tree* tree) { return tree->tree.room(); }
int coppice_growing_tree_any_is_exact(const coppice_growing_tree* tree) {
  return tree->tree.any_tree_is_exact();
}
int32_t coppice_growing_tree_nodes(const coppice_growing_tree* tree) { return tree->tree.nodes(); }

coppice_status coppice_growing_tree_node(const coppice_growing_tree* tree, int32_t node,
                                         coppice_draft_node* facts, size_t size) {
  return guarded([&] {
    need(tree, "tree");
    need(facts, "facts");
    const DraftNode of = tree->tree.node(node);
    const coppice_draft_node own{of.token, of.parent,     of.depth,
                                 of.rank,  of.draft_prob, of.path_prob};
    fill_struct(own, facts, size);
  });
}

coppice_status coppice_growing_tree_draw(coppice_growing_tree* tree, int32_t node, int32_t* child) {
  return guarded([&] {
    need(tree, "tree");
    need(child, "child");
    *child = tree->tree.draw(node).value_or(-1);
  });
}

coppice_status coppice_growing_tree_keep(coppice_growing_tree* tree, const int32_t* nodes,
                                         size_t count) {
  return guarded([&] {
    need(tree, "tree");
    tree->tree.keep(span_of(nodes, count, "nodes"));
  });
}

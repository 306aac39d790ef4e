#include "policy.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace coppice_python {
namespace {

/// A step's tree, good while its policy is called.
class GrowingTree {
 public:
  explicit GrowingTree(coppice_growing_tree* tree) : tree_(tree) {}

  void end() { tree_ = nullptr; }
  std::int32_t max_size() const { return coppice_growing_tree_max_size(tree()); }
  std::int32_t max_depth() const { return coppice_growing_tree_max_depth(tree()); }
  std::int32_t room() const { return coppice_growing_tree_room(tree()); }
  bool any_is_exact() const { return coppice_growing_tree_any_is_exact(tree()) != 0; }
  std::int32_t nodes() const { return coppice_growing_tree_nodes(tree()); }

  coppice_draft_node node(std::int32_t node) const {
    coppice_draft_node facts;
    check(coppice_growing_tree_node(tree(), node, &facts, sizeof facts));
    return facts;
  }
  std::optional<std::int32_t> draw(std::int32_t node) const {
    std::int32_t child = -1;
    check(coppice_growing_tree_draw(tree(), node, &child));
    return child < 0 ? std::nullopt : std::optional(child);
  }
  void keep(const std::vector<std::int32_t>& nodes) const {
    check(coppice_growing_tree_keep(tree(), nodes.data(), nodes.size()));
  }

 private:
  coppice_growing_tree* tree() const {
    if (tree_ == nullptr) {
      raise(COPPICE_USAGE, "tree: it is good only while the policy is called; keep what it says");
    }
    return tree_;
  }

  coppice_growing_tree* tree_;
};

/// Hands a tree to Python for as long as this lives.
class LentTree {
 public:
  explicit LentTree(coppice_growing_tree* tree) : object_(nb::cast(GrowingTree(tree))) {}
  LentTree(const LentTree&) = delete;
  ~LentTree() { nb::cast<GrowingTree&>(object_).end(); }
  const nb::object& object() const { return object_; }

 private:
  nb::object object_;
};

}  // namespace

struct OwnPolicy::State {
  OwnPolicy* own;
  nb::object policy;  ///< null if the factory failed
};

OwnPolicy::OwnPolicy(nb::object factory) : factory_(std::move(factory)) {
  coppice_policy_init(&policy_, sizeof policy_);
  name_ = nb::cast<std::string>(
      nb::str(nb::getattr(factory_, "name", nb::getattr(factory_, "__name__", nb::str("custom")))));
  policy_.name = name_.c_str();
  policy_.user = this;
  policy_.create = create;
  policy_.destroy = destroy;
  policy_.begin = begin;
  policy_.grow = grow;
}

const coppice_policy* OwnPolicy::take_limits(std::int32_t size, std::int32_t depth) {
  policy_.size = size;
  policy_.depth = depth;
  return &policy_;
}

void* OwnPolicy::create(void* self) {
  auto* const own = static_cast<OwnPolicy*>(self);
  const nb::gil_scoped_acquire locked;
  auto state = std::make_unique<State>(own, nb::object());
  try {
    state->policy = own->factory_();
  } catch (nb::python_error& error) {
    own->note_failure(error);
  }
  return state.release();
}

void OwnPolicy::destroy(void* state) {
  const nb::gil_scoped_acquire locked;
  delete static_cast<State*>(state);
}

int OwnPolicy::begin(void* state, const coppice_growing_tree* tree) {
  const State& asked = *static_cast<State*>(state);
  const nb::gil_scoped_acquire locked;
  if (!asked.policy.is_valid() || !asked.own->failure_.is_none()) return 1;  // grow() says so
  int goes_on = 1;
  asked.own->note_failures("begin() has to return True or False", [&] {
    const LentTree lent(const_cast<coppice_growing_tree*>(tree));
    goes_on = nb::cast<bool>(asked.policy.attr("begin")(lent.object())) ? 1 : 0;
  });
  return goes_on;
}

std::int32_t OwnPolicy::grow(void* state, coppice_growing_tree* tree, const std::int32_t* evaluated,
                             std::size_t count, std::int32_t* next) {
  const State& asked = *static_cast<State*>(state);
  const nb::gil_scoped_acquire locked;
  if (!asked.policy.is_valid() || !asked.own->failure_.is_none()) return -1;
  std::int32_t all = -1;
  asked.own->note_failures("grow() has to return a list of nodes", [&] {
    const LentTree lent(tree);
    nb::list nodes;
    for (std::size_t i = 0; i < count; ++i) nodes.append(evaluated[i]);
    const nb::object grown = asked.policy.attr("grow")(lent.object(), nodes);
    const auto chosen = nb::cast<std::vector<std::int32_t>>(nb::list(grown));
    const auto most = static_cast<std::size_t>(coppice_growing_tree_max_size(tree));
    std::copy_n(chosen.begin(), std::min(chosen.size(), most), next);
    all = static_cast<std::int32_t>(chosen.size());
  });
  return all;
}

template <typename Ask>
void OwnPolicy::note_failures(const char* rule, const Ask& ask) {
  try {
    ask();
  } catch (nb::python_error& error) {
    note_failure(error);
  } catch (const std::exception&) {
    PyErr_SetString(PyExc_TypeError, rule);
    nb::python_error error;
    note_failure(error);
  }
}

void OwnPolicy::note_failure(nb::python_error& error) {
  if (failure_.is_none()) failure_ = nb::borrow(error.value());
}

void define_policy(nb::module_& module) {
  using Node = coppice_draft_node;
  nb::class_<Node>(module, "DraftNode", "One node of a growing tree.")
      .def_ro("token", &Node::token)
      .def_ro("parent", &Node::parent)
      .def_ro("depth", &Node::depth)
      .def_ro("rank", &Node::rank)
      .def_ro("draft_prob", &Node::draft_prob)
      .def_ro("path_prob", &Node::path_prob);
  nb::class_<GrowingTree>(module, "GrowingTree",
                          "The tree of one step while a policy grows it; good during a call only.")
      .def_prop_ro("max_size", &GrowingTree::max_size)
      .def_prop_ro("max_depth", &GrowingTree::max_depth)
      .def_prop_ro("room", &GrowingTree::room)
      .def_prop_ro("any_is_exact", &GrowingTree::any_is_exact)
      .def("__len__", &GrowingTree::nodes)
      .def("__getitem__", &GrowingTree::node)
      .def("draw", &GrowingTree::draw)
      .def("keep", &GrowingTree::keep);
}

}  // namespace coppice_python

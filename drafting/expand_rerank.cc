#include "drafting/expand_rerank.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "drafting/any_tree.h"

namespace coppice {
namespace {

class ExpandRerankPolicy final : public DraftPolicy {
 public:
  explicit ExpandRerankPolicy(const ExpandRerankOptions& options) : options_(options) {}
  std::string name() const override { return "expand-rerank"; }

  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    arena_.reset(tree.token[0]);
    best_.clear();
    kept_.assign(1, 1);
    beam_.clear();
    if (limits.max_size > 0) beam_.push_back(0);
    for (std::int32_t layers = depth_of(limits); layers > 0 && !beam_.empty(); --layers) {
      source.evaluate(arena_, beam_);
      const std::int32_t first_new = arena_.nodes();
      dropped_.clear();
      for (const std::int32_t node : beam_) expand(source, limits, node);
      source.forget(dropped_);  // so that never more than max_size nodes hold draft KV
      choose_beam(first_new);
    }
    finish(tree);
  }

 private:
  // More layers than nodes cannot be filled.
  std::int32_t depth_of(const GrowthLimits& limits) const {
    return std::min({options_.depth, limits.max_depth, limits.max_size});
  }

  // Order of reranking. Nodes are added layer by layer, so ids order by depth.
  auto reranking() const {
    return [this](std::int32_t a, std::int32_t b) {
      const double a_prob = arena_.path_prob[static_cast<std::size_t>(a)];
      const double b_prob = arena_.path_prob[static_cast<std::size_t>(b)];
      return a_prob != b_prob ? a_prob > b_prob : a < b;
    };
  }

  void expand(DraftSource& source, const GrowthLimits& limits, std::int32_t parent) {
    for (std::int32_t rank = 0; rank < options_.beam_width; ++rank) {
      const auto drawn = source.child(arena_, parent, rank);
      if (!drawn) return;
      const std::int32_t node = arena_.add(parent, drawn->token, rank, drawn->prob, 0.0);
      kept_.push_back(0);
      offer(limits, node);
    }
  }

  // Takes a node in where it is among the max_size best so far; the last of these gives way.
  void offer(const GrowthLimits& limits, std::int32_t node) {
    const double path_prob = arena_.path_prob[static_cast<std::size_t>(node)];
    if (!(path_prob > 0.0) || path_prob < limits.min_value) return;
    if (best_.size() == static_cast<std::size_t>(limits.max_size)) {
      if (!reranking()(node, best_.front())) return;
      std::pop_heap(best_.begin(), best_.end(), reranking());
      kept_[static_cast<std::size_t>(best_.back())] = 0;
      dropped_.push_back(best_.back());
      best_.pop_back();
    }
    kept_[static_cast<std::size_t>(node)] = 1;
    best_.push_back(node);
    std::push_heap(best_.begin(), best_.end(), reranking());
  }

  // The best of the new layer, but for nodes that have lost their place: only nodes that come
  // after them, and so have lost it too, could take theirs in the beam.
  void choose_beam(std::int32_t first_new) {
    beam_.resize(static_cast<std::size_t>(arena_.nodes() - first_new));
    std::iota(beam_.begin(), beam_.end(), first_new);
    std::erase_if(beam_,
                  [&](std::int32_t node) { return kept_[static_cast<std::size_t>(node)] == 0; });
    const auto width = static_cast<std::size_t>(options_.beam_width);
    if (beam_.size() <= width) return;
    std::nth_element(beam_.begin(), beam_.begin() + options_.beam_width, beam_.end(), reranking());
    beam_.resize(width);
    std::sort(beam_.begin(), beam_.end());
  }

  // In drawn order; siblings that were dropped leave no gap in the ranks.
  void finish(TokenTree& tree) {
    std::sort(best_.begin(), best_.end());
    tree.reset(arena_.token[0]);
    index_.assign(static_cast<std::size_t>(arena_.nodes()), 0);
    children_.assign(static_cast<std::size_t>(arena_.nodes()), 0);
    for (const std::int32_t node : best_) {
      const auto i = static_cast<std::size_t>(node);
      const auto parent = static_cast<std::size_t>(arena_.parent[i]);
      index_[i] = tree.add(index_[parent], arena_.token[i], children_[parent]++,
                           arena_.draft_prob[i], arena_.path_prob[i]);
      tree.source.back() = node;
    }
  }

  ExpandRerankOptions options_;
  TokenTree arena_;                     // every drawn node
  std::vector<std::int32_t> best_;      // heap: the max_size best, last on top
  std::vector<char> kept_;              // by arena node: whether in best_
  std::vector<std::int32_t> beam_;      // nodes of one draft pass
  std::vector<std::int32_t> dropped_;   // nodes that lost their place in the last layer
  std::vector<std::int32_t> index_;     // tree node by arena node
  std::vector<std::int32_t> children_;  // kept children by arena node
};

}  // namespace

std::unique_ptr<DraftPolicy> make_expand_rerank_policy(const ExpandRerankOptions& options,
                                                       ChildDraw draw) {
  require_any_tree_exact("expand-rerank", draw);
  if (options.beam_width < 1 || options.depth < 1) {
    throw_usage(cat("expand-rerank: beam width ", options.beam_width, ", depth ", options.depth,
                    "; use 1 or more of each"));
  }
  return std::make_unique<ExpandRerankPolicy>(options);
}

}  // namespace coppice

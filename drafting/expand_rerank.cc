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

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    best_.clear();
    kept_.assign(1, 1);
    // More layers than nodes cannot be filled.
    layers_ = std::min({options_.depth, limits.max_depth, limits.max_size});
  }

  void take(DraftSource& source) override {
    const std::int32_t first_new = candidates_.nodes();
    dropped_.clear();
    for (const std::int32_t node : frontier_) expand(source, node);
    source.forget(dropped_);  // so that never more than max_size nodes hold draft KV
    choose_beam(first_new);
    if (--layers_ == 0) frontier_.clear();
  }

  // In drawn order.
  void finish(TokenTree& tree) override {
    std::sort(best_.begin(), best_.end());
    tree.assign_part(candidates_, best_);
  }

 private:
  // Order of reranking. Nodes are added layer by layer, so ids order by depth.
  auto reranking() const {
    return [this](std::int32_t a, std::int32_t b) {
      const double a_prob = candidates_.path_prob[static_cast<std::size_t>(a)];
      const double b_prob = candidates_.path_prob[static_cast<std::size_t>(b)];
      return a_prob != b_prob ? a_prob > b_prob : a < b;
    };
  }

  void expand(DraftSource& source, std::int32_t parent) {
    const double parent_prob = candidates_.path_prob[static_cast<std::size_t>(parent)];
    for (std::int32_t rank = 0; rank < options_.beam_width; ++rank) {
      const auto drawn = source.child(candidates_, parent, rank);
      if (!drawn) return;
      const double path_prob = parent_prob * static_cast<double>(drawn->prob);
      kept_.push_back(0);
      offer(candidates_.add(parent, drawn->token, rank, drawn->prob, path_prob));
    }
  }

  // Takes a node in where it is among the max_size best so far; the last of these gives way.
  void offer(std::int32_t node) {
    const double path_prob = candidates_.path_prob[static_cast<std::size_t>(node)];
    if (!(path_prob > 0.0) || path_prob < limits_.min_value) return;
    if (best_.size() == static_cast<std::size_t>(limits_.max_size)) {
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
    frontier_.resize(static_cast<std::size_t>(candidates_.nodes() - first_new));
    std::iota(frontier_.begin(), frontier_.end(), first_new);
    std::erase_if(frontier_,
                  [&](std::int32_t node) { return kept_[static_cast<std::size_t>(node)] == 0; });
    const auto width = static_cast<std::size_t>(options_.beam_width);
    if (frontier_.size() <= width) return;
    std::nth_element(frontier_.begin(), frontier_.begin() + options_.beam_width, frontier_.end(),
                     reranking());
    frontier_.resize(width);
    std::sort(frontier_.begin(), frontier_.end());
  }

  ExpandRerankOptions options_;
  std::int32_t layers_ = 0;            // still to come
  std::vector<std::int32_t> best_;     // heap: the max_size best, last on top
  std::vector<char> kept_;             // by candidate: whether in best_
  std::vector<std::int32_t> dropped_;  // nodes that lost their place in the last layer
};

}  // namespace

std::unique_ptr<DraftPolicy> make_expand_rerank_policy(const ExpandRerankOptions& options,
                                                       AcceptanceRule draw) {
  require_any_tree_exact("expand-rerank", draw);
  if (options.beam_width < 1 || options.depth < 1) {
    throw_usage(cat("expand-rerank: beam width ", options.beam_width, ", depth ", options.depth,
                    "; use 1 or more of each"));
  }
  return std::make_unique<ExpandRerankPolicy>(options);
}

}  // namespace coppice

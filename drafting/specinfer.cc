#include "drafting/specinfer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

class SpecinferPolicy final : public DraftPolicy {
 public:
  explicit SpecinferPolicy(std::vector<std::int32_t> widths) : widths_(std::move(widths)) {}
  std::string name() const override { return "specinfer"; }

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    depth_ = 0;
    open_layer();
  }

  void take(DraftSource& source) override {
    frontier_.clear();
    const std::int32_t width = widths_[static_cast<std::size_t>(depth_++)];
    for (std::int32_t rank = 0; rank < width && !open_.empty(); ++rank) draw_rank(source, rank);
    open_layer();
  }

 private:
  // A node that may get another child.
  struct Open {
    std::int32_t node;
    double value;  // of its next position (DySpec, eq. 11)
    double drawn;  // D of its children
  };

  bool admits(double value) const { return value > 0.0 && value >= limits_.min_value; }

  // Keeps, of the layer drawn, which is the frontier so far, the nodes that get children.
  void open_layer() {
    open_.clear();
    if (depth_ == std::min(static_cast<std::int32_t>(widths_.size()), limits_.max_depth)) {
      frontier_.clear();
    }
    for (const std::int32_t node : frontier_) {
      if (candidates_.size() + static_cast<std::int64_t>(open_.size()) >= limits_.max_size) break;
      const auto i = static_cast<std::size_t>(node);
      const double value = std::min(candidates_.path_prob[i], candidates_.value[i]);
      if (admits(value)) open_.push_back({node, value, 0.0});
    }
    frontier_.clear();
    for (const Open& open : open_) frontier_.push_back(open.node);
  }

  // The child of this rank of every open node. Closes nodes that get no more.
  void draw_rank(DraftSource& source, std::int32_t rank) {
    for (Open& open : open_) {
      const auto drawn = candidates_.size() < limits_.max_size
                             ? source.child(candidates_, open.node, rank)
                             : std::nullopt;
      if (!drawn) {
        open.value = 0.0;
        continue;
      }
      frontier_.push_back(candidates_.add(open.node, drawn->token, rank, drawn->prob, open.value));
      open.drawn += static_cast<double>(drawn->prob);
      const double parent_prob = candidates_.path_prob[static_cast<std::size_t>(open.node)];
      open.value = std::min(open.value, parent_prob * std::max(0.0, 1.0 - open.drawn));
    }
    std::erase_if(open_, [&](const Open& open) { return !admits(open.value); });
  }

  std::vector<std::int32_t> widths_;
  std::vector<Open> open_;
  std::int32_t depth_ = 0;  // of the layer whose nodes get children
};

// The shape of <1,1,3,1,1,1,1,1>.
constexpr std::size_t paper_depth = 8;
constexpr std::size_t paper_widened_layer = 2;

}  // namespace

std::unique_ptr<DraftPolicy> make_specinfer_policy(std::vector<std::int32_t> widths) {
  if (widths.empty()) throw_usage("specinfer: no widths given; name one per layer");
  for (const std::int32_t width : widths) {
    if (width < 1) throw_usage(cat("specinfer: a layer of width ", width, "; use 1 or more"));
  }
  return std::make_unique<SpecinferPolicy>(std::move(widths));
}

std::vector<std::int32_t> specinfer_widths(std::int32_t tree_size) {
  if (tree_size < 1) throw_usage(cat("specinfer: a tree of ", tree_size, " nodes; use 1 or more"));
  std::vector<std::int32_t> widths(std::min(static_cast<std::size_t>(tree_size), paper_depth), 1);
  if (widths.size() < paper_depth) return widths;
  constexpr auto before = static_cast<std::int32_t>(paper_widened_layer);
  constexpr auto from = static_cast<std::int32_t>(paper_depth - paper_widened_layer);
  widths[paper_widened_layer] = (tree_size - before) / from;
  return widths;
}

}  // namespace coppice

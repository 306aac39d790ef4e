#include "drafting/dyspec_by_costs.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "drafting/growth_economics.h"
#include "drafting/lookahead.h"
#include "drafting/position_values.h"

namespace coppice {
namespace {

// DySpec where sizes follow costs and what is drawn stays (sampled rejection). After every pass,
// and whenever tokens have said what was not known, the growth that pays best from here on is
// planned (drafting/lookahead.h). Then only what the next pass is to evaluate is drawn; what the
// plan leaves without children waits, for it may turn out that its row is better spent, and is
// drawn when no further pass pays. Nodes may be evaluated, and get children, in any later round.
//
// Why this does not bias the text. Every decision is a function of what has been drawn before it,
// tokens and the numbers u that will judge them, and nothing drawn is dropped. Let x be a child of
// v, and H all that was drawn before x. Whether the judge comes to x, because it accepts v and all
// above it and refuses x's earlier siblings, is settled by H: it judges none of these by anything
// drawn later. Given H, x's token has the law of D without its earlier siblings' tokens, and its u
// is uniform. So what the judge does with x is as in a tree that was fixed beforehand. What it
// writes after v, once it has refused the children drawn so far, must have the law of the residual
// that their tokens leave. If a further child is drawn, at whatever time, it has that law given all
// that was drawn until then; if none ever is, the judge draws from the residual itself. Both hold
// for every history, hence no matter how the history decides which of them it is. So decisions may
// look at any u of what is drawn, a later sibling's or another branch's too, but at no number of
// what is not: not x's own before it is drawn, nor another step's, which decides what is still to
// be written.
class DyspecByCosts final : public DraftPolicy {
 public:
  explicit DyspecByCosts(const DyspecRule& rule)
      : calibration_(*rule.calibration),
        economics_(*rule.economics),
        values_(rule.calibration, false),
        lookahead_(calibration_, economics_) {}
  std::string name() const override { return "dyspec"; }

  void begin(const GrowthLimits& limits, TokenId root) override {
    DraftPolicy::begin(limits, root);
    values_.reset();
    lookahead_.reset();
    open_.assign(1, {1.0, 1.0, 1, 0, 1, false});
    rounds_left_ = passes_ = 0;
  }

  void take(DraftSource& source) override {
    const bool first = arena_.size() == 0;
    ++passes_;
    for (const std::int32_t node : wanted_) {
      open_[static_cast<std::size_t>(node)].passes = 0;
      revalue(node, source);
    }
    wanted_.clear();
    if (first) draw(0, source);  // every tree has a node
    while (wanted_.empty() && arena_.size() < limits_.max_size) {
      if (--rounds_left_ <= 0) {
        plan_ = lookahead_.best(open_, arena_.size(), limits_.max_size, limits_.max_depth, passes_);
        rounds_left_ = plan_.passes / 2;
      }
      if (plan_.nodes == 0) return;
      const bool drawn = draw_planned(source);
      if (plan_.passes > 0 && (!drawn || next_pass_pays())) want_planned();
      // Tokens have said otherwise.
      if (wanted_.empty()) rounds_left_ = 0;
    }
  }

 private:
  // What is expected of a node's next child.
  void revalue(std::int32_t node, DraftSource& source) {
    OpenPosition& at = open_[static_cast<std::size_t>(node)];
    if (at.depth > limits_.max_depth) return;
    const double share = at.passes == 0 ? source.expected_share(node) : -1.0;
    at.reach = values_.reach(node);
    at.value = at.reach * (share < 0.0 ? calibration_.position(at.rank, at.depth)
                                       : calibration_.child(at.rank, share));
  }

  void draw(std::int32_t parent, DraftSource& source) {
    const OpenPosition at = open_[static_cast<std::size_t>(parent)];
    const auto drawn = source.child(arena_, parent, at.rank);
    if (!drawn) {
      open_[static_cast<std::size_t>(parent)].value = 0.0;
      return;
    }
    const std::int32_t node = arena_.add(parent, drawn->token, at.rank, drawn->prob, at.value,
                                         drawn->belief, drawn->uniform);
    values_.added(arena_);
    open_.push_back({0.0, 0.0, at.depth + 1, 0, 1, false});
    revalue(node, source);
    ++open_[static_cast<std::size_t>(parent)].rank;
    revalue(parent, source);
  }

  // Draws what is planned and can be drawn now: all of it if no pass is to come, else what it is to
  // evaluate.
  bool draw_planned(DraftSource& source) {
    bool any = false;
    const std::int32_t nodes = arena_.nodes();
    for (std::int32_t node = 0; node < nodes && arena_.size() < limits_.max_size; ++node) {
      const OpenPosition& at = open_[static_cast<std::size_t>(node)];
      if (at.passes > 0 || !is_planned(at.value)) continue;
      if (plan_.passes > 0 && (at.depth >= limits_.max_depth ||
                               !is_planned(at.value * calibration_.position(0, at.depth + 1)))) {
        continue;
      }
      draw(node, source);
      any = true;
    }
    return any;
  }

  bool is_planned(double value) const { return value > 0.0 && value >= plan_.least; }

  // Whether it does even if nothing follows.
  bool next_pass_pays() const {
    std::int32_t rows = 0;
    double gain = 0.0;
    for (const OpenPosition& at : open_) {
      if (at.passes == 0 || !is_planned(at.value)) continue;
      gain += at.value;
      ++rows;
    }
    const std::int32_t size = arena_.size();
    return rows > 0 && gain > economics_.pass_cost(rows, passes_) +
                                  economics_.verify_cost(size + rows) -
                                  economics_.verify_cost(size);
  }

  void want_planned() {
    for (std::size_t node = 0; node < open_.size(); ++node) {
      if (open_[node].passes > 0 && is_planned(open_[node].value)) {
        wanted_.push_back(static_cast<std::int32_t>(node));
      }
    }
  }

  const AcceptanceCalibration& calibration_;
  const GrowthEconomics& economics_;
  PositionValues values_;
  Lookahead lookahead_;
  Outlook plan_;
  std::int32_t rounds_left_ = 0;    // for which the plan is good
  std::int32_t passes_ = 0;         // that it has had
  std::vector<OpenPosition> open_;  // by node: of its next child
};

}  // namespace

std::unique_ptr<DraftPolicy> make_dyspec_by_costs(const DyspecRule& rule) {
  return std::make_unique<DyspecByCosts>(rule);
}

}  // namespace coppice

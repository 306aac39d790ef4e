// The loop by which trees grow, over the positions of one tree or of many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace coppice {

class ValuedTree;

/// Grows trees greedily: between two passes of the draft it adds children from one heap over the
/// open positions of all its trees, best first, and names what the next pass evaluates. A rule
/// says which positions are filled, which of two that are worth the same comes first, and when
/// growth ends: by a number of nodes (drafting/dyspec.cc), or by costs (drafting/batch_growth.h).
/// One text is a batch of one.
class Grower {
 public:
  virtual ~Grower() = default;

  /// Before a step: no trees yet, and `most` nodes for all of them.
  virtual void begin(std::int32_t most);
  /// After the trees have taken what was evaluated: grows them, and says what they want next.
  void grow();

  // For the trees:
  void join(ValuedTree& tree) { trees_.push_back(&tree); }
  /// A tree has taken what was evaluated, or proposed.
  void note_taken() { taken_ = true; }
  /// Appends the candidates that a finished tree keeps, each behind its parent.
  virtual void keep(const ValuedTree& tree, std::vector<std::int32_t>& kept) const = 0;

 protected:
  /// A node's next child.
  struct Offer {
    double value = 0.0;
    std::size_t tree = 0;
    std::int32_t node = 0;
    bool proposed = false;  ///< the child is, instead of drawn
  };

  // The rule:
  /// Plans what is added now. False: growth has ended.
  virtual bool plan() = 0;
  /// Whether the child is to be added before the next pass.
  virtual bool admits(const Offer& offer) const = 0;
  /// Orders offers of equal value: whether `a` comes after `b`. Looks at no token.
  virtual bool comes_after(const Offer& a, const Offer& b) const = 0;
  virtual void note_added(const Offer& offer) = 0;
  /// Has the trees want what the next pass evaluates. False: it does not pay, plan anew.
  virtual bool want() = 0;
  virtual void end() {}

  std::int32_t most_ = 0;
  std::vector<ValuedTree*> trees_;
  std::int32_t passes_ = 0;  ///< that there were

 private:
  bool is_worse(const Offer& a, const Offer& b) const {
    return a.value != b.value ? a.value < b.value : comes_after(a, b);
  }
  void offer(std::size_t tree, std::int32_t node, bool proposed);
  void add_admitted();

  std::vector<Offer> heap_;
  bool taken_ = false;  ///< by a tree, since it last grew
};

}  // namespace coppice

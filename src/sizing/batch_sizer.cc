#include "sizing/batch_sizer.h"

#include <algorithm>

#include "sizing/constants.h"

namespace coppice {

using C = SizingConstants;

// What a token of each text is worth. A batch is a mix in which slow texts stay longest: if texts
// of r_i tokens a step take S seconds together, it ends as many texts a second as 1 / (S times the
// mean of 1 / r_i), whose logarithm rises by dr_i / r_i. And its last texts share passes with few.
void BatchSizer::weigh(std::vector<Text>& texts) const {
  double speed = 0.0, behind = 0.0, count = 0.0;
  for (Text& text : texts) {
    const double is = text.size->behind(progress_, text.tokens_left);
    text.prior.weight = std::clamp(is * is, 1.0 / C::most_behind, C::most_behind);
    behind += text.prior.weight / static_cast<double>(texts.size());
    if (!text.size->speculated()) continue;
    speed += text.size->speed();
    ++count;
  }
  for (Text& text : texts) {
    text.prior.weight /= behind;
    if (count > 0.0) text.prior.weight *= speed / count / text.size->speed();
  }
}

std::int32_t BatchSizer::begin_growth(const StepPrices::Step& step, std::int32_t most,
                                      bool optimistic) {
  // A table that was cut short says nothing of more rows.
  if (costs_.table.cut) {
    const std::int32_t rows = costs_.table.target.points().back().rows;
    most = std::max(0, std::min(most, rows - step.texts - step.other_rows));
  }
  most = std::min(std::max(0, most),
                  C::priced_ahead * std::max(usual_nodes_, C::longest_chain + step.texts));
  prices_.fix(step, most, optimistic);
  growth_.begin(most);
  return most;
}

std::int32_t BatchSizer::begin(const StepPrices::Step& step, std::vector<Text>& texts,
                               std::int32_t most) {
  StepPrices::Step own = step;
  own.alike = step.texts;
  own.other_rows = step.prompt_rows;
  if (step.texts == 1) {
    growth_.begin(0);
    for (Text& text : texts) {
      text.speculates = (text.prior.drafts || text.without_draft) &&
                        text.size->begin_alone(own, text.without_draft);
    }
    return 0;
  }
  if (2 * step.texts > 3 * met_ || 3 * step.texts < 2 * met_) {
    met_ = step.texts;
    prices_.forget_rate();
  }
  const bool optimistic = costs_.correction != nullptr && step.number % C::optimism_every == 0;
  most = begin_growth(step, most, optimistic);
  prices_.set_rate(prices_.rate(), 1.0);
  weigh(texts);

  bool plain = false;
  if (costs_.correction != nullptr) {
    // Nothing is held against speculation before it is known what plain steps cost.
    plain = costs_.correction->spread(plain_pass(step.texts), step.texts) > C::unseen ||
            (optimistic && speculated_ && prices_.plain_may_pay(step.texts));
  }
  priors_.clear();
  for (Text& text : texts) {
    if (text.apart) {
      text.speculates = text.size->begin_apart(own, prices_.rate(), text.prior);
    } else {
      priors_.push_back(text.prior);
    }
  }
  growth_.choose(priors_, chosen_);
  auto chosen = chosen_.begin();
  std::int32_t left = most;  // every tree that grows has a node
  for (Text& text : texts) {
    if (!text.apart) text.speculates = *chosen++ != 0;
    const bool tried = !text.speculates && (text.probes || text.size->is_due(step.number));
    text.speculates =
        (text.speculates || tried) && !plain && !text.size->waits() && (text.apart || left > 0);
    if (text.speculates && !text.apart) --left;
    text.size->begin_among_others(text.speculates, tried);
  }
  return priors_.empty() ? 0 : most;
}

void BatchSizer::record(const StepWork& work, double tokens) {
  prices_.record(tokens / work.texts,
                 costs_.step(work) / costs_.plain(work.texts, work.prompt_rows, work.kv_tokens));
  progress_ += tokens / work.texts;
  speculated_ = work.drafting > 0;
  usual_nodes_ = std::max(work.nodes, static_cast<std::int32_t>(C::discount * usual_nodes_));
}

}  // namespace coppice

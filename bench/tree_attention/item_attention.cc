#include "item_attention.h"

#include <utility>

namespace coppice::bench {
namespace {

constexpr std::uint32_t sampling_seed = 22;
constexpr std::int32_t short_samples = 5;

std::size_t partial_count(const ItemPlan& plan) {
  if (plan.direct) return 0;
  return static_cast<std::size_t>(plan.partial_rows) * static_cast<std::size_t>(plan.shape.heads);
}

}  // namespace

ItemAttention::ItemAttention(ItemPlan plan, const InputSets& inputs, cudaStream_t stream)
    : plan_(std::move(plan)),
      inputs_(inputs),
      stream_(stream),
      items_(plan_.items),
      slots_(plan_.slots),
      masks_(plan_.masks),
      partials_begin_(plan_.partials_begin),
      partials_(plan_.partials),
      partial_out_(partial_count(plan_) * static_cast<std::size_t>(plan_.shape.head_dim)),
      partial_lse_(partial_count(plan_)) {
  prepare_item_attention();
}

void ItemAttention::queue(std::int32_t set) const {
  const ItemView view{
      items_.data(),          slots_.data(),    masks_.data(),
      partials_begin_.data(), partials_.data(), static_cast<std::int32_t>(plan_.items.size()),
      plan_.tile_rows,        plan_.rows,       plan_.direct};
  const cuda::Operands operands =
      cuda::make_operands(inputs_.q(set), inputs_.q_stride(), plan_.shape, inputs_.rule(),
                          inputs_.layout(), inputs_.keys(), inputs_.values(), set, inputs_.out(set),
                          {partial_out_.data(), partial_lse_.data(), nullptr});
  item_attention(view, operands, stream_);
}

CutResult run_cut(const InputSets& inputs, const MakePlan& make_plan, CutLength cut,
                  std::int32_t samples, cudaStream_t stream) {
  const ItemAttention attention(make_plan(inputs.work(), cut), inputs, stream);
  inputs.poison_output();
  CutResult result;
  result.cut = cut;
  result.timing = time_replays(
      inputs.sets(), samples, [&](std::int32_t set) { attention.queue(set); }, stream);
  result.error = inputs.error(inputs.sets() - 1, sampling_seed);
  result.group_kv_bytes = attention.plan().group_kv_bytes;
  result.block_kv_bytes = attention.plan().block_kv_bytes;
  return result;
}

CutResult run_best_cut(const InputSets& inputs, const MakePlan& make_plan,
                       const std::vector<CutLength>& cuts, std::int32_t samples,
                       cudaStream_t stream) {
  CutLength best = cuts.front();
  double least_us = 0.0;
  for (const CutLength cut : cuts) {
    const ItemAttention attention(make_plan(inputs.work(), cut), inputs, stream);
    const Timing timing = time_replays(
        inputs.sets(), short_samples, [&](std::int32_t set) { attention.queue(set); }, stream);
    if (least_us > 0.0 && timing.median_us >= least_us) continue;
    least_us = timing.median_us;
    best = cut;
  }
  return run_cut(inputs, make_plan, best, samples, stream);
}

}  // namespace coppice::bench

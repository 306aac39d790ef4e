#include "library_attention.h"

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "base/stopwatch.h"
#include "base/tree_order.h"
#include "bench/device_memory.h"
#include "bench/timing.h"
#include "kernels/cuda/attention/flatten_plan.h"
#include "traced_attention.h"

namespace coppice::bench {
namespace {

PassLimits limits_of(const InputSets& inputs) {
  const Workload& work = inputs.work();
  return {inputs.padded_rows(), inputs.padded_rows(), work.tokens(),
          work.cell.shape(),    {work.cell.window},   work.cell.soft_cap > 0};
}

}  // namespace

LibraryAttention::LibraryAttention(const InputSets& inputs, const ResidentBlocks& blocks,
                                   cudaStream_t stream)
    : inputs_(inputs),
      blocks_(blocks),
      stream_(stream),
      zeros_(static_cast<std::size_t>(inputs.work().cell.rows), 0),
      transfers_(std::make_unique<cuda::Transfers>(stream)),
      pass_(std::make_unique<cuda::CudaPass>(limits_of(inputs), blocks, allocate, *transfers_,
                                             stream, false, preparations_)) {
  const Workload& work = inputs.work();
  pass_inputs_.tokens = zeros_;
  pass_inputs_.positions = work.positions;
  pass_inputs_.write_slots = zeros_;
  if (!work.prefix.empty()) segments_.push_back({work.prefix, 0, work.cell.rows, true, 0});
  const std::span<const KvSlot> slots = work.tail_slots;
  auto former = work.former.begin();
  for (std::size_t begin = 0, end = 0; begin < slots.size(); begin = end) {
    const VisibleKv& first = work.tail[begin];
    const bool before =
        former != work.former.end() && former->begin == static_cast<std::int32_t>(begin);
    const std::size_t most = before                        ? static_cast<std::size_t>(former->end)
                             : former != work.former.end() ? static_cast<std::size_t>(former->begin)
                                                           : slots.size();
    if (before) ++former;
    while (end < most && work.tail[end].q_begin == first.q_begin &&
           work.tail[end].q_end == first.q_end) {
      ++end;
    }
    segments_.push_back(
        {slots.subspan(begin, end - begin), first.q_begin, first.q_end, before, first.position});
  }
  pass_inputs_.segments = segments_;
  begin();
}

void LibraryAttention::begin() {
  pass_->begin(pass_inputs_);
  pass_->send();
  cuda::check(cudaStreamSynchronize(stream_), "copying pass inputs");
  view_ = pass_->view();
  scratch_ = pass_->scratch();
  cuda::check(cudaMemcpy(&scalars_, view_.scalars, sizeof(scalars_), cudaMemcpyDeviceToHost),
              "reading a pass's scalars");
}

void LibraryAttention::force_chunks(std::int32_t chunk_tokens) {
  const Cell& cell = inputs_.work().cell;
  scalars_.chunk_tokens = chunk_tokens;
  scalars_.chunks = (inputs_.work().tokens() + chunk_tokens - 1) / chunk_tokens;
  const auto partials = static_cast<std::size_t>(cell.rows) * static_cast<std::size_t>(cell.heads) *
                        static_cast<std::size_t>(scalars_.chunks);
  forced_scalars_ = DeviceArray<cuda::PassScalars>(std::vector<cuda::PassScalars>{scalars_});
  forced_out_ = DeviceArray<float>(partials * static_cast<std::size_t>(cell.head_dim));
  forced_lse_ = DeviceArray<float>(partials);
  view_.scalars = forced_scalars_.data();
  scratch_.partial_out = forced_out_.data();
  scratch_.partial_lse = forced_lse_.data();
}

void LibraryAttention::queue(std::int32_t set) {
  const bool forced = forced_scalars_.size() > 0;  // into chunks that have to be joined
  cuda::tree_attention(forced ? AttentionLaunch{} : launch(), view_, pass_->padded_rows(),
                       inputs_.q(set), inputs_.q_stride(), inputs_.work().cell.shape(),
                       inputs_.rule(), inputs_.layout(), inputs_.keys(), inputs_.values(), set,
                       inputs_.out(set), scratch_, blocks_, stream_);
}

void LibraryAttention::queue_traced(std::int32_t set, std::uint64_t* nanoseconds) {
  traced_attention(launch(), view_, inputs_, set, scratch_, blocks_.ranges, nanoseconds, stream_);
}

RangeDivision LibraryAttention::division() const {
  RangeDivision result;
  RangePlan& plan = result.plan;
  static_cast<RangeCut&>(plan) = scalars_.cut;
  plan.rows = scalars_.rows;
  plan.group = inputs_.work().cell.group();
  plan.kv_heads = inputs_.work().cell.kv_heads;
  plan.tiles = tiles();
  plan.prefix = scalars_.prefix;
  const auto download = [](const auto* from, std::int32_t count, auto& to) {
    to.resize(static_cast<std::size_t>(count));
    cuda::check(cudaMemcpy(to.data(), from, to.size() * sizeof(to[0]), cudaMemcpyDeviceToHost),
                "reading a pass's division");
  };
  download(view_.row_tiles, plan.row_tiles, result.tiles);
  download(view_.ranges, blocks_.ranges, result.ranges);
  return result;
}

HostPlanning LibraryAttention::host_planning(std::int32_t samples) {
  const Workload& work = inputs_.work();
  const Cell& cell = work.cell;
  std::mt19937 random(3);
  const TokenTree tree = dyspec_like_tree(cell.rows, random);
  TreeOrder order;
  std::vector<KvSegment> tail;
  std::vector<double> order_us, plan_us, begin_us;
  std::int64_t kept = 0;
  for (std::int32_t i = 0; i < samples; ++i) {
    const double start = now_seconds();
    order.assign(tree);
    tail.clear();
    for (std::int32_t row = 0; row < order.rows(); ++row) {
      const auto at = static_cast<std::size_t>(row);
      tail.push_back({{&work.tail_slots[at], 1}, row, row + order.subtree_rows[at], false, 0});
    }
    const double ordered = now_seconds();
    const FlattenPlan plan =
        make_flatten_plan(cell.shape(), cell.rows, inputs_.padded_rows(), cell.prefix,
                          static_cast<std::int32_t>(tail.size()), blocks_);
    const double planned = now_seconds();
    kept += plan.chunk_tokens;
    pass_->begin(pass_inputs_);
    const double begun = now_seconds();
    pass_->send();
    cuda::check(cudaStreamSynchronize(stream_), "copying pass inputs");
    order_us.push_back(1e6 * (ordered - start));
    plan_us.push_back(1e6 * (planned - ordered));
    begin_us.push_back(1e6 * (begun - planned));
  }
  if (kept == 0) return {};  // so that the plans are used
  return {median(order_us), median(plan_us), median(begin_us)};
}

double LibraryAttention::begin_us(std::int32_t samples) {
  std::vector<double> times;
  for (std::int32_t i = 0; i < samples; ++i) {
    const double start = now_seconds();
    pass_->begin(pass_inputs_);
    times.push_back(1e6 * (now_seconds() - start));
    pass_->send();
    cuda::check(cudaStreamSynchronize(stream_), "copying pass inputs");
  }
  return median(times);
}

}  // namespace coppice::bench

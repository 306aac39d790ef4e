#include "kernels/cuda/pass/cuda_pass.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "kernels/cuda/attention/box_order.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/code_loading.h"
#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/streamed_linear.h"
#include "kernels/window.h"

namespace coppice::cuda {
namespace {

constexpr const char* inputs_purpose = "pass inputs";
constexpr const char* attention_purpose = "partial attention results";
constexpr std::size_t alignment = 256;
/// Tails of fewer tokens are sent as they are, with the other inputs: that takes no longer than a
/// kernel that puts them together.
constexpr std::int32_t least_in_parts = 4096;
/// Transfers go in vectors of 16 bytes.
constexpr std::size_t slots_per_vector = 16 / sizeof(KvSlot);

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

std::size_t room(std::int32_t entries, std::size_t entry_bytes) {
  return aligned(static_cast<std::size_t>(std::max(entries, 1)) * entry_bytes);
}

// Row lists have room for the padded count, and padding keeps what it was initialised to.
std::size_t row_room(std::int32_t rows) {
  return room(padded_row_count(std::max(rows, 1)), sizeof(std::int32_t));
}

std::size_t tile_capacity(const PassLimits& limits, const ResidentBlocks& blocks) {
  return row_tile_capacity(limits.attention, padded_row_count(std::max(limits.rows, 1)), blocks);
}

std::size_t prefix_bytes(const PassLimits& limits) {
  return room(limits.kv_tokens, sizeof(KvSlot));
}

// Copies a list and fills it up to `padded` entries.
void fill(char* place, std::span<const std::int32_t> list, std::int32_t padded,
          std::int32_t padding) {
  auto* out = reinterpret_cast<std::int32_t*>(place);
  std::copy(list.begin(), list.end(), out);
  std::fill(out + list.size(), out + padded, padding);
}

}  // namespace

// Row tiles come behind what every pass has in full.
CudaPass::Places::Places(const PassLimits& limits, const ResidentBlocks& blocks) {
  const std::size_t windows = limits.windows.size();
  scalars_step = aligned(sizeof(PassScalars));
  ranges = windows * scalars_step;
  ranges_step = aligned(static_cast<std::size_t>(blocks.ranges) * sizeof(BlockRange));
  tokens = ranges + windows * ranges_step;
  positions = tokens + row_room(limits.rows);
  slots = positions + row_room(limits.rows);
  logit_rows = slots + row_room(limits.rows);
  row_tiles = logit_rows + row_room(limits.logit_rows);
  row_tiles_step = aligned(tile_capacity(limits, blocks) * sizeof(RowTile));
  tail = row_tiles + windows * row_tiles_step;
  end = tail + sizeof(TailMessage) + room(limits.kv_tokens, sizeof(VisibleKv)) +
        room(TailParts::most_parts(limits.kv_tokens), sizeof(TailPart));
}

CudaPass::CudaPass(const PassLimits& limits, const ResidentBlocks& blocks, const Allocate& allocate,
                   Transfers& transfers, cudaStream_t stream, bool records,
                   Preparations& preparations, ProductTiming& timing)
    : limits_(limits),
      blocks_(blocks),
      at_(limits, blocks),
      transfers_(transfers),
      stream_(stream),
      records_(records),
      preparations_(preparations),
      timing_(timing),
      staged_(at_.end, inputs_purpose),
      staged_prefix_(prefix_bytes(limits) / sizeof(KvSlot), inputs_purpose),
      tail_parts_(TailParts::table_capacity(limits.kv_tokens)) {
  if (limits.windows.empty() || limits.windows.size() > most_windows) {
    throw_failure(cat("attention of ", limits.windows.size(), " different windows; the CUDA ",
                      "backend has room for 1 to ", most_windows));
  }
  if (limits.rows > most_windowed_rows && limits.windows != std::vector<std::int32_t>{0}) {
    throw_failure(cat("attention by windows of passes of ", limits.rows, " rows; at most ",
                      most_windowed_rows));
  }
  inputs_ = allocate(at_.end, inputs_purpose);
  slot_table_ =
      allocate(room(TailParts::table_capacity(limits.kv_tokens), sizeof(KvSlot)), inputs_purpose);
  whole_tail_ = allocate(room(limits.kv_tokens, sizeof(VisibleKv)), inputs_purpose);
  prefix_ = allocate(prefix_bytes(limits), inputs_purpose);
  const PartialCapacity partials = partial_capacity(limits, blocks);
  const auto head_dim = static_cast<std::size_t>(limits.attention.head_dim);
  partial_out_ = allocate(static_cast<std::size_t>(partials.out) * head_dim * sizeof(float),
                          attention_purpose);
  partial_lse_ =
      allocate(static_cast<std::size_t>(partials.lse) * sizeof(float), attention_purpose);
  tickets_ = allocate(attention_tickets(blocks) * sizeof(std::uint32_t), attention_purpose);
  const char* base = inputs_.as<char>();
  view_.scalars = reinterpret_cast<const PassScalars*>(base);
  view_.ranges = reinterpret_cast<const BlockRange*>(base + at_.ranges);
  view_.row_tiles = reinterpret_cast<const RowTile*>(base + at_.row_tiles);
  view_.tokens = reinterpret_cast<const std::int32_t*>(base + at_.tokens);
  view_.positions = reinterpret_cast<const std::int32_t*>(base + at_.positions);
  view_.write_slots = reinterpret_cast<const std::int32_t*>(base + at_.slots);
  view_.logit_rows = reinterpret_cast<const std::int32_t*>(base + at_.logit_rows);
  view_.tail = reinterpret_cast<const VisibleKv*>(base + at_.tail);
  view_.prefix_slots = prefix_.as<std::int32_t>();
}

CudaPass::~CudaPass() {
  transfers_.forget(inputs_);
  transfers_.forget(prefix_);
  // Failures here have nobody to go to; the driver frees what is left with the process.
  cudaStreamSynchronize(stream_);
}

PassShape CudaPass::begin(const PassInputs& inputs) {
  if (inputs.division != AttentionDivision::flatten) {
    throw_usage("a GPU divides attention by its own plan alone; use flatten, or --device cpu");
  }
  const auto rows = static_cast<std::int32_t>(inputs.tokens.size());
  const auto logit_rows = static_cast<std::int32_t>(inputs.logit_rows.size());
  shape_ = {padded_row_count(rows), logit_rows == 0 ? 0 : padded_row_count(logit_rows)};
  // What one text has from former passes all its rows see. Of several, everything is tail.
  std::span<const KvSegment> tail = inputs.segments;
  std::span<const KvSlot> prefix;
  if (!tail.empty() && tail[0].former && tail[0].q_begin == 0 && tail[0].q_end == rows) {
    prefix = tail[0].slots;
    tail = tail.subspan(1);
  }

  transfers_.wait();
  stage_prefix(prefix);
  const std::span<const KvSegment> by_row = tail;
  std::span<const KvSegment> segments = inputs.segments;
  if (order_for_ranges(segments, tail)) {
    segments = ordered_;
    tail = segments.last(ordered_.size() - (inputs.segments.size() - by_row.size()));
  }
  std::int32_t tail_tokens = 0;
  for (std::size_t i = 0; i < limits_.windows.size(); ++i) {
    trim_to_window(segments, inputs.positions, limits_.windows[i], near_);
    WindowedKv kv;
    kv.tail = tail;
    kv.by_row = by_row;
    kv.near_tail = std::span(near_).last(tail.size());
    kv.positions = inputs.positions;
    kv.window = limits_.windows[i];
    if (tail.size() < near_.size()) {
      kv.prefix = static_cast<std::int32_t>(near_[0].slots.size());
      kv.prefix_begin = static_cast<std::int32_t>(prefix.size()) - kv.prefix;
      kv.prefix_position = near_[0].first_position;
    }
    kv.window_or_cap = kv.window > 0 || limits_.soft_caps;
    tail_tokens = plan(i, kv, rows, logit_rows);
  }
  fill(staged_.data() + at_.tokens, inputs.tokens, shape_.rows, 0);
  fill(staged_.data() + at_.positions, inputs.positions, shape_.rows, 0);
  fill(staged_.data() + at_.slots, inputs.write_slots, shape_.rows, no_slot);
  fill(staged_.data() + at_.logit_rows, inputs.logit_rows, shape_.logit_rows, 0);
  in_parts_ = tail_tokens >= least_in_parts;
  view_.tail = in_parts_ ? whole_tail_.as<VisibleKv>()
                         : reinterpret_cast<const VisibleKv*>(inputs_.as<char>() + at_.tail);
  transfers_.add(inputs_.data(), staged_.data(), at_.row_tiles);
  const auto tail_bytes = static_cast<std::size_t>(stage_tail(tail) - staged_.data()) - at_.tail;
  transfers_.add(inputs_.as<char>() + at_.tail, staged_.data() + at_.tail, tail_bytes);
  return shape_;
}

// Puts segments whose last ones are `tail` into the order that ranges want, if ranges run the pass
// whatever windows leave of its prefix.
bool CudaPass::order_for_ranges(std::span<const KvSegment> segments,
                                std::span<const KvSegment> tail) {
  std::int32_t tokens = 0;
  for (const KvSegment& segment : tail) tokens += static_cast<std::int32_t>(segment.slots.size());
  if (attention_kernel_for(limits_.attention, shape_.rows, tokens, blocks_) !=
      AttentionKernel::ranges) {
    return false;
  }
  if (!order_by_boxes(tail, ordered_)) return false;
  if (tail.size() < segments.size()) ordered_.insert(ordered_.begin(), segments.front());
  return true;
}

// By one window. Returns how many tokens the tail has.
std::int32_t CudaPass::plan(std::size_t window, const WindowedKv& kv, std::int32_t rows,
                            std::int32_t logit_rows) {
  PassScalars scalars;
  scalars.logit_rows = logit_rows;
  const std::size_t row_tiles_at = at_.row_tiles + window * at_.row_tiles_step;
  launches_[window] = plan_attention(
      limits_.attention, rows, shape_.rows, kv, blocks_,
      {planner_,
       scalars,
       {reinterpret_cast<BlockRange*>(staged_.data() + at_.ranges + window * at_.ranges_step),
        static_cast<std::size_t>(blocks_.ranges)},
       {reinterpret_cast<RowTile*>(staged_.data() + row_tiles_at),
        tile_capacity(limits_, blocks_)}});
  std::memcpy(staged_.data() + window * at_.scalars_step, &scalars, sizeof(scalars));
  if (launches_[window].takes_ranges()) {
    transfers_.add(inputs_.as<char>() + row_tiles_at, staged_.data() + row_tiles_at,
                   static_cast<std::size_t>(scalars.cut.row_tiles) * sizeof(RowTile));
  }
  return scalars.tail;
}

CudaPass::Window CudaPass::window(std::int32_t tokens) const {
  const auto found = std::find(limits_.windows.begin(), limits_.windows.end(), tokens);
  if (found == limits_.windows.end()) {
    throw_failure(cat("attention: a window of ", tokens, " tokens is none of the pass's"));
  }
  const auto index = static_cast<std::size_t>(found - limits_.windows.begin());
  const auto later = [&]<typename T>(const T* first, std::size_t step) {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + index * step);
  };
  Window result{view_, launches_[index]};
  result.view.scalars = later(view_.scalars, at_.scalars_step);
  result.view.ranges = later(view_.ranges, at_.ranges_step);
  result.view.row_tiles = later(view_.row_tiles, at_.row_tiles_step);
  return result;
}

// Returns where it ends.
char* CudaPass::stage_tail(std::span<const KvSegment> tail) {
  char* const begin = staged_.data() + at_.tail;
  if (in_parts_) {
    tail_parts_.divide(tail, reinterpret_cast<VisibleKv*>(begin + sizeof(TailMessage)));
    const std::span<const TailPart> parts = tail_parts_.parts();
    const TailMessage message{static_cast<std::int32_t>(parts.size()), tail_parts_.listed()};
    std::memcpy(begin, &message, sizeof(message));
    std::memcpy(begin + message.parts_at(), parts.data(), parts.size_bytes());
    return begin + message.bytes();
  }
  auto* token = reinterpret_cast<VisibleKv*>(begin);
  for (const KvSegment& segment : tail) {
    std::int32_t position = segment.first_position;
    for (const KvSlot slot : segment.slots) {
      *token++ = {slot, segment.q_begin, segment.q_end, position++};
    }
  }
  return reinterpret_cast<char*>(token);
}

void CudaPass::stage_prefix(std::span<const KvSlot> prefix) {
  const std::size_t same =
      equal_slots(prefix.data(), staged_prefix_.data(),
                  std::min(prefix.size(), static_cast<std::size_t>(prefix_tokens_)));
  // Entries past a shorter prefix stay valid: a rewound text may come back to them. What the GPU
  // holds is known again once the pass has been sent.
  sent_tokens_ =
      std::max(std::exchange(prefix_tokens_, 0), static_cast<std::int32_t>(prefix.size()));
  if (same == prefix.size()) return;
  std::copy(prefix.begin() + static_cast<std::ptrdiff_t>(same), prefix.end(),
            staged_prefix_.data() + same);
  const std::size_t first = same / slots_per_vector * slots_per_vector;
  transfers_.add(prefix_.as<KvSlot>() + first, staged_prefix_.data() + first,
                 (prefix.size() - first) * sizeof(KvSlot));
}

// What was taken over, as the kernels that follow read it.
void CudaPass::queue_inputs() {
  transfers_.queue();
  if (!in_parts_) return;
  expand_tail(reinterpret_cast<const TailMessage*>(inputs_.as<char>() + at_.tail),
              slot_table_.as<KvSlot>(), whole_tail_.as<VisibleKv>(), stream_);
}

void CudaPass::send() {
  transfers_.depart();
  queue_inputs();
  prefix_tokens_ = sent_tokens_;
  if (in_parts_) tail_parts_.depart();
}

void CudaPass::run(const PassVariant& variant, const std::function<void()>& body) {
  transfers_.depart();
  play(variant, [&] {
    queue_inputs();
    body();
  });
  if (limits_.watched) end_.record(stream_);
  prefix_tokens_ = sent_tokens_;
  if (in_parts_) tail_parts_.depart();
}

void CudaPass::play(const PassVariant& variant, const std::function<void()>& whole) {
  if (!records_) return whole();
  const auto key = std::make_tuple(variant, shape_.rows, shape_.logit_rows, launches_, in_parts_);
  Graph* graph = graphs_.find(key);
  if (graph == nullptr) {
    if (graphs_.full()) {
      // What makes room may still be running.
      check(cudaStreamSynchronize(stream_), "waiting for a recorded pass");
    }
    graph = &graphs_.add(key, {});
  }
  if (graph->uses == 0 && records_at_once()) {
    const Stopwatch timed(preparations_.seconds);
    const std::shared_lock no_loading(code_loading(), std::try_to_lock);
    if (no_loading) graph->executable = instantiate(capture(whole));
    if (graph->executable != nullptr) {
      ++preparations_.passes;
      graph->uses = recorded_use;
    }
  }
  const std::int32_t use = graph->uses + 1;
  if (use <= recorded_use || (use == timed_use && graph->untimed)) {
    if (!prepare(*graph, whole)) return;  // and is met as often as before
  } else if (graph->executable == nullptr) {
    whole();
  } else {
    check(cudaGraphLaunch(graph->executable.get(), stream_), "launching a recorded pass");
  }
  graph->uses = std::min(use, timed_use);
}

// Ranks that wait for each other do so at every sum of a pass that is queued launch by launch. Of
// few rows such a pass has no library's products, and what else loads code at a first call (NCCL
// connects) has been called by a pass before.
bool CudaPass::records_at_once() {
  const bool few = limits_.watched && shape_.rows <= most_streamed_rows;
  return std::exchange(has_run_, has_run_ || shape_.logit_rows > 0) && few;
}

// Queues a pass launch by launch, and records it for later ones while the GPU computes it: half of
// that work at a time, as all of it takes longer than a pass. Nothing is recorded at the first use:
// libraries load their code at a first call, which a recording forbids, and many passes come once.
// False: it was to be recorded, and could not be now.
bool CudaPass::prepare(Graph& graph, const std::function<void()>& whole) {
  ++preparations_.passes;
  const Stopwatch timed(preparations_.seconds);
  const std::int64_t put_off = timing_.put_off;
  const bool allowed = timing_.allowed;
  timing_.allowed = allowed || graph.uses + 1 == timed_use;
  try {
    whole();
  } catch (...) {
    timing_.allowed = allowed;
    throw;
  }
  timing_.allowed = allowed;
  const bool untimed = timing_.put_off > put_off;
  if (graph.uses + 1 < captured_use) {
    graph.untimed = untimed;
    return true;
  }
  const std::shared_lock no_loading(code_loading(), std::try_to_lock);
  if (!no_loading) return false;
  graph.untimed = untimed;
  if (graph.captured == nullptr) graph.captured = capture(whole);
  if (graph.uses + 1 == captured_use) return true;
  Executable made = instantiate(std::exchange(graph.captured, nullptr));
  if (graph.executable != nullptr) {
    if (made == nullptr) return true;  // the former one has the same bits
    check(cudaStreamSynchronize(stream_), "waiting for a recorded pass");
  }
  graph.executable = std::move(made);
  return true;
}

CudaPass::Captured CudaPass::capture(const std::function<void()>& body) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording a pass");
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_, &graph), "ending the recording of a pass");
  return Captured(graph);
}

// Null where there is no memory for it: the pass can still be queued launch by launch.
CudaPass::Executable CudaPass::instantiate(const Captured& captured) {
  cudaGraphExec_t made = nullptr;
  cudaError_t status = cudaGraphInstantiate(&made, captured.get(), 0);
  Executable executable(made);
  if (status == cudaSuccess) status = cudaGraphUpload(made, stream_);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "preparing a recorded pass");
  return executable;
}

}  // namespace coppice::cuda

#include "kernels/cuda/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "kernels/cuda/completion.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

constexpr const char* purpose = "sampling";

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

bool is_penalised(const PenaltyText* text, const SamplingParams& params) {
  return text != nullptr && params.repetition_penalty != 1.0;
}

DrawnChildren children_of(const DrawnRow& row, bool with_scores, bool sampled) {
  std::size_t count = 0;
  while (count < std::size(row.children) && row.children[count].token >= 0) ++count;
  DrawnChildren drawn;
  drawn.list = {row.children, count};
  drawn.exhausted = count < std::size(row.children);
  if (sampled) drawn.squares = static_cast<double>(row.sums.squares);
  if (with_scores) {
    drawn.scores = {row.scores, count};
    drawn.moments = moments_of(row.sums.scores);
  }
  return drawn;
}

[[noreturn]] void throw_no_finite_logit(const char* model, std::size_t row) {
  throw_failure(cat("logits: row ", row, " of the ", model,
                    " has no finite value; the model's weights or its arithmetic are broken"));
}

}  // namespace

CudaSampler::CudaSampler(const SamplerLimits& limits, const Allocate& allocate,
                         Transfers& transfers, cudaStream_t stream)
    : DeviceSampler(limits.draft_vocab),
      limits_(limits),
      plan_(plan_sampler(limits)),
      transfers_(transfers),
      stream_(stream),
      device_(allocate(plan_.device_bytes, purpose)),
      host_(plan_.host_bytes, purpose) {}

// What is still queued uses the memory that is freed next.
CudaSampler::~CudaSampler() {
  transfers_.forget(device_);
  (void)cudaStreamSynchronize(stream_);
}

// --- inputs -----------------------------------------------------------------------------------

void CudaSampler::write_setting(const JobPlan& job, const SamplingParams& params,
                                const StepKey& key, DeviceNoise noise, std::size_t rows,
                                bool penalised) {
  SamplingSetting setting;
  setting.number = ++batches_;
  setting.key = key;
  setting.top_p = params.top_p;
  if (params.temperature > 0.0) {
    // As process_logits() has it, but never 0, which stands for temperature 0.
    const double inverse = std::min(1.0 / params.temperature, static_cast<double>(FLT_MAX));
    setting.inverse_temperature = std::max(static_cast<float>(inverse), FLT_MIN);
  }
  if (params.min_p > 0.0) {
    // Weights are floats: those of at least min_p are those of at least the float above it.
    const double least = std::min(params.min_p, 1.0);
    auto above = static_cast<float>(least);
    if (static_cast<double>(above) < least) above = std::nextafter(above, 2.0f);
    setting.least_weight = above;
  }
  setting.penalty = static_cast<float>(params.repetition_penalty);
  setting.top_k = std::max(params.top_k, 0);
  setting.rows = static_cast<std::int32_t>(rows);
  setting.penalised = penalised ? 1 : 0;
  setting.noise = noise;
  setting.fault = fault();
  *on_host(job.setting) = setting;
}

void CudaSampler::write_text(const JobPlan& job, const PenaltyText& text) const {
  const std::size_t vocab = std::min(text.counts.size(), to_size(plan_.target_vocab));
  const std::int32_t* const counts = text.counts.data();
  std::uint32_t* const bits = on_host(job.text_bits);
  for (std::size_t word = 0; word < plan_.text_words; ++word) {
    const std::size_t begin = word * 32, end = std::min(vocab, begin + 32);
    std::uint32_t seen = 0;
    for (std::size_t i = begin; i < end; ++i) {
      seen |= static_cast<std::uint32_t>(counts[i] > 0) << (i - begin);
    }
    bits[word] = seen;
  }
}

CudaSampler::Path CudaSampler::write_path(const JobPlan& job, const PenaltyText& text,
                                          std::int32_t node, std::size_t& used) const {
  std::int32_t* const tokens = on_host(job.path_tokens);
  const std::size_t begin = used;
  for (auto n = to_size(node); text.node_parent[n] >= 0; n = to_size(text.node_parent[n])) {
    if (used == plan_.path_tokens) {
      throw_failure(cat("CUDA sampler: tree paths hold more than ", plan_.path_tokens, " tokens"));
    }
    tokens[used++] = text.node_token[n];
  }
  return {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(used - begin)};
}

void CudaSampler::hand_over(const JobPlan& job, std::size_t end) {
  transfers_.add(on_device(job.setting), on_host(job.setting), end - job.setting.at);
}

void CudaSampler::wait_for(std::uint32_t batch, const Place<std::uint32_t>& mark,
                           const char* what) const {
  wait_for_results(on_host(mark), batch, stream_, what);
}

template <typename T>
void CudaSampler::fetch(Place<T> host, Place<T> device, std::size_t count, const char* what) const {
  check(cudaMemcpyAsync(on_host(host), on_device(device), count * sizeof(T), cudaMemcpyDeviceToHost,
                        stream_),
        what);
}

void CudaSampler::check_rows(const char* what, std::size_t rows) const {
  if (rows < 1 || rows > to_size(limits_.rows)) {
    throw_failure(
        cat("CUDA sampler: ", rows, " rows to ", what, "; it was made for 1 to ", limits_.rows));
  }
}

// Rows to launch for: those that the caller's pass has, if there is room for any.
std::int32_t CudaSampler::launched(const char* what, std::int32_t rows, std::size_t staged) const {
  if (staged == 0 || rows < 0 || to_size(rows) < staged) {
    throw_failure(cat("CUDA sampler: ", rows, " rows to ", what, ", ", staged, " staged"));
  }
  return std::min(rows, limits_.rows);
}

PenaltyView CudaSampler::penalty_view(const JobPlan& job) const {
  return {on_device(job.text_bits), on_device(job.path_tokens)};
}

StoreView CudaSampler::store_view() const {
  return {on_device(plan_.store_logits), on_device(plan_.store_statistics),
          static_cast<std::int64_t>(plan_.store_stride), plan_.common_vocab};
}

// --- drawing ----------------------------------------------------------------------------------

DrawInput CudaSampler::input_of(const DrawRow& row) const {
  if (plan_.common_vocab == 0) throw_failure("CUDA sampler: it was made without a draft");
  if (row.store < 0 || row.store >= limits_.store_rows) {
    throw_failure(cat("CUDA sampler: row ", row.store, " of a store of ", limits_.store_rows));
  }
  DrawInput input;
  input.node_key = row.node_key;
  input.store = row.store;
  input.depth = row.depth;
  return input;
}

void CudaSampler::stage_draw(const DrawBatch& batch) {
  const std::size_t rows = batch.rows.size();
  check_rows("draw from", rows);
  draw_staged_ = 0;  // until all is well
  transfers_.wait();
  const bool penalised = is_penalised(batch.penalty, batch.params);
  write_setting(plan_.draw, batch.params, batch.key, batch.noise, rows, penalised);
  on_host(plan_.draw.setting)->sharpness = static_cast<float>(batch.sharpness);
  DrawInput* const inputs = on_host(plan_.draw_rows);
  std::size_t used = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    inputs[r] = input_of(batch.rows[r]);
    if (!penalised) continue;
    const Path path = write_path(plan_.draw, *batch.penalty, batch.rows[r].node, used);
    inputs[r].path_begin = path.begin;
    inputs[r].path_count = path.count;
  }
  std::size_t end = plan_.draw_rows.at + rows * sizeof(DrawInput);
  if (penalised) {
    write_text(plan_.draw, *batch.penalty);
    end = plan_.draw.path_tokens.at + used * sizeof(std::int32_t);
  }
  hand_over(plan_.draw, end);
  draw_batch_ = batches_;
  draw_staged_ = rows;
  draw_scores_ = batch.sharpness > 0.0;
  draw_samples_ = batch.noise == DeviceNoise::sampled;
}

void CudaSampler::draw(const float* logits, std::int64_t stride, std::int32_t rows) {
  rows = launched("draw from", rows, draw_staged_);
  const DrawView view{on_device(plan_.draw.setting), on_device(plan_.draw_rows),
                      penalty_view(plan_.draw)};
  process_draft_rows(view, logits, stride, store_view(), rows, faulty(), stream_);
  draw_children(view, store_view(), {on_device(plan_.draw_slices), on_device(plan_.draw_sums)},
                on_host(plan_.drawn), {on_device(plan_.draw_finished), on_host(plan_.draw_mark)},
                rows, faulty(), stream_);
}

void CudaSampler::collect_draw(std::span<DrawnChildren> out) {
  if (out.size() != draw_staged_) {
    throw_failure(cat("CUDA sampler: children of ", out.size(), " rows asked for, ", draw_staged_,
                      " drawn from"));
  }
  wait_for(draw_batch_, plan_.draw_mark, "drawing children");
  const DrawnRow* const drawn = on_host(plan_.drawn);
  for (std::size_t r = 0; r < out.size(); ++r) {
    if (drawn[r].argmax < 0) throw_no_finite_logit("draft", r);
    out[r] = children_of(drawn[r], draw_scores_, draw_samples_);
  }
}

DrawView CudaSampler::send_row(const DrawBatch& batch, std::int32_t row, TokenId token) {
  if (row < 0 || to_size(row) >= batch.rows.size() || token < 0 || token >= plan_.common_vocab) {
    throw_failure(cat("CUDA sampler: token ", token, " of row ", row, " of ", batch.rows.size()));
  }
  DrawInput input = input_of(batch.rows[to_size(row)]);
  input.after = token;
  transfers_.wait();
  write_setting(plan_.more, batch.params, batch.key, batch.noise, 1, false);
  on_host(plan_.more.setting)->sharpness = static_cast<float>(batch.sharpness);
  *on_host(plan_.more_rows) = input;
  hand_over(plan_.more, plan_.more_rows.at + sizeof(DrawInput));
  transfers_.send();
  return {on_device(plan_.more.setting), on_device(plan_.more_rows), {}};
}

DrawnChildren CudaSampler::more(const DrawBatch& batch, std::int32_t row, TokenId last) {
  const DrawView view = send_row(batch, row, last);
  draw_children(view, store_view(), {on_device(plan_.more_slices), on_device(plan_.more_sums)},
                on_host(plan_.drawn_more),
                {on_device(plan_.draw_finished), on_host(plan_.draw_mark)}, 1, faulty(), stream_);
  wait_for(batches_, plan_.draw_mark, "drawing children");
  return children_of(*on_host(plan_.drawn_more), batch.sharpness > 0.0,
                     batch.noise == DeviceNoise::sampled);
}

float CudaSampler::score_of(const DrawBatch& batch, std::int32_t row, TokenId token) {
  if (token >= plan_.common_vocab) return 0.0f;
  const DrawView view = send_row(batch, row, token);
  score_token(view, store_view(), on_host(plan_.drawn_more),
              {on_device(plan_.draw_finished), on_host(plan_.draw_mark)}, stream_);
  wait_for(batches_, plan_.draw_mark, "scoring a token");
  return on_host(plan_.drawn_more)->scores[0];
}

// --- judging ----------------------------------------------------------------------------------

// Lists of children by rank, one after the other; node keys along the paths of ranks.
void CudaSampler::link_children(const JudgeBatch& batch) const {
  JudgeInput* const inputs = on_host(plan_.judge_rows);
  std::int32_t* const child_row = on_host(plan_.judge.child_row);
  std::int32_t* const child_token = on_host(plan_.judge.child_token);
  const std::size_t rows = batch.token.size();
  for (std::size_t r = 0; r < rows; ++r) {
    inputs[r] = JudgeInput{};
    inputs[r].store = batch.store[r];
    inputs[r].depth = batch.depth[r];
    const std::int32_t parent = batch.parent[r];
    const bool in_order = r == 0 ? parent == -1 : parent >= 0 && to_size(parent) < r;
    if (!in_order || batch.token[r] < 0 || batch.token[r] >= plan_.target_vocab ||
        batch.store[r] >= limits_.store_rows) {
      throw_failure(cat("CUDA sampler: row ", r, " of the tree has parent ", parent, ", token ",
                        batch.token[r], ", store row ", batch.store[r]));
    }
    if (r > 0) ++inputs[parent].children;
  }
  std::int32_t first = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    inputs[r].first_child = first;
    std::fill_n(child_row + first, inputs[r].children, -1);
    first += inputs[r].children;
    const bool draft_needed = batch.rule == DeviceNoise::sampled && inputs[r].children > 0;
    if (draft_needed && (inputs[r].store < 0 || plan_.common_vocab == 0)) {
      throw_failure(cat("CUDA sampler: row ", r, " has children, but no draft distribution"));
    }
  }
  inputs[0].node_key = root_node_key;
  for (std::size_t r = 1; r < rows; ++r) {
    const JudgeInput& parent = inputs[batch.parent[r]];
    const std::int32_t rank = batch.rank[r];
    if (rank < 0 || rank >= parent.children || child_row[parent.first_child + rank] >= 0) {
      throw_failure(cat("CUDA sampler: row ", r, " has rank ", rank, " among ", parent.children,
                        " siblings"));
    }
    inputs[r].node_key = child_node_key(parent.node_key, rank);
    child_row[parent.first_child + rank] = static_cast<std::int32_t>(r);
    child_token[parent.first_child + rank] = batch.token[r];
  }
}

void CudaSampler::stage_judge(const JudgeBatch& batch) {
  const std::size_t rows = batch.token.size();
  check_rows("judge", rows);
  if (batch.parent.size() != rows || batch.depth.size() != rows || batch.rank.size() != rows ||
      batch.store.size() != rows) {
    throw_failure("CUDA sampler: the arrays of a tree differ in length");
  }
  judge_staged_ = 0;  // until all is well
  transfers_.wait();
  const bool penalised = is_penalised(batch.penalty, batch.params);
  write_setting(plan_.judge, batch.params, batch.key, batch.rule, rows, penalised);
  link_children(batch);
  std::size_t end = plan_.judge.child_token.at + rows * sizeof(std::int32_t);
  if (penalised) {
    JudgeInput* const inputs = on_host(plan_.judge_rows);
    std::size_t used = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const Path path = write_path(plan_.judge, *batch.penalty, static_cast<std::int32_t>(r), used);
      inputs[r].path_begin = path.begin;
      inputs[r].path_count = path.count;
    }
    write_text(plan_.judge, *batch.penalty);
    end = plan_.judge.path_tokens.at + used * sizeof(std::int32_t);
  }
  hand_over(plan_.judge, end);
  judge_batch_ = batches_;
  judge_staged_ = rows;
}

void CudaSampler::judge(float* logits, std::int32_t rows) {
  rows = launched("judge", rows, judge_staged_);
  const JudgeView view{on_device(plan_.judge.setting), on_device(plan_.judge_rows),
                       on_device(plan_.judge.child_row), on_device(plan_.judge.child_token),
                       penalty_view(plan_.judge)};
  const TargetView target{logits, on_device(plan_.target_statistics),
                          on_device(plan_.target_slices), plan_.target_vocab};
  const VerdictView verdict{on_device(plan_.outcomes),
                            {on_device(plan_.judge_finished), on_host(plan_.judge_mark)},
                            on_host(plan_.verdict)};
  process_target_rows(view, target, rows, stream_);
  couple_target_rows(view, target, rows, stream_);
  judge_tree(view, target, store_view(), verdict, rows, faulty(), stream_);
}

void CudaSampler::collect_verdict(DeviceVerdict& out) {
  if (judge_staged_ == 0) throw_failure("CUDA sampler: no tree has been judged");
  wait_for(judge_batch_, plan_.judge_mark, "judging a tree");
  const std::int32_t* const verdict = on_host(plan_.verdict);
  const std::int32_t* const rows = verdict + 2;
  const std::size_t accepted = to_size(verdict[1]);
  if (verdict[0] == no_distribution) {
    throw_no_finite_logit("target", accepted == 0 ? 0 : to_size(rows[accepted - 1]));
  }
  out.bonus = verdict[0];
  out.rows.assign(rows, rows + accepted);
}

// --- scoring ----------------------------------------------------------------------------------

void CudaSampler::stage_score(std::span<const TokenId> next, const SamplingParams& params) {
  check_rows("score", next.size());
  if (plan_.common_vocab == 0) throw_failure("CUDA sampler: it was made without a draft");
  transfers_.wait();
  write_setting(plan_.score, params, {}, DeviceNoise::top, next.size(), false);
  std::copy(next.begin(), next.end(), on_host(plan_.score.next));
  hand_over(plan_.score, plan_.score.next.at + next.size() * sizeof(TokenId));
  score_staged_ = next.size();
}

void CudaSampler::score(const float* logits, std::int64_t stride, std::int32_t rows) {
  rows = launched("score", rows, score_staged_);
  const ScoreView view{on_device(plan_.score.setting), on_device(plan_.score.next)};
  score_rows(view, logits, stride, plan_.common_vocab, on_device(plan_.scores), rows, stream_);
  fetch(plan_.host_scores, plan_.scores, to_size(rows), "fetching scores");
}

void CudaSampler::collect_scores(std::span<float> out) {
  if (out.size() != score_staged_) {
    throw_failure(
        cat("CUDA sampler: ", out.size(), " scores asked for, ", score_staged_, " staged"));
  }
  check(cudaStreamSynchronize(stream_), "scoring");
  const float* const scores = on_host(plan_.host_scores);
  for (std::size_t r = 0; r < out.size(); ++r) {
    if (scores[r] < 0.0f) throw_no_finite_logit("draft", r);
    out[r] = scores[r];
  }
}

}  // namespace coppice::cuda

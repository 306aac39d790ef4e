#include "kernels/cuda/sampling/sampler.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/pass/completion.h"
#include "kernels/cuda/sampling/sampler_parts.h"

namespace coppice::cuda {
namespace {

constexpr const char* purpose = "sampling";

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

void CudaSampler::write_head(const JobPlan& job, std::size_t rows, std::size_t texts) {
  BatchHead head;
  head.rows = static_cast<std::int32_t>(rows);
  head.texts = static_cast<std::int32_t>(texts);
  head.number = ++batches_;
  *on_host(job.head) = head;
}

SamplingSetting CudaSampler::setting_of(const SamplingParams& params, const StepKey& key,
                                        AcceptanceRule rule) const {
  SamplingSetting setting;
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
  setting.frequency = static_cast<float>(params.frequency_penalty);
  setting.presence = static_cast<float>(params.presence_penalty);
  setting.top_k = std::max(params.top_k, 0);
  setting.rule = rule;
  setting.fault = fault();
  return setting;
}

SamplingSetting CudaSampler::setting_of(const JobPlan& job, const TextInput& text,
                                        const TextInput& next, Used& used) const {
  SamplingSetting setting =
      setting_of(fault() == DeviceFault::neighbours_parameters ? next.params : text.params,
                 fault() == DeviceFault::neighbours_noise ? next.key : text.key, text.rule);
  if (text.penalty == nullptr) return setting;
  const bool of_next = fault() == DeviceFault::neighbours_counts && next.penalty != nullptr;
  const PenaltyText& from = of_next ? *next.penalty : *text.penalty;
  setting.counts_path = text.params.counts_new() ? 1 : 0;
  write_terms(job, from, setting, used.terms);
  if (!is_penalised(text.penalty, text.params)) return setting;
  setting.penalised = 1;
  setting.text = write_text(job, from, used.penalised);
  return setting;
}

// Tokens with a bias, or of the new text.
void CudaSampler::write_terms(const JobPlan& job, const PenaltyText& text, SamplingSetting& setting,
                              std::size_t& terms) const {
  const std::size_t begin = terms;
  const auto add = [&](TokenTerm term) {
    if (terms == plan_.terms) {
      throw_failure(cat("CUDA sampler: the texts of a step hold more than ", plan_.terms,
                        " tokens to penalise; lower max_sequences (--parallel)"));
    }
    on_host(job.terms)[terms++] = term;
  };
  std::size_t token = 0;
  const auto add_counted = [&](std::size_t end) {
    if (text.new_counts == nullptr) return;
    text.new_counts->each(token, end, [&](TokenId counted, std::int32_t count) {
      add({counted, count, 0.0f});
    });
  };
  for (const TokenBias& of : text.bias) {
    const std::size_t biased = to_size(of.token);
    add_counted(biased);
    token = biased + 1;
    add({of.token, text.new_counts == nullptr ? 0 : text.new_counts->counts()[biased], of.bias});
  }
  add_counted(to_size(plan_.target_vocab));
  setting.first_term = static_cast<std::int32_t>(begin);
  setting.terms = static_cast<std::int32_t>(terms - begin);
}

std::int32_t CudaSampler::write_text(const JobPlan& job, const PenaltyText& text,
                                     std::size_t& penalised) const {
  write_words(text.counts->words(), on_host(job.text_bits) + penalised * plan_.text_words);
  return static_cast<std::int32_t>(penalised++);
}

void CudaSampler::write_words(std::span<const std::uint32_t> words, std::uint32_t* out) const {
  const std::size_t count = std::min(words.size(), plan_.text_words);
  std::copy_n(words.begin(), count, out);
  std::fill(out + count, out + plan_.text_words, 0u);
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

std::int32_t CudaSampler::write_mask(const JobPlan& job,
                                     const std::shared_ptr<const TokenMask>& mask) {
  if (mask == nullptr) return -1;
  const auto known = std::find(masks_.begin(), masks_.end(), mask);
  const auto number = known - masks_.begin();
  if (known == masks_.end()) {
    masks_.push_back(mask);
    write_words(mask->words, on_host(job.mask_bits) + to_size(number) * plan_.text_words);
  }
  return static_cast<std::int32_t>(number);
}

void CudaSampler::hand_over(const JobPlan& job, std::size_t end, const Used& used) {
  transfers_.add(on_device(job.head), on_host(job.head), end - job.head.at);
  if (used.penalised > 0) {
    transfers_.add(on_device(job.text_bits), on_host(job.text_bits),
                   used.penalised * plan_.text_words * sizeof(std::uint32_t));
  }
  if (used.path_tokens > 0) {
    transfers_.add(on_device(job.path_tokens), on_host(job.path_tokens),
                   used.path_tokens * sizeof(std::int32_t));
  }
  if (used.terms > 0) {
    transfers_.add(on_device(job.terms), on_host(job.terms), used.terms * sizeof(TokenTerm));
  }
  if (!masks_.empty()) {
    transfers_.add(on_device(job.mask_bits), on_host(job.mask_bits),
                   masks_.size() * plan_.text_words * sizeof(std::uint32_t));
    masks_.clear();
  }
}

void CudaSampler::wait_for(const Awaited& awaited) const {
  if (reached(on_host(awaited.mark), awaited.batch, stream_, awaited.what)) return;
  const auto seen = [&] {
    return std::atomic_ref<std::uint32_t>(*on_host(awaited.mark)).load(std::memory_order_acquire);
  };
  const std::uint32_t mark = seen();
  BatchHead head;
  std::uint32_t finished = 0;
  const auto read = [&](void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), awaited.what);
  };
  read(&head, on_device(awaited.head), sizeof(head));
  read(&finished, on_device(awaited.finished), sizeof(finished));
  check(cudaStreamSynchronize(stream_), awaited.what);
  throw_failure(cat("CUDA: ", awaited.what, " ended without results: batch ", awaited.batch, " of ",
                    on_host(awaited.head)->rows, " rows was asked for, the GPU had batch ",
                    head.number, " of ", head.rows, " rows, ", finished,
                    " of them counted, and told of batch ", mark, " (", seen(),
                    " by now); please report this line, and run again"));
}

template <typename T>
void CudaSampler::fetch(Place<T> host, Place<T> device, std::size_t count, const char* what) const {
  check(cudaMemcpyAsync(on_host(host), on_device(device), count * sizeof(T), cudaMemcpyDeviceToHost,
                        stream_),
        what);
}

void CudaSampler::check_batch(const char* what, std::size_t rows, std::size_t texts) const {
  if (rows < 1 || rows > to_size(limits_.rows)) {
    throw_failure(
        cat("CUDA sampler: ", rows, " rows to ", what, "; it was made for 1 to ", limits_.rows));
  }
  if (texts < 1 || texts > to_size(limits_.texts)) {
    throw_failure(
        cat("CUDA sampler: ", texts, " texts to ", what, "; it was made for 1 to ", limits_.texts));
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
  return {on_device(job.text_bits), static_cast<std::int32_t>(plan_.text_words),
          on_device(job.path_tokens), on_device(job.terms)};
}

MaskView CudaSampler::mask_view(const JobPlan& job) const {
  return {on_device(job.mask_bits), static_cast<std::int32_t>(plan_.text_words)};
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
  const std::size_t rows = batch.rows.size(), texts = batch.texts.size();
  check_batch("draw from", rows, texts);
  draw_staged_ = 0;  // until all is well
  transfers_.wait();
  write_head(plan_.draw, rows, texts);
  Used used{};
  for (std::size_t t = 0; t < texts; ++t) {
    const auto input_of_text = [&](std::size_t i) {
      const DrawText& text = batch.texts[i];
      return TextInput{text.params, text.key, text.rule, text.penalty};
    };
    SamplingSetting setting =
        setting_of(plan_.draw, input_of_text(t), input_of_text((t + 1) % texts), used);
    setting.belief_inverse_temperature =
        static_cast<float>(batch.texts[t].belief_inverse_temperature);
    on_host(plan_.draw.settings)[t] = setting;
  }
  DrawInput* const inputs = on_host(plan_.draw_rows);
  draw_scores_.clear();
  draw_samples_.clear();
  draw_masked_.clear();
  masks_.clear();
  for (std::size_t r = 0; r < rows; ++r) {
    const DrawRow& row = batch.rows[r];
    if (row.text < 0 || to_size(row.text) >= texts) {
      throw_failure(cat("CUDA sampler: row ", r, " is of text ", row.text, " of ", texts));
    }
    const DrawText& text = batch.texts[to_size(row.text)];
    inputs[r] = input_of(row);
    inputs[r].text = row.text;
    inputs[r].mask = write_mask(plan_.draw, row.mask);
    draw_masked_.push_back(row.mask != nullptr);
    draw_scores_.push_back(text.belief_inverse_temperature > 0.0);
    draw_samples_.push_back(text.rule == AcceptanceRule::rejection);
    if (!needs_path(text.penalty, text.params)) continue;
    const Path path = write_path(plan_.draw, *text.penalty, row.node, used.path_tokens);
    inputs[r].path_begin = path.begin;
    inputs[r].path_count = path.count;
  }
  hand_over(plan_.draw, plan_.draw_rows.at + rows * sizeof(DrawInput), used);
  draw_batch_ = batches_;
  draw_staged_ = rows;
}

void CudaSampler::draw(float* logits, std::int64_t stride, std::int32_t rows) {
  rows = launched("draw from", rows, draw_staged_);
  const DrawView view{on_device(plan_.draw.head), on_device(plan_.draw.settings),
                      on_device(plan_.draw_rows), penalty_view(plan_.draw), mask_view(plan_.draw)};
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
  wait_for(
      {draw_batch_, plan_.draw.head, plan_.draw_mark, plan_.draw_finished, "drawing children"});
  const DrawnRow* const drawn = on_host(plan_.drawn);
  for (std::size_t r = 0; r < out.size(); ++r) {
    if (drawn[r].argmax < 0) {
      if (!draw_masked_[r]) throw_no_finite_logit("draft", r);
      out[r] = {{}, true, -1.0, {}, {}};  // D knows none of the tokens that may follow
      continue;
    }
    out[r] = children_of(drawn[r], draw_scores_[r], draw_samples_[r]);
  }
}

DrawView CudaSampler::send_row(const DrawText& text, const DrawRow& row, TokenId token) {
  if (token < 0 || token >= plan_.common_vocab) {
    throw_failure(cat("CUDA sampler: children after token ", token, " of ", plan_.common_vocab));
  }
  DrawInput input = input_of(row);
  input.after = token;
  transfers_.wait();
  write_head(plan_.more, 1, 1);
  SamplingSetting setting = setting_of(text.params, text.key, text.rule);
  setting.belief_inverse_temperature = static_cast<float>(text.belief_inverse_temperature);
  *on_host(plan_.more.settings) = setting;
  *on_host(plan_.more_rows) = input;
  hand_over(plan_.more, plan_.more_rows.at + sizeof(DrawInput));
  transfers_.send();
  return {on_device(plan_.more.head),
          on_device(plan_.more.settings),
          on_device(plan_.more_rows),
          {},
          {}};
}

DrawnChildren CudaSampler::more(const DrawText& text, const DrawRow& row, TokenId last) {
  const DrawView view = send_row(text, row, last);
  draw_children(view, store_view(), {on_device(plan_.more_slices), on_device(plan_.more_sums)},
                on_host(plan_.drawn_more),
                {on_device(plan_.draw_finished), on_host(plan_.draw_mark)}, 1, faulty(), stream_);
  wait_for({batches_, plan_.more.head, plan_.draw_mark, plan_.draw_finished, "drawing children"});
  return children_of(*on_host(plan_.drawn_more), text.belief_inverse_temperature > 0.0,
                     text.rule == AcceptanceRule::rejection);
}

float CudaSampler::score_of(const DrawText& text, const DrawRow& row, TokenId token) {
  if (token >= plan_.common_vocab) return 0.0f;
  const DrawView view = send_row(text, row, token);
  score_token(view, store_view(), on_host(plan_.drawn_more),
              {on_device(plan_.draw_finished), on_host(plan_.draw_mark)}, stream_);
  wait_for({batches_, plan_.more.head, plan_.draw_mark, plan_.draw_finished, "scoring a token"});
  return on_host(plan_.drawn_more)->scores[0];
}

// --- scoring ----------------------------------------------------------------------------------

void CudaSampler::stage_score(std::span<const TokenId> next, const SamplingParams& params) {
  check_batch("score", next.size(), 1);
  if (plan_.common_vocab == 0) throw_failure("CUDA sampler: it was made without a draft");
  transfers_.wait();
  write_head(plan_.score, next.size(), 1);
  *on_host(plan_.score.settings) = setting_of(params, {}, AcceptanceRule::greedy);
  std::copy(next.begin(), next.end(), on_host(plan_.score.next));
  hand_over(plan_.score, plan_.score.next.at + next.size() * sizeof(TokenId));
  score_staged_ = next.size();
}

void CudaSampler::score(const float* logits, std::int64_t stride, std::int32_t rows) {
  rows = launched("score", rows, score_staged_);
  const ScoreView view{on_device(plan_.score.head), on_device(plan_.score.settings),
                       on_device(plan_.score.next)};
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

#include "server/metrics.h"

#include <algorithm>

#include "base/error.h"
#include "server/api/json.h"

namespace coppice::server {
namespace {

std::string header(const std::string& name, const std::string& help, const char* type) {
  return cat("# HELP ", name, ' ', help, "\n# TYPE ", name, ' ', type, '\n');
}

template <typename Number>
std::string plain(const char* type, const std::string& name, const std::string& help,
                  Number value) {
  return cat(header(name, help, type), name, ' ', value, '\n');
}

std::string by_depth(const std::string& name, const std::string& help,
                     const std::vector<std::int64_t>& counts) {
  std::string lines = header(name, help, "counter");
  for (std::size_t depth = 0; depth < counts.size(); ++depth) {
    lines += cat(name, "{position=\"", depth, "\"} ", counts[depth], '\n');
  }
  return lines;
}

}  // namespace

void Histogram::add(double value, std::uint64_t times) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(bucket)] += times;
  sum_ += value * static_cast<double>(times);
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::string lines = header(name, help, "histogram");
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    sum += counts_[i];
    lines += cat(name, "_bucket{le=\"", i < bounds_.size() ? cat(bounds_[i]) : "+Inf", "\"} ", sum,
                 '\n');
  }
  return lines + cat(name, "_sum ", to_text(sum_), '\n', name, "_count ", sum, '\n');
}

void Metrics::answered(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{path, status}];
}

void Metrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void Metrics::tokens(double seconds, std::uint64_t count) {
  if (count == 0) return;
  const std::lock_guard lock(mutex_);
  between_tokens_.add(seconds / static_cast<double>(count), count);
}

void Metrics::ended(const Generation& text, double seconds) {
  const Statistics& s = text.statistics;
  const std::lock_guard lock(mutex_);
  ++ends_[name_of(text.finish_reason)];
  prompt_ += static_cast<std::uint64_t>(s.prompt_tokens);
  cached_ += static_cast<std::uint64_t>(s.cached_tokens);
  generated_ += text.tokens.size();
  requests_.add(seconds);
}

std::string Metrics::text(const EngineStatistics& engine) const {
  const CacheStatistics& cache = engine.cache;
  const auto slots = static_cast<double>(cache.target_slots);
  const auto used = static_cast<double>(cache.target_slots - cache.target_free - cache.evictable);
  const std::lock_guard lock(mutex_);
  std::string text =
      header("coppice:http_requests_total", "Answers by path and status.", "counter");
  for (const auto& [key, count] : answers_) {
    text += cat("coppice:http_requests_total{path=\"", key.first, "\",status=\"", key.second,
                "\"} ", count, '\n');
  }
  text += plain("gauge", "coppice:num_requests_running", "Texts that take steps.", engine.running);
  text +=
      plain("gauge", "coppice:num_requests_waiting", "Texts that wait for room.", engine.waiting);
  text += plain("gauge", "coppice:kv_cache_usage_perc",
                "Part of the target's KV slots that texts use, 0 to 1.",
                slots > 0.0 ? used / slots : 0.0);
  text += plain("counter", "coppice:prompt_tokens_total", "Prompt tokens of ended texts.", prompt_);
  text += plain("counter", "coppice:prefix_cache_hits_total",
                "Of these, tokens whose KV was in memory.", cached_);
  text +=
      plain("counter", "coppice:generation_tokens_total", "New tokens of ended texts.", generated_);
  text += header("coppice:request_success_total", "Ended texts by what ended them.", "counter");
  for (const auto& [reason, count] : ends_) {
    text += cat("coppice:request_success_total{finished_reason=\"", reason, "\"} ", count, '\n');
  }
  text += plain("counter", "coppice:num_preemptions_total", "Times that a text lost its KV.",
                engine.preempted);
  text += plain("counter", "coppice:spec_decode_num_drafts_total",
                "Target passes after prefill, by text.", engine.steps);
  text += plain("counter", "coppice:spec_decode_num_draft_tokens_total", "Draft tokens judged.",
                engine.drafted);
  text += plain("counter", "coppice:spec_decode_num_accepted_tokens_total",
                "Draft tokens accepted.", engine.accepted);
  text += by_depth("coppice:spec_decode_num_draft_tokens_per_pos_total",
                   "Draft tokens judged, by depth in the tree: 0 is a child of the root.",
                   engine.drafted_by_depth);
  text += by_depth("coppice:spec_decode_num_accepted_tokens_per_pos_total",
                   "Draft tokens accepted, by depth in the tree.", engine.accepted_by_depth);
  text +=
      plain("counter", "coppice:target_passes_total",
            "Passes of the target that judged trees, one for all texts of a step.", engine.passes);
  text += first_token_.text("coppice:time_to_first_token_seconds",
                            "From a request's arrival to its first token.");
  text += between_tokens_.text("coppice:inter_token_latency_seconds",
                               "Between tokens, of a step shared among those it brought.");
  text += requests_.text("coppice:e2e_request_latency_seconds",
                         "From a request's arrival to the end of each of its texts.");
  return text;
}

}  // namespace coppice::server

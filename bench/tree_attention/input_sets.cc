#include "input_sets.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <set>

#include "base/error.h"
#include "bench/random_fill.h"
#include "kernels/cuda/linear/linear.h"

namespace coppice::bench {
namespace {

constexpr std::int32_t most_sets = 64;

double pool_elements(const Workload& work) {
  return static_cast<double>(work.pages) * work.page_size * work.cell.kv_heads * work.cell.head_dim;
}

/// Counts elements of the keys that some row sees: what a set adds to the bytes that lie between
/// two uses.
double read_elements(const Workload& work) {
  const double tokens = std::max(work.tokens(), 1);
  const Cell& cell = work.cell;
  const double unseen =
      cell.window == 0 ? 0.0 : cell.texts * std::max(cell.prefix / cell.texts - cell.window, 0);
  return pool_elements(work) * (tokens - unseen) / tokens;
}

double widened(std::uint16_t bf16) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16));
}

/// First, last and two others of [0, count).
std::set<std::int32_t> sampled(std::int32_t count, std::mt19937& random) {
  std::uniform_int_distribution<std::int32_t> any(0, count - 1);
  return {0, count - 1, any(random), any(random)};
}

}  // namespace

InputSets::InputSets(const Workload& work, double rotated_bytes, cudaStream_t stream)
    : work_(work),
      sets_(std::clamp(
          static_cast<std::int32_t>(std::ceil(rotated_bytes / (4.0 * read_elements(work)))), 2,
          most_sets)),
      padded_rows_(cuda::padded_row_count(work.cell.rows)),
      keys_(static_cast<std::size_t>(sets_ * pool_elements(work))),
      values_(keys_.size()),
      q_(2 * row_elements(sets_)),
      out_(row_elements(sets_)) {
  fill_normal_bf16(keys_.data(), keys_.size(), 11, stream);
  fill_normal_bf16(values_.data(), values_.size(), 12, stream);
  fill_normal_bf16(q_.data(), q_.size(), 13, stream);
  cuda::check(cudaStreamSynchronize(stream), "random operands");
}

AttentionRule InputSets::rule() const {
  const Cell& cell = work_.cell;
  return {1.0f / std::sqrt(static_cast<float>(cell.head_dim)), cell.soft_cap, cell.window};
}

void InputSets::poison_output() const {
  cuda::check(cudaMemset(out_.data(), 0xff, out_.size() * sizeof(std::uint16_t)),
              "poisoning outputs");
  cuda::check(cudaDeviceSynchronize(), "poisoning outputs");
}

std::vector<std::uint16_t> InputSets::head_of_pool(const DeviceArray<std::uint16_t>& pool,
                                                   std::int32_t set, std::int32_t kv_head) const {
  const std::size_t page_elements = static_cast<std::size_t>(work_.page_size * work_.cell.head_dim);
  const std::size_t page_bytes = page_elements * sizeof(std::uint16_t);
  const auto kv_heads = static_cast<std::size_t>(work_.cell.kv_heads);
  const auto pages = static_cast<std::size_t>(work_.pages);
  const std::uint16_t* first = pool.data() + (static_cast<std::size_t>(set) * pages * kv_heads +
                                              static_cast<std::size_t>(kv_head)) *
                                                 page_elements;
  std::vector<std::uint16_t> values(pages * page_elements);
  cuda::check(cudaMemcpy2D(values.data(), page_bytes, first, kv_heads * page_bytes, page_bytes,
                           pages, cudaMemcpyDeviceToHost),
              "download of keys and values");
  return values;
}

double InputSets::error(std::int32_t set, std::uint32_t seed) const {
  std::mt19937 random(seed);
  const Cell& cell = work_.cell;
  const auto rows = static_cast<std::size_t>(cell.rows);
  const auto head_dim = static_cast<std::size_t>(cell.head_dim);
  const AttentionRule rule = this->rule();
  const std::vector<std::uint16_t> out =
      out_.download(row_elements(set), rows * static_cast<std::size_t>(q_stride()));
  for (const std::uint16_t value : out) {
    if (!std::isfinite(widened(value))) return INFINITY;
  }
  double worst = 0.0;
  for (const std::int32_t kv_head : sampled(cell.kv_heads, random)) {
    const std::vector<std::uint16_t> keys = head_of_pool(keys_, set, kv_head);
    const std::vector<std::uint16_t> values = head_of_pool(values_, set, kv_head);
    for (const std::int32_t query : sampled(cell.rows, random)) {
      const std::int32_t head =
          kv_head * cell.group() +
          std::uniform_int_distribution<std::int32_t>(0, cell.group() - 1)(random);
      const std::size_t at =
          static_cast<std::size_t>(query) * static_cast<std::size_t>(q_stride()) +
          static_cast<std::size_t>(head) * head_dim;
      std::vector<double> q_row;
      for (const std::uint16_t x : q_.download(2 * (row_elements(set) + at), head_dim)) {
        q_row.push_back(widened(x));
      }
      // Scores of standard normal operands are near 0: exp() needs no maximum subtracted.
      double sum = 0.0;
      std::vector<double> exact(head_dim, 0.0);
      const auto attend = [&](KvSlot slot, std::int32_t position) {
        if (rule.window > 0 &&
            position <= work_.positions[static_cast<std::size_t>(query)] - rule.window) {
          return;
        }
        const auto row = static_cast<std::size_t>(slot) * head_dim;
        double score = 0.0;
        for (std::size_t i = 0; i < head_dim; ++i) score += q_row[i] * widened(keys[row + i]);
        score *= static_cast<double>(rule.scale);
        const double cap = rule.soft_cap;
        if (cap > 0) score = cap * std::tanh(score / cap);
        const double weight = std::exp(score);
        sum += weight;
        for (std::size_t i = 0; i < head_dim; ++i) exact[i] += weight * widened(values[row + i]);
      };
      std::int32_t place = 0;
      for (const KvSlot slot : work_.prefix) attend(slot, place++);
      for (std::int32_t token = 0; token < cell.tail(); ++token) {
        if (!work_.visibility.sees(query, token)) continue;
        const auto at_token = static_cast<std::size_t>(token);
        attend(work_.tail_slots[at_token], work_.tail.empty() ? 0 : work_.tail[at_token].position);
      }
      double distance = 0.0, norm = 0.0;
      for (std::size_t i = 0; i < head_dim; ++i) {
        const double expected = exact[i] / sum;
        const double difference = widened(out[at + i]) - expected;
        distance += difference * difference;
        norm += expected * expected;
      }
      worst = std::max(worst, std::sqrt(distance / norm));
    }
  }
  return worst;
}

}  // namespace coppice::bench

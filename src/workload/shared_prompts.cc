#include "workload/shared_prompts.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/error.h"
#include "workload/tree_template.h"

namespace coppice::workload {
namespace {

/// Lengths evenly from half to one and a half times the mean, in random order.
std::vector<std::int64_t> lengths_around(double mean, std::int32_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> lengths;
  double before = 0.0;
  for (std::int32_t i = 0; i < count; ++i) {
    const double up_to = before + mean * (0.5 + (i + 0.5) / count);
    lengths.push_back(std::llround(up_to) - std::llround(before));
    before = up_to;
  }
  std::shuffle(lengths.begin(), lengths.end(), random);
  return lengths;
}

}  // namespace

SharingStatistics toolbench() { return {1835, 0.15, 0.70}; }
SharingStatistics loogle() { return {23474, 0.0, 0.91}; }

SharedPrompts shared_prompts(const SharingStatistics& statistics, std::int32_t groups,
                             std::int32_t prompts_of_group, std::int64_t vocab_size,
                             std::uint64_t seed) {
  if (groups < 1 || prompts_of_group < 1) {
    throw_usage(cat(groups, " groups of ", prompts_of_group, " prompts: use at least 1 of each"));
  }
  const auto mean = static_cast<double>(statistics.mean_tokens);
  const double own = mean * (1.0 - statistics.common - statistics.of_group);
  if (own < 2.0 || mean * statistics.of_group < 2.0) {
    throw_usage(
        cat("prompts of ", statistics.mean_tokens,
            " tokens are too short for what they share; use longer ones (--prompt-tokens)"));
  }
  if (mean * groups * prompts_of_group > static_cast<double>(most_tokens)) {
    throw_usage(
        cat(groups, " groups of ", prompts_of_group, " prompts of ", statistics.mean_tokens,
            " tokens are more than ", most_tokens,
            " in all; use fewer (--groups, --group-prompts) or shorter ones (--prompt-tokens)"));
  }
  std::mt19937_64 random(seed);
  const auto append = [&](std::vector<TokenId>& tokens, std::int64_t count) {
    for (; count > 0; --count) {
      tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint64_t>(vocab_size)));
    }
  };
  std::vector<TokenId> common;
  append(common, std::llround(mean * statistics.common));
  SharedPrompts result;
  const auto of_group = lengths_around(mean * statistics.of_group, groups, random);
  const auto of_prompt = lengths_around(own, groups * prompts_of_group, random);
  std::size_t next = 0;
  for (const std::int64_t length : of_group) {
    std::vector<TokenId> start = common;
    append(start, length);
    for (std::int32_t i = 0; i < prompts_of_group; ++i) {
      std::vector<TokenId>& prompt = result.prompts.emplace_back(start);
      append(prompt, of_prompt[next++]);
      result.prompt_tokens += std::ssize(prompt);
    }
  }
  std::shuffle(result.prompts.begin(), result.prompts.end(), random);
  result.distinct_tokens = distinct_tokens(result.prompts);
  return result;
}

std::int64_t distinct_tokens(std::vector<std::vector<TokenId>> prompts) {
  std::sort(prompts.begin(), prompts.end());
  std::int64_t distinct = 0;
  const std::vector<TokenId>* before = nullptr;
  for (const std::vector<TokenId>& prompt : prompts) {
    std::ptrdiff_t shared = 0;
    if (before != nullptr) {
      shared = std::mismatch(prompt.begin(), prompt.end(), before->begin(), before->end()).first -
               prompt.begin();
    }
    distinct += std::ssize(prompt) - shared;
    before = &prompt;
  }
  return distinct;
}

}  // namespace coppice::workload

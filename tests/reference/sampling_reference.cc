#include "reference/sampling_reference.h"

#include <Random123/philox.h>

#include <algorithm>
#include <cmath>

#include "reference/naive_logits.h"

namespace coppice::testing {
namespace {

double unit(std::uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1.0p-52; }

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Bounded {
  double value = 0.0;
  double error = 0.0;
};

/// The token drawn by inverse CDF from weights with errors.
TokenId inverse_cdf(const std::vector<double>& weights, const std::vector<double>& errors, double u,
                    bool& certain) {
  double total = 0.0, total_error = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    total += weights[i];
    total_error += errors[i];
  }
  const double wanted = u * total;
  double sum = 0.0, error = u * total_error;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0 && errors[i] == 0.0) continue;
    // Uncertain on both sides of a boundary: before this token and after it.
    if (sum > 0.0 && std::abs(sum - wanted) <= error) certain = false;
    sum += weights[i];
    error += errors[i];
    if (std::abs(sum - wanted) <= error && i + 1 < weights.size()) certain = false;
    if (sum > wanted) return static_cast<TokenId>(i);
  }
  certain = false;
  return static_cast<TokenId>(weights.size()) - 1;
}

class Judge {
 public:
  explicit Judge(const JudgedTree& tree) : tree_(tree), children_(tree.token.size()) {
    for (std::size_t r = 1; r < tree.token.size(); ++r) {
      auto& siblings = children_[at(tree.parent[r])];
      siblings.resize(std::max(siblings.size(), at(tree.rank[r]) + 1), -1);
      siblings[at(tree.rank[r])] = static_cast<std::int32_t>(r);
    }
  }

  JudgedPath walk() {
    std::int32_t row = 0;
    std::uint64_t node_key = root_node_key;
    while (true) {
      if (tree_.target[at(row)].near_edge ||
          (!children_[at(row)].empty() && tree_.rule == AcceptanceRule::rejection &&
           tree_.draft[at(row)].near_edge)) {
        path_.certain = false;
      }
      const std::int32_t child =
          tree_.rule == AcceptanceRule::rejection ? reject(row, node_key) : follow(row);
      if (child < 0) return path_;
      path_.rows.push_back(child);
      node_key = child_node_key(node_key, tree_.rank[at(child)]);
      row = child;
    }
  }

 private:
  std::int32_t follow(std::int32_t row) {
    const Law& law = tree_.target[at(row)];
    const std::size_t vocab = law.probs.size();
    std::vector<double> noise(vocab, 1.0);
    if (tree_.rule == AcceptanceRule::coupled) {
      noise = coupled_noise(tree_.key, tree_.depth[at(row)], vocab);
    }
    std::size_t best = 0;
    for (std::size_t i = 0; i < vocab; ++i) {
      if (law.probs[i] / noise[i] > law.probs[best] / noise[best]) best = i;
    }
    // Temperature 0 leaves one token; otherwise scores carry errors.
    for (std::size_t i = 0; i < vocab; ++i) {
      if (i == best || law.probs[i] == 0.0) continue;
      const double slack = law.error[i] / noise[i] + law.error[best] / noise[best] +
                           2.0 * noise_error * law.probs[best] / noise[best];
      if (law.probs[i] / noise[i] + slack >= law.probs[best] / noise[best]) path_.certain = false;
    }
    for (const std::int32_t child : children_[at(row)]) {
      if (tree_.token[at(child)] == static_cast<TokenId>(best)) return child;
    }
    path_.bonus = static_cast<TokenId>(best);
    return -1;
  }

  std::int32_t reject(std::int32_t row, std::uint64_t node_key) {
    constexpr double no_mass = 1e-12;
    const Law& target = tree_.target[at(row)];
    const Law& draft = tree_.draft[at(row)];
    const double residual_uniform = uniform(RandomStream::residual, tree_.key, node_key, 0);
    const std::size_t vocab = target.probs.size();
    Bounded scale, left{1.0, 0.0}, total{1.0, 0.0}, drawn;
    std::vector<double> weights = target.probs, errors = target.error;
    std::uint64_t rank = 0;
    std::vector<std::size_t> out;  // refused tokens of no distribution
    for (const std::int32_t child : children_[at(row)]) {
      const bool proposed = !tree_.certain.empty() && tree_.certain[at(child)] != 0;
      const std::size_t token = at(tree_.token[at(child)]);
      const Bounded t{target.probs[token], target.error[token]};
      const Bounded d{draft.probs[token], draft.error[token]};
      const Bounded residual{std::max(0.0, t.value - scale.value * d.value),
                             t.error + scale.value * d.error + scale.error * d.value};
      const double rest = total.value - drawn.value;
      const Bounded draft_left{std::max(rest, d.value), total.error + drawn.error + d.error};
      const double u = uniform(RandomStream::accept, tree_.key, node_key, rank++);
      // As if D were one-hot at the token.
      const Bounded of_d = proposed ? Bounded{1.0, 0.0} : d;
      const Bounded of_left = proposed ? Bounded{1.0, 0.0} : draft_left;
      const double one = u * left.value * of_d.value, other = residual.value * of_left.value;
      const double slack = u * (left.error * of_d.value + left.value * of_d.error) +
                           residual.error * of_left.value + residual.value * of_left.error;
      if (std::abs(one - other) <= 1.01 * slack) path_.certain = false;
      if (one < other) return child;
      if (proposed) {
        out.push_back(token);
      } else {
        scale.error += left.error / draft_left.value +
                       left.value * draft_left.error / (draft_left.value * draft_left.value);
        scale.value += left.value / draft_left.value;
      }
      drawn.value += d.value;
      drawn.error += d.error;
      left = total = {};
      for (std::size_t i = 0; i < vocab; ++i) {
        const double c_d = scale.value * draft.probs[i];
        errors[i] = target.error[i] + scale.value * draft.error[i] + scale.error * draft.probs[i] +
                    2e-7 * target.probs[i];
        weights[i] = std::max(0.0, target.probs[i] - c_d);
        if (weights[i] == 0.0 && target.probs[i] + errors[i] < c_d) errors[i] = 0.0;
        // What was left out of a sum of floats leaves its rounding there.
        const bool is_out = std::find(out.begin(), out.end(), i) != out.end();
        if (is_out) left.error += 1.2e-7 * target.probs[i];
        if (is_out) weights[i] = errors[i] = 0.0;
        left.value += weights[i];
        left.error += errors[i];
        total.value += draft.probs[i];
        total.error += draft.error[i];
      }
      if (std::abs(left.value - no_mass) <= left.error) path_.certain = false;
      if (left.value <= no_mass) {
        weights = target.probs;
        errors = target.error;
        break;
      }
    }
    path_.bonus = inverse_cdf(weights, errors, residual_uniform, path_.certain);
    return -1;
  }

  const JudgedTree& tree_;
  std::vector<std::vector<std::int32_t>> children_;  ///< by rank
  JudgedPath path_;
};

}  // namespace

Law reference_law(std::span<const float> logits, const SamplingParams& params,
                  const std::vector<bool>& seen) {
  Law law;
  law.probs = naive_process(logits, params, seen, &law.near_edge);
  const double largest = *std::max_element(law.probs.begin(), law.probs.end());
  law.error.resize(law.probs.size(), 0.0);
  // At temperature 0 the one probability is exact.
  if (params.temperature <= 0.0) return law;
  for (std::size_t i = 0; i < law.probs.size(); ++i) {
    const double prob = law.probs[i];
    if (prob > 0.0) law.error[i] = prob * (4e-6 + 1.8e-7 * std::log(largest / prob)) + 1e-37;
  }
  return law;
}

std::vector<double> sampled_noise(const StepKey& key, std::uint64_t node_key, std::size_t vocab) {
  std::vector<double> noise(vocab);
  for (std::size_t i = 0; i < vocab; i += 4) {
    const r123::Philox4x64::ctr_type counter = {{key.sequence, key.step, node_key, i / 4}};
    const r123::Philox4x64::key_type seed = {
        {key.seed, static_cast<std::uint64_t>(RandomStream::draft)}};
    const auto bits = r123::Philox4x64()(counter, seed);
    for (std::size_t j = 0; j < 4 && i + j < vocab; ++j) noise[i + j] = -std::log(unit(bits[j]));
  }
  return noise;
}

std::vector<double> coupled_noise(const StepKey& key, std::int32_t depth, std::size_t vocab) {
  std::vector<double> noise(vocab);
  coupled_uniforms(key.seed, key.sequence, key.noise_position(static_cast<std::uint64_t>(depth)), 0,
                   noise);
  for (double& value : noise) value = -std::log(value);
  return noise;
}

JudgedPath reference_judge(const JudgedTree& tree) { return Judge(tree).walk(); }

}  // namespace coppice::testing

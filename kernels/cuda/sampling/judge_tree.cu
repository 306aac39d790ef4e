// Judging a tree by its target rows. What follows a node depends on the node's own T and D and
// on numbers keyed by the node, not on how it was reached: so all rows are judged at once, as if
// each were reached, and the block that finishes last walks the tree along what they found.
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/completion.cuh"
#include "kernels/cuda/sampling/residual.cuh"
#include "kernels/cuda/sampling/sampling.h"
#include "kernels/cuda/sampling/token_scores.cuh"
#include "kernels/rejection_rule.h"

namespace coppice::cuda {
namespace {

/// NodeRejection, or with a planted fault.
struct PlainRejection : NodeRejection {
  static constexpr DeviceFault fault(const SamplingSetting&) { return DeviceFault::none; }
  __device__ explicit PlainRejection(DeviceFault) {}
};

struct FaultyRejection : NodeRejection {
  __device__ static DeviceFault fault(const SamplingSetting& setting) { return setting.fault; }
  __device__ explicit FaultyRejection(DeviceFault planted) : fault_(planted) {}

  __device__ bool accepts(double u, double target_prob, double draft_prob) const {
    return fault_ == DeviceFault::accept_without_residual
               ? u * draft_prob < target_prob
               : NodeRejection::accepts(u, target_prob, draft_prob);
  }
  __device__ void reject(double draft_prob) {
    NodeRejection::reject(draft_prob);
    if (fault_ == DeviceFault::draft_mass_not_renormalised) draft_drawn = 0.0;
  }

 private:
  DeviceFault fault_;
};

__global__ void __launch_bounds__(slice_threads)
    couple_slices_kernel(JudgeView judge, TargetView target) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ WarpValues<std::uint64_t> scratch;
  const auto row_index = static_cast<std::int32_t>(blockIdx.y);
  if (row_index >= judge.head->rows) return;
  const SamplingSetting& setting = judge.settings[judge.rows[row_index].text];
  if (setting.rule != AcceptanceRule::coupled) return;
  const RowStatistics statistics = target.statistics[row_index];
  const Row row(target.logits + std::int64_t{row_index} * target.vocab, target.vocab);
  const NoiseAddress noise = coupled_noise(setting.key, judge.rows[row_index].depth);
  const std::int32_t first_group = static_cast<std::int32_t>(blockIdx.x) * (slice_tokens / 4) +
                                   static_cast<std::int32_t>(threadIdx.x);
  std::uint64_t best = 0;
#pragma unroll 1
  for (int i = 0; i < groups_per_thread; ++i) {
    const std::int32_t group = first_group + i * slice_threads;
    if (group >= row.groups()) break;
    const Quad scores = group_scores(row, statistics, noise, group);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint64_t place = placed(scores.at[j], 4 * group + j);
      best = place > best ? place : best;
    }
  }
  best = block_reduce(best, LargerOf(), std::uint64_t{0}, scratch);
  if (threadIdx.x == 0) {
    target.slice_best[std::int64_t{row_index} * gridDim.x + blockIdx.x] = best;
  }
}

/// Returns a row whose every token is filtered, for a node without D.
__device__ RowStatistics nothing_drafted() {
  RowStatistics none;
  none.cut_key = UINT32_MAX;
  none.cut_id = -1;
  return none;
}

/// One row's part of the judging; all threads of the block hold the same values.
struct Judgement {
  const SamplingSetting& setting;
  const JudgeView& judge;
  const JudgeInput input;
  ResidualSpace& space;

  /// The child with this token, or the token itself as bonus.
  __device__ RowOutcome follow(TokenId token) const {
    __syncthreads();  // whoever read the space before has done so
    if (threadIdx.x == 0) space.cell = -1;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < input.children; i += residual_threads) {
      // Siblings have distinct tokens: one thread at most writes.
      if (judge.child_token[input.first_child + i] == token) {
        space.cell = judge.child_row[input.first_child + i];
      }
    }
    __syncthreads();
    const std::int32_t child = space.cell;
    return {child, child < 0 ? token : -1};
  }

  /// Adds up, over those of the first `ranks` children from no distribution, their mass in the
  /// residual.
  __device__ double mass_of_refused(const NodeRows& rows, double scale, std::int32_t ranks) const {
    const ResidualScale c(scale);
    double mass = 0.0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::int32_t token = ~judge.child_token[input.first_child + rank];
      if (token < 0) continue;
      const Quad t = rows.target_probs(token / 4), d = rows.draft_probs(token / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j == token % 4) mass = __dadd_rn(mass, static_cast<double>(c.weight(t.at[j], d.at[j])));
      }
    }
    return mass;
  }
  /// and a bit for each that is among four tokens.
  __device__ unsigned refused_in(std::int32_t group, std::int32_t ranks) const {
    unsigned bits = 0;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::int32_t token = ~judge.child_token[input.first_child + rank];
      if (token >= 0 && token / 4 == group) bits |= 1u << (token % 4);
    }
    return bits;
  }

  /// Recursive rejection: kernels/rejection_rule.h, which holds the reasons.
  template <typename Rejection>
  __device__ RowOutcome reject(const NodeRows& rows) const {
    const DeviceFault fault = Rejection::fault(setting);
    const std::int32_t groups = rows.target.groups();
    const double residual_uniform =
        uniform_at(RandomStream::residual, setting.key, input.node_key, 0);
    Rejection state(fault);
    std::int32_t refused = 0;  // children, all of them, and whether any came from no distribution
    bool certain_refused = false;
    for (std::int32_t rank = 0; rank < input.children; ++rank) {
      const std::int32_t listed = judge.child_token[input.first_child + rank];
      const bool certain = listed < 0;
      const std::int32_t token = certain ? ~listed : listed;
      const auto target_prob = static_cast<double>(
          probability(rows.target_statistics, cleaned(rows.target.logits[token]), token));
      const auto draft_prob = static_cast<double>(
          token < rows.draft.width
              ? probability(rows.draft_statistics, cleaned(rows.draft.logits[token]), token)
              : 0.0f);
      const bool shared = fault == DeviceFault::siblings_share_uniform;
      const double u = uniform_at(RandomStream::accept, setting.key, input.node_key,
                                  shared ? 0 : static_cast<std::uint64_t>(rank));
      if (certain ? state.accepts_certain(u, target_prob, draft_prob)
                  : state.accepts(u, target_prob, draft_prob)) {
        return {judge.child_row[input.first_child + rank], -1};
      }
      if (certain) {
        state.reject_certain(draft_prob);
        certain_refused |= fault != DeviceFault::certain_stay;
      } else {
        state.reject(draft_prob);
      }
      ++refused;
      ResidualMasses masses;
      if (rank == 0) {
        masses = residual_masses<true>(space, rows, state.scale);
      } else {
        masses = residual_masses<false>(space, rows, state.scale);
        masses.draft = state.draft_total;
      }
      if (certain_refused) {
        masses.residual = __dsub_rn(masses.residual, mass_of_refused(rows, state.scale, refused));
      }
      state.note_masses(masses.residual, masses.draft);
      if (!state.has_residual()) break;
    }
    TokenId bonus = -1;
    if ((state.scale > 0.0 || certain_refused) && state.has_residual() &&
        fault != DeviceFault::residual_is_target) {
      const ResidualScale c(state.scale);
      const bool exponential = fault == DeviceFault::target_softmax_of_residual;
      const float inverse_mass = __double2float_rn(__ddiv_rn(1.0, state.residual_left));
      bonus = inverse_cdf(space, groups, residual_uniform, [&](std::int32_t group) {
        const Quad t = rows.target_probs(group);
        Quad weights = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (!exponential && !any_of(t)) return weights;
        const Quad d = rows.draft_probs(group);
        const unsigned out = certain_refused ? refused_in(group, refused) : 0u;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if ((out >> j & 1) != 0) continue;
          weights.at[j] = c.weight(t.at[j], d.at[j]);
          if (exponential && 4 * group + j < rows.target.width) {
            weights.at[j] = expf(__fmul_rn(weights.at[j], inverse_mass));
          }
        }
        return weights;
      });
    }
    // Without a residual: no child, or T is D but for rounding.
    if (bonus < 0) {
      bonus = inverse_cdf(space, groups, residual_uniform,
                          [&](std::int32_t group) { return rows.target_probs(group); });
    }
    return {-1, bonus};
  }
};

template <typename Rejection>
__device__ RowOutcome outcome_of(const JudgeView& judge, const TargetView& target,
                                 const StoreView& store, ResidualSpace& space,
                                 std::int32_t row_index, int slices) {
  const RowStatistics statistics = target.statistics[row_index];
  if (statistics.argmax < 0) return {-1, no_distribution};
  const JudgeInput input = judge.rows[row_index];
  const SamplingSetting& setting = judge.settings[input.text];
  const Judgement row{setting, judge, input, space};
  if (setting.rule == AcceptanceRule::rejection) {
    // Without a row of the store D is 0; no row's logits are then looked at.
    const std::int64_t store_row = row.input.store < 0 ? 0 : row.input.store;
    const float* const draft_logits = store.logits + store_row * store.stride;
    const NodeRows rows{Row(target.logits + std::int64_t{row_index} * target.vocab, target.vocab),
                        statistics, Row(draft_logits, row.input.store < 0 ? 0 : store.vocab),
                        row.input.store < 0 ? nothing_drafted() : store.statistics[store_row]};
    return row.reject<Rejection>(rows);
  }
  TokenId token = statistics.argmax;
  if (setting.rule == AcceptanceRule::coupled) {
    std::uint64_t best = 0;
    for (int i = 0; i < slices; ++i) {
      const std::uint64_t place = target.slice_best[std::int64_t{row_index} * slices + i];
      best = place > best ? place : best;
    }
    if (best != 0) token = placed_token(best);
  }
  return row.follow(token);
}

/// From a tree's root along the outcomes.
template <typename Rejection>
__device__ void walk(const JudgeView& judge, const VerdictView& out, std::int32_t tree) {
  const std::int32_t root = judge.settings[tree].root;
  std::int32_t* const rows = out.accepted_rows + root;
  TreeVerdict verdict;
  std::int32_t node = root;
  while (node >= 0) {
    const RowOutcome outcome = {__ldcg(&out.outcomes[node].child),
                                __ldcg(&out.outcomes[node].bonus)};
    verdict.bonus = outcome.bonus;
    node = outcome.child;
    if (Rejection::fault(judge.settings[tree]) == DeviceFault::verdict_walks_on && node < 0 &&
        verdict.accepted == 0 && tree + 1 < judge.head->texts) {
      node = judge.settings[tree + 1].root;
      rows[verdict.accepted++] = node;
      verdict.bonus = __ldcg(&out.outcomes[node].bonus);
      break;
    }
    if (node >= 0) rows[verdict.accepted++] = node;
  }
  out.trees[tree] = verdict;
}

template <typename Rejection>
__global__ void __launch_bounds__(residual_threads)
    judge_rows_kernel(JudgeView judge, TargetView target, StoreView store, VerdictView out,
                      int slices) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  __shared__ ResidualSpace space;
  __shared__ bool last;
  const auto row_index = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t rows = judge.head->rows;
  if (row_index >= rows) return;
  const RowOutcome outcome = outcome_of<Rejection>(judge, target, store, space, row_index, slices);
  if (threadIdx.x == 0) {
    out.outcomes[row_index] = outcome;
    last = is_last(out.completion.finished, static_cast<std::uint32_t>(rows));
  }
  __syncthreads();
  if (!last) return;
  // Outcomes are read in the L2 cache, where the writes are: no line of this multiprocessor can be
  // stale.
  for (auto tree = static_cast<std::int32_t>(threadIdx.x); tree < judge.head->texts;
       tree += residual_threads) {
    walk<Rejection>(judge, out, tree);
  }
  // What the threads wrote to the host's memory is there before the mark.
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) tell_host(out.completion.mark, judge.head->number);
}

}  // namespace

void couple_target_rows(const JudgeView& judge, const TargetView& target, std::int32_t rows,
                        cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(slices_of(target.vocab)), static_cast<unsigned>(rows));
  launch_early(couple_slices_kernel, grid, slice_threads, 0, stream, judge, target);
  check_launch("couple_slices");
}

void judge_tree(const JudgeView& judge, const TargetView& target, const StoreView& store,
                const VerdictView& verdict, std::int32_t rows, bool faulty, cudaStream_t stream) {
  const auto kernel =
      faulty ? judge_rows_kernel<FaultyRejection> : judge_rows_kernel<PlainRejection>;
  launch_early(kernel, dim3(static_cast<unsigned>(rows)), residual_threads, 0, stream, judge,
               target, store, verdict, slices_of(target.vocab));
  check_launch("judge_rows");
}

}  // namespace coppice::cuda

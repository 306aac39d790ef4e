#include "kernels/cpu/attention.h"

#include "base/error.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/workers.h"

namespace coppice::cpu {

struct AttentionEngine::Impl {
  Workers& workers;
  explicit Impl(Workers& w) : workers(w) {}
  DeviceBuffer partials;  ///< outputs, then log-sum-exps
  DeviceBuffer scratch;   ///< a part per worker

  static float* at_least(DeviceBuffer& buffer, std::int64_t floats, const char* purpose) {
    const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
    if (buffer.bytes() < bytes) {
      buffer = DeviceBuffer();
      buffer = allocate(bytes + bytes / 2, purpose);
    }
    return buffer.as<float>();
  }
};

AttentionEngine::AttentionEngine(Workers& workers) : impl_(std::make_unique<Impl>(workers)) {}
AttentionEngine::~AttentionEngine() = default;

void AttentionEngine::run(const AttentionPlan& plan, std::span<const std::int32_t> positions,
                          const float* q, std::int64_t q_stride, std::int32_t heads,
                          const AttentionRule& rule, const KvLayout& layout, DType kv_dtype,
                          const void* keys, const void* values, std::int32_t layer, DType out_dtype,
                          void* out) {
  if (plan.queries == 0) return;
  if (layout.head_dim < 1 || layout.kv_heads < 1 || heads < 1 || heads % layout.kv_heads != 0) {
    throw_failure(cat("attention: ", heads, " heads of ", layout.head_dim, " over ",
                      layout.kv_heads, " KV heads; heads must be a multiple of KV heads"));
  }
  if (rule.window < 0 || !(rule.soft_cap >= 0.0f) ||
      (rule.window > 0 && positions.size() != static_cast<std::size_t>(plan.queries))) {
    throw_failure(cat("attention: ", positions.size(), " positions of ", plan.queries,
                      " rows by a window of ", rule.window, " tokens and a soft cap of ",
                      rule.soft_cap));
  }
  const std::int64_t dim = layout.head_dim;
  const std::int64_t layer_bytes = std::int64_t{layout.pages} * layout.kv_heads * layout.page_size *
                                   dim * static_cast<std::int64_t>(size_of(kv_dtype));
  // From here on, asking for rows ahead of their use made 1.1 to 2.2 times the speed where few
  // rows look at much KV; below, up to a quarter less (bench/kernels).
  constexpr std::int64_t far_bytes = std::int64_t{6} << 20;
  const std::int64_t token_bytes = layer_bytes / layout.slots() * layout.layers * 2;
  const bool far = std::ssize(plan.slot) * token_bytes > far_bytes;
  const auto of_layer = [&](const void* pool) {
    return static_cast<const std::byte*>(pool) + layer * layer_bytes;
  };
  AttentionCall call{&plan,
                     q,
                     q_stride,
                     heads,
                     heads / layout.kv_heads,
                     rule,
                     positions.data(),
                     &layout,
                     of_layer(keys),
                     of_layer(values),
                     kv_dtype,
                     far,
                     out_dtype,
                     out,
                     nullptr,
                     nullptr};
  const bool joined = plan.chunks.size() > 1;
  if (joined) {
    const std::int64_t pairs = std::int64_t{plan.partials} * heads;
    call.partial_out = Impl::at_least(impl_->partials, pairs * (dim + 1), "attention partials");
    call.partial_lse = call.partial_out + pairs * dim;
  }

  std::int64_t multiply_adds = 0;
  for (const AttentionPlan::Chunk& c : plan.chunks) {
    multiply_adds += std::int64_t{c.kv_end - c.kv_begin} * (c.q_end - c.q_begin);
  }
  multiply_adds *= 2 * dim * heads;
  constexpr std::int64_t grain = 1 << 17;  // a few microseconds, what a team costs
  Workers& workers = impl_->workers;
  const int team = workers.worth(multiply_adds, grain);
  const std::int64_t share = (attention_scratch_floats(layout.head_dim) + 15) / 16 * 16;
  float* scratch = Impl::at_least(impl_->scratch, share * workers.threads(), "attention scratch");

  const auto chunks = static_cast<std::int64_t>(plan.chunks.size());
  workers.run(chunks * layout.kv_heads, team, [&](std::int64_t item, int worker) {
    attend(call, static_cast<std::int32_t>(item % chunks), static_cast<std::int32_t>(item / chunks),
           scratch + worker * share);
  });
  if (!joined) return;
  workers.run_rows(plan.queries, std::int64_t{plan.partials} / plan.queries * heads * dim, 1 << 14,
                   [&](std::int64_t begin, std::int64_t end) {
                     join_partials(call, static_cast<std::int32_t>(begin),
                                   static_cast<std::int32_t>(end));
                   });
}

}  // namespace coppice::cpu

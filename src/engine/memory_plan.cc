#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/mebibytes.h"
#include "engine/loading.h"

namespace coppice {
namespace {

/// Of what is free, left for code that libraries load at first use, for recorded passes, and for
/// rounding of allocations.
constexpr std::size_t reserved_bytes = std::size_t{256} << 20;

std::size_t sum(const std::vector<MemoryUse>& uses) {
  std::size_t bytes = 0;
  for (const MemoryUse& use : uses) bytes += use.bytes;
  return bytes;
}

std::size_t pool_bytes(const ModelConfig& config, DType dtype, std::int64_t tokens) {
  const std::int64_t pages = (tokens + kv_page_size - 1) / kv_page_size;
  return static_cast<std::size_t>(pages * kv_page_size * kv_bytes_per_token(config, dtype));
}

// Pools of automatic size shrink together until they fit, down to a tree and a short text.
template <typename Fits>
KvTokens shrunk(const EngineOptions& options, const KvTokens& wanted, const Fits& fits) {
  const std::int32_t least = tree_rows(options) + 256;
  KvTokens kv = wanted;
  for (std::int32_t eighths = 7; options.kv_tokens == 0 && !fits(kv) && eighths >= 0; --eighths) {
    const auto scaled = [&](std::int32_t tokens) {
      return std::max(std::min(tokens, least), tokens / 8 * eighths);
    };
    kv = {scaled(wanted.target), scaled(wanted.draft)};
  }
  return kv;
}

}  // namespace

KvTokens plan_host_kv(const EngineOptions& options, const ModelConfig& target,
                      const ModelConfig* draft, DType dtype, std::int64_t available_bytes) {
  const auto pools = [&](const KvTokens& kv) {
    return pool_bytes(target, dtype, kv.target) + (draft ? pool_bytes(*draft, dtype, kv.draft) : 0);
  };
  // What generations and the system itself take beside.
  const std::int64_t left = std::min<std::int64_t>(available_bytes / 16, reserved_bytes);
  const auto room = static_cast<std::size_t>(available_bytes - left);
  const auto fits = [&](const KvTokens& kv) { return pools(kv) <= room; };
  const KvTokens kv = shrunk(options,
                             {wanted_kv_tokens(target, options, dtype),
                              draft ? wanted_kv_tokens(*draft, options, dtype) : 0},
                             fits);
  if (!fits(kv)) {
    throw_failure(cat("too little memory: KV of ", kv.target, " tokens needs ",
                      mebibytes(pools(kv)), ", and of what this process may use ", mebibytes(room),
                      " are free; use fewer kv-tokens, smaller trees or a smaller model, or free "
                      "memory"));
  }
  return kv;
}

MemoryPlan plan_memory(const EngineOptions& options, const Device& device) {
  EngineOptions silent = options;
  silent.progress = nullptr;
  const std::unique_ptr<Device> planner = device.memory_planner();
  const auto target = load_model(options.target, "target", silent, *planner);
  const auto draft =
      options.draft.empty() ? nullptr : load_model(options.draft, "draft", silent, *planner);
  const auto sampler = make_sampler(*planner, *target, draft.get(), options);

  MemoryPlan plan;
  plan.device = device.description();
  plan.memory = device.memory();
  const std::size_t fixed = sum(planner->memory_use());
  const DType dtype = device.kv_dtype();
  const auto pools = [&](const KvTokens& kv) {
    return pool_bytes(target->config(), dtype, kv.target) +
           (draft ? pool_bytes(draft->config(), dtype, kv.draft) : 0);
  };
  plan.kv.target = wanted_kv_tokens(target->config(), options, dtype);
  plan.kv.draft = draft ? wanted_kv_tokens(draft->config(), options, dtype) : 0;
  const std::size_t usable = plan.memory.free - std::min(plan.memory.free, reserved_bytes);
  const std::size_t room = std::min(plan.memory.budget, usable);
  plan.kv = shrunk(options, plan.kv, [&](const KvTokens& kv) { return fixed + pools(kv) <= room; });
  if (fixed + pools(plan.kv) > room) {
    const bool busy = usable < plan.memory.budget;
    throw_failure(cat(
        "too little memory on ", plan.device, ": models and workspace need ", mebibytes(fixed),
        ", KV of ", plan.kv.target, " tokens ", mebibytes(pools(plan.kv)), ", ",
        mebibytes(fixed + pools(plan.kv)), " together, but ", mebibytes(room), " of ",
        mebibytes(plan.memory.total),
        busy ? " are free; end other programs on the card, or use fewer kv-tokens, a smaller model "
               "or --device cpu"
             : " may be used; raise gpu-memory-fraction, or use fewer kv-tokens, a smaller model "
               "or --device cpu"));
  }
  const auto target_pool = make_pool(*planner, *target, plan.kv.target);
  const auto draft_pool = draft ? make_pool(*planner, *draft, plan.kv.draft) : nullptr;
  plan.uses = planner->memory_use();
  plan.bytes = sum(plan.uses);
  return plan;
}

std::string describe(const MemoryPlan& plan) {
  std::string text = cat("memory on ", plan.device, "\n");
  const auto line = [&](const std::string& what, std::size_t bytes) {
    char buffer[160];
    std::snprintf(buffer, sizeof(buffer), "  %-34s %10.1f MiB\n", what.c_str(),
                  static_cast<double>(bytes) / (1 << 20));
    text += buffer;
  };
  for (const MemoryUse& use : plan.uses) line(use.purpose, use.bytes);
  line("together", plan.bytes);
  line("may be used", plan.memory.budget);
  line("free now", plan.memory.free);
  line("of the card's", plan.memory.total);
  text += cat("  KV tokens: target ", plan.kv.target);
  if (plan.kv.draft > 0) text += cat(", draft ", plan.kv.draft);
  return text + "\n";
}

}  // namespace coppice

// Times what a pass of the shipped models is made of: the matrix products, attention, and the
// small operations between them. Prints medians and the fastest of the repetitions.
//
// larger: products of layers of TinyLlama 1.1B and Llama 3.2 3B, which are left out otherwise.
//
// Every pass goes through all layers' own weights and KV, so caches are as warm as in a model
// and no warmer. Attention is timed with KV of all types in one run, alternately; its GB/s count
// every KV byte once.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/host_bandwidth.h"
#include "bench/host_fma_rate.h"
#include "bench/kernel_products.h"
#include "bench/options.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/workers.h"
#include "kernels/device.h"
#include "kernels/logits.h"
#include "kernels/noise.h"

namespace {

using namespace coppice;
using bench::ModelShape;
namespace po = boost::program_options;

constexpr std::array parts = {"products", "attention", "plan", "small", "sampling", "larger"};
double budget_ms = 200;
std::string only_model;
std::int32_t only_prefix = 0;

struct Time {
  double median_us, best_us;
};

Time measure(const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  body();
  body();
  std::vector<double> us;
  const auto end = Clock::now() + std::chrono::duration<double, std::milli>(budget_ms);
  do {
    const auto begin = Clock::now();
    body();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  } while (Clock::now() < end || us.size() < 5);
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front()};
}

// Four layers of the larger ones exceed all caches, as the whole models do.
constexpr ModelShape shipped[] = {{"target", 512, 5, 4, 2, 128, 1376, 4096},
                                  {"draft", 256, 2, 2, 1, 128, 688, 4096}};
constexpr ModelShape larger[] = {{"tinyllama-1.1b", 2048, 4, 32, 4, 64, 5632, 4096},
                                 {"llama-3.2-3b", 3072, 4, 24, 8, 128, 8192, 4096}};
/// TinyLlama's attention in all layers.
constexpr ModelShape long_texts = {"1.1B", 2048, 22, 32, 4, 64, 5632, 4096};

struct Compared {
  double best_us;
  double ratio;  ///< median over rounds of the first one's time over this one's
};

/// Times bodies 0 to count - 1 one after the other, round for round.
std::vector<Compared> measure_together(std::size_t count,
                                       const std::function<void(std::size_t)>& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> us(count);
  for (std::size_t i = 0; i < count; ++i) body(i);
  const auto end = Clock::now() + std::chrono::duration<double, std::milli>(budget_ms);
  do {
    for (std::size_t i = 0; i < count; ++i) {
      const auto begin = Clock::now();
      body(i);
      us[i].push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
  } while (Clock::now() < end || us[0].size() < 5);
  std::vector<Compared> all;
  for (const std::vector<double>& times : us) {
    std::vector<double> ratios;
    for (std::size_t r = 0; r < times.size(); ++r) ratios.push_back(us[0][r] / times[r]);
    std::nth_element(ratios.begin(), ratios.begin() + std::ssize(ratios) / 2, ratios.end());
    all.push_back({*std::min_element(times.begin(), times.end()), ratios[ratios.size() / 2]});
  }
  return all;
}

std::vector<float> random_floats(std::int64_t n) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = uniform(random);
  return values;
}

DeviceBuffer filled(Device& device, std::int64_t floats) {
  DeviceBuffer buffer =
      device.allocate(static_cast<std::size_t>(floats) * sizeof(float), "operand");
  const auto values = random_floats(floats);
  device.upload(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}

/// A tree over the last token: a heavy path with side branches, rows in depth-first order.
struct TreeKv {
  std::vector<KvSlot> slots;
  std::vector<KvSegment> segments;

  TreeKv(std::int32_t prefix, std::int32_t rows) : slots(static_cast<std::size_t>(prefix + rows)) {
    std::iota(slots.begin(), slots.end(), 0);
    const std::span<const KvSlot> all = slots;
    segments.push_back({all.first(static_cast<std::size_t>(prefix)), 0, rows, true, 0});
    for (std::int32_t r = 0; r < rows; ++r) {
      const std::int32_t end = r % 4 == 0 ? rows : std::min(rows, r / 4 * 4 + 4);
      segments.push_back(
          {all.subspan(static_cast<std::size_t>(prefix + r), 1), r, end, false, prefix + r});
    }
  }
};

/// Keys or values of a pool, of a type.
DeviceBuffer random_pool(Device& device, std::int64_t elements, DType type) {
  const std::size_t size = size_of(type);
  DeviceBuffer pool = device.allocate(static_cast<std::size_t>(elements) * size, "KV");
  static std::mt19937 random(2);
  for (std::size_t at = 0; at < pool.bytes(); at += sizeof(std::uint32_t)) {
    // Signs and fractions are random, magnitudes from 1/2 to 2.
    const auto bits = static_cast<std::uint32_t>(random());
    const std::uint32_t value = type == DType::f32    ? (bits & 0x80ffffffu) | 0x3f000000u
                                : type == DType::bf16 ? (bits & 0x80ff80ffu) | 0x3f003f00u
                                                      : (bits & 0x83ff83ffu) | 0x38003800u;
    std::memcpy(pool.as<char>() + at, &value, sizeof value);
  }
  return pool;
}

void bench_attention(Device& device, cpu::Workers& workers, const ModelShape& m) {
  std::printf(
      "\n%s, attention of one layer by type of KV, best us, and GB/s of the KV, each byte once\n"
      "%d heads of %d, %d KV heads, %d layers\n"
      "%6s %7s  %-16s %-16s %-16s %s\n",
      m.name, m.heads, m.head_dim, m.kv_heads, m.layers, "rows", "prefix", "f32", "bf16", "f16",
      "f32's time over bf16's and f16's (medians of ratios)");
  const std::int64_t stride = (m.heads + 2 * m.kv_heads) * m.head_dim;
  constexpr std::int32_t most_rows = 256;
  const DeviceBuffer q = filled(device, most_rows * stride);
  const DeviceBuffer out =
      device.allocate(sizeof(float) * most_rows * static_cast<std::size_t>(stride), "out");
  const float scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
  cpu::AttentionEngine engine(workers);
  constexpr std::array types = {DType::f32, DType::bf16, DType::f16};
  for (const std::int32_t prefix : {128, 512, 2048, 8192}) {
    if (only_prefix > 0 && prefix != only_prefix) continue;
    const KvLayout layout{m.layers, m.kv_heads, m.head_dim, 16, (prefix + most_rows) / 16};
    const std::int64_t pool =
        std::int64_t{layout.layers} * layout.slots() * m.kv_heads * m.head_dim;
    std::array<std::array<DeviceBuffer, 2>, types.size()> kv_of;
    for (std::size_t i = 0; i < types.size(); ++i) {
      for (DeviceBuffer& buffer : kv_of[i]) buffer = random_pool(device, pool, types[i]);
    }
    for (const std::int32_t rows : {1, 2, 4, 8, 16, 32, 64, most_rows}) {
      const TreeKv kv(prefix, rows);
      AttentionPlan plan;
      plan.assign(kv.segments, rows, AttentionDivision::flatten);
      const auto times = measure_together(types.size(), [&](std::size_t type) {
        for (std::int32_t layer = 0; layer < m.layers; ++layer) {
          engine.run(plan, {}, q.as<float>(), stride, m.heads, {scale}, layout, types[type],
                     kv_of[type][0].data(), kv_of[type][1].data(), layer, DType::f32, out.data());
        }
      });
      std::printf("%6d %7d  ", rows, prefix);
      for (std::size_t i = 0; i < types.size(); ++i) {
        const double bytes = 2.0 *
                             static_cast<double>(std::ssize(kv.slots) * m.kv_heads * m.head_dim) *
                             static_cast<double>(size_of(types[i])) * m.layers;
        std::printf("%8.1f %6.1f  ", times[i].best_us / m.layers, bytes / times[i].best_us * 1e-3);
      }
      std::printf("%.2f %.2f\n", times[1].ratio, times[2].ratio);
    }
  }
}

void bench_plan(const ModelShape& m) {
  AttentionPlan plan;
  std::printf("\n%s, planning\n%6s %7s %10s\n", m.name, "rows", "prefix", "best us");
  for (const std::int32_t rows : {1, 32, 64}) {
    const TreeKv kv(512, rows);
    const Time t = measure([&] { plan.assign(kv.segments, rows, AttentionDivision::flatten); });
    std::printf("%6d %7d %10.2f\n", rows, 512, t.best_us);
  }
}

void bench_small(Device& device, const ModelShape& m) {
  std::printf("\n%s, small operations, best us per call\n%6s %10s %10s %10s %10s\n", m.name, "rows",
              "rms_norm", "glu", "rope", "embed");
  const KvLayout layout{1, m.kv_heads, m.head_dim, 16, 64};
  const std::int64_t stride = (m.heads + 2 * m.kv_heads) * m.head_dim;
  const DeviceBuffer x = filled(device, 256 * 2 * 2048), weight = filled(device, m.hidden);
  const DeviceBuffer table = filled(device, std::int64_t{m.vocab} * m.hidden);
  const DeviceBuffer qkv = filled(device, 256 * stride);
  const std::int64_t pool = std::int64_t{layout.slots()} * m.kv_heads * m.head_dim;
  const DeviceBuffer keys = filled(device, pool), values = filled(device, pool);
  const DeviceBuffer out = device.allocate(sizeof(float) * 256 * 4096, "out");
  RopeTable rope;
  rope.cosine = filled(device, 256 * m.head_dim / 2);
  rope.sine = filled(device, 256 * m.head_dim / 2);
  rope.positions = 256;
  rope.half_dim = m.head_dim / 2;
  const auto pass = device.make_pass({256, 256, 256, {m.heads, m.kv_heads, m.head_dim}});
  for (const std::int32_t rows : {1, 8, 32, 64, 256}) {
    std::vector<std::int32_t> index(static_cast<std::size_t>(rows));
    std::iota(index.begin(), index.end(), 0);
    const std::vector<KvSegment> seen = {{std::span(index).first(1), 0, rows, false, 0}};
    pass->begin({index, index, index, seen, {}});
    pass->run({}, [] {});
    const double norm =
        measure([&] {
          device.rms_norm(x.as<float>(), weight.as<float>(), 1e-5f, rows, m.hidden, out.data());
        }).best_us;
    const double gate = measure([&] {
                          device.glu(Activation::silu, x.as<float>(), rows, m.ffn, out.data());
                        }).best_us;
    const double rotate =
        measure([&] {
          device.rope_write_kv(*pass, qkv.as<float>(),
                               {m.heads, &rope, layout, keys.data(), values.data(), 0, {}});
        }).best_us;
    const double embed =
        measure([&] {
          device.embed(*pass, {table.data(), WeightFormat::f32}, m.hidden, 1.0f, out.as<float>());
        }).best_us;
    std::printf("%6d %10.2f %10.2f %10.2f %10.2f\n", rows, norm, gate, rotate, embed);
  }
}

/// What drawing children costs beside the draft's pass: a row of coupled noise for each position,
/// sums over D for each node.
void bench_sampling() {
  std::printf("\nsampling on the host, one thread, best us\n%10s %14s %14s %14s %14s\n",
              "vocabulary", "coupled noise", "block masses", "block maxima", "beliefs");
  std::mt19937 random(3);
  std::normal_distribution<float> logit(0.0f, 3.0f);
  for (const std::size_t vocab : {std::size_t{4096}, std::size_t{32000}, std::size_t{128256}}) {
    std::vector<float> logits(vocab), noise(vocab), probs(vocab);
    std::generate(logits.begin(), logits.end(), [&] { return logit(random); });
    LogitsScratch scratch;
    process_logits(logits, {0.8}, nullptr, scratch, probs);
    std::uint64_t position = 0;
    const double row = measure([&] { inverse_exponential_noise(1, 0, ++position, noise); }).best_us;
    constexpr std::size_t block = 192;
    std::vector<double> values((vocab + block - 1) / block);
    const double masses = measure([&] { block_masses(probs, block, values); }).best_us;
    const double maxima = measure([&] { block_maxima(probs, noise, block, values); }).best_us;
    const double beliefs =
        measure([&] { power_moments(probs, noise, block, values, 1.78); }).best_us;
    std::printf("%10zu %14.2f %14.2f %14.2f %14.2f\n", vocab, row, masses, maxima, beliefs);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CpuOptions options;
    std::string only;
    po::options_description described("bench/kernels: the CPU's kernels by themselves");
    described.add_options()("help", "print this")(
        "threads", po::value(&options.threads)->default_value(0), "0: all that may be used")(
        "ms", po::value(&budget_ms)->default_value(budget_ms), "for each figure, at least")(
        "only", po::value(&only),
        "products, attention, plan, small, sampling or larger; if not given, all but larger")(
        "model", po::value(&only_model), "target, draft or 1.1B; if not given, all")(
        "prefix", po::value(&only_prefix)->default_value(0), "tokens of attention; 0: several");
    po::variables_map given;
    if (!bench::parse_options(argc, argv, described, given)) return 0;
    const auto wanted = [&](const char* part) { return only.empty() || only == part; };
    if (std::none_of(parts.begin(), parts.end(), wanted)) {
      throw_usage(cat("--only ", quote(only),
                      ": use products, attention, plan, small, sampling or larger"));
    }
    const auto device = make_cpu_device(options);
    cpu::Workers workers(device->threads());
    const double rate = bench::host_fma_rate(device->threads());
    std::printf("%s, %d threads, reads %.1f GB/s from memory, multiplies and adds %.0f GFLOP/s\n",
                device->description().c_str(), device->threads(),
                1e-9 * bench::host_read_bandwidth(device->threads()), 1e-9 * rate);
    const auto chosen = [&](const ModelShape& m) {
      return only_model.empty() || only_model == m.name;
    };
    for (const ModelShape& m : shipped) {
      if (!chosen(m)) continue;
      if (wanted("products")) bench::bench_products(m, device->threads(), budget_ms, rate);
      if (wanted("attention")) bench_attention(*device, workers, m);
      if (wanted("plan")) bench_plan(m);
      if (wanted("small")) bench_small(*device, m);
    }
    if (wanted("sampling")) bench_sampling();
    if (wanted("attention") && chosen(long_texts)) bench_attention(*device, workers, long_texts);
    for (const ModelShape& m : larger) {
      if (only == "larger") bench::bench_products(m, device->threads(), budget_ms, rate);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench/kernels: %s\n", error.what());
    return bench::exit_code_of(error);
  }
  return 0;
}

// Times of all matrix products of a model's shape, by the types of weights and activations.
#pragma once

#include <cstdint>
#include <string>

namespace coppice::bench {

struct ModelShape {
  const char* name;
  std::int32_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
};

/// Prints best and median milliseconds at growing row counts, the kinds of products run
/// alternately; `budget_ms` per row count. `fma_rate`: operations per second that the cores can do.
void bench_products(const ModelShape& model, int threads, double budget_ms, double fma_rate);

}  // namespace coppice::bench

// One layer's tree attention: against the best of nine existing kernels, against the card's
// limits, and against the other ways of cutting the work that the papers compare.
//
//   build/bench/tree_attention [--parts verify,decode] [--cells 32/8/p4096/] [--quick]
//                              [--portable] [--kv-tile 64|128] [--row-tile 16|64|128]
//                              [--template FILE] [--few-shot 20] [--json FILE] [--csv FILE]
//
// Both ceilings, read bandwidth and bf16 matrix rate, are measured in the same run. Every output
// is compared with a computation in double; a relative error above 1e-2 fails the run (status 1).
// Times are the device's, of recordings replayed over input sets that exceed the cache, medians;
// "+-" is the distance of the 10th and the 90th percentile, "in pass" the time per layer where
// one recording holds all sets. Planning is not part of it and has its own table.
#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bench/matrix_rate.h"
#include "bench/options.h"
#include "bench/read_bandwidth.h"
#include "cli/terminal.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/error.h"
#include "kernels/device.h"
#include "parts.h"
#include "snapshots.h"
#include "workload/tree_template.h"

namespace {

using namespace coppice;
using namespace coppice::bench;
namespace po = boost::program_options;

constexpr std::int32_t snapshots = 10;

constexpr std::pair<const char*, void (*)(Bench&)> parts[] = {
    {"verify", run_verify_table},   {"decode", run_decode_table},
    {"prefill", run_prefill_table}, {"forest", run_forest_table},
    {"rules", run_rule_table},      {"planning", run_planning_table},
    {"papers", run_paper_table},    {"divisions", run_division_table},
    {"orders", run_order_table},    {"chunks", run_chunk_table},
    {"pages", run_page_table},      {"phases", run_phase_table},
};

bool chosen(std::string_view list, std::string_view part) {
  if (list.empty()) return true;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == part) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

std::string part_names() {
  std::string names;
  for (const auto& [name, run] : parts) names += cat(names.empty() ? "" : ", ", name);
  return names;
}

/// Throws Error(usage) for a part that does not exist.
void check_parts(const std::string& list) {
  const auto matched = static_cast<std::size_t>(
      std::count_if(std::begin(parts), std::end(parts),
                    [&](const auto& part) { return chosen(list, part.first); }));
  const auto asked = static_cast<std::size_t>(1 + std::count(list.begin(), list.end(), ','));
  if (!list.empty() && matched != asked) {
    throw_usage(cat("--parts takes a comma-separated list of ", part_names()));
  }
}

Ceilings measured_ceilings(cudaStream_t stream) {
  const Ceilings ceilings{read_bandwidth(), matrix_rate(stream)};
  std::printf("reads %.2f TB/s, bf16 products %.0f TFLOP/s\n", 1e-12 * ceilings.bytes_per_second,
              1e-12 * ceilings.flops_per_second);
  std::fflush(stdout);
  return ceilings;
}

Json json_of_ceilings(const Ceilings& ceilings) {
  return {{"bytes_per_second", ceilings.bytes_per_second},
          {"flops_per_second", ceilings.flops_per_second}};
}

/// Whether cost_of() and anchors.csv count alike: their bounds by their ceilings. They are
/// printed there to 0.01 us.
void check_anchors(const std::vector<Anchor>& anchors) {
  for (const Anchor& anchor : anchors) {
    const double bound = bound_us(cost_of(anchor.cell), anchor_ceilings);
    if (std::abs(bound - anchor.bound_us) > 0.0051) {
      throw_failure(cat(anchor.cell.name(), ": a bound of ", bound, " us, ", anchor.bound_us,
                        " in anchors.csv"));
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Bench bench;
  std::string asked, json_file, csv_file;
  std::vector<std::string> templates;
  std::vector<std::int32_t> branches;
  bool portable = false;
  RangeTiles tiles;
  po::options_description options("bench/tree_attention");
  options.add_options()("help", "print this")("parts", po::value(&asked),
                                              cat("comma-separated: ", part_names()).c_str())(
      "cells", po::value(&bench.filter),
      "comma-separated parts of names, e.g. verify/32/8/p4096/t64/ or fewshot")(
      "portable", po::bool_switch(&portable), "run the portable kernel: that of all GPUs but 9.0")(
      "kv-tile", po::value(&tiles.tokens),
      "KV tokens of a tile: 64 or 128 instead of what suits the cell")(
      "row-tile", po::value(&tiles.rows),
      "packed rows of a tile: 16, 64 or 128 instead of what suits the cell")(
      "template", po::value(&templates)->composing(),
      "a file of DeFT's templates of reasoning or records of speculation, whose first one's growth "
      "is ten cells more of forest and divisions in each head shape; may be given again")(
      "few-shot", po::value(&branches)->composing(),
      "likewise of that many branches behind DeFT's prompt of 4000 tokens")(
      "quick", po::bool_switch(&bench.quick), "fewer samples")("json", po::value(&json_file),
                                                               "also write the figures here")(
      "csv", po::value(&csv_file), "likewise, a line per measurement");
  po::variables_map values;
  if (!parse_options(argc, argv, options, values)) return 0;
  check_parts(asked);
  bench.anchors = committed_anchors();
  check_anchors(bench.anchors);
  const auto add = [&](const std::vector<Cell>& cells) {
    bench.snapshots.insert(bench.snapshots.end(), cells.begin(), cells.end());
  };
  for (const std::string& file : templates) {
    add(snapshot_cells(std::filesystem::path(file), snapshots));
  }
  for (const std::int32_t count : branches) {
    const auto tree =
        workload::few_shot(workload::few_shot_prompt_tokens, count, workload::few_shot_iterations);
    add(snapshot_cells(tree, cat("few-shot", count), snapshots));
  }
  std::string why_not;
  if (!cuda::has_device(&why_not)) throw_failure(why_not);

  cudaDeviceProp device;
  cuda::check(cudaGetDeviceProperties(&device, 0), "asking what the device is");
  int driver = 0;
  cuda::check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  std::printf("%s, CUDA %d.%d, driver for %d.%d%s%s\n", device.name, CUDART_VERSION / 1000,
              CUDART_VERSION / 10 % 100, driver / 1000, driver / 10 % 100,
              portable ? ", portable kernel" : "", bench.quick ? ", quick" : "");
  cuda::check(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking), "creating a stream");
  bench.blocks = cuda::prepare_attention(Cell().head_dim);
  if (portable) bench.blocks.ranges = 0;
  if (tiles.tokens != 0 && tiles.tokens != range_half_tokens && tiles.tokens != range_tile_tokens) {
    throw_usage("--kv-tile takes 64 or 128");
  }
  const auto* const last = std::end(range_row_tiles);
  if (tiles.rows != 0 && std::find(std::begin(range_row_tiles), last, tiles.rows) == last) {
    throw_usage("--row-tile takes 16, 64 or 128");
  }
  if (!range_tiles_exist(tiles)) throw_usage("--row-tile 16 needs a --kv-tile of 128");
  bench.blocks.range_tiles = tiles;
  bench.ceilings = measured_ceilings(bench.stream);
  bench.report.set("device", device.name);
  bench.report.set("portable", portable);
  bench.report.set("quick", bench.quick);
  bench.report.set("ceilings", json_of_ceilings(bench.ceilings));
  for (const auto& [name, run] : parts) {
    if (chosen(asked, name)) run(bench);
  }
  std::printf("\nat the end: ");
  bench.report.set("ceilings_at_end", json_of_ceilings(measured_ceilings(bench.stream)));
  if (!json_file.empty()) bench.report.write_json(json_file);
  if (!csv_file.empty()) bench.report.write_csv(csv_file);
  cuda::check(cudaStreamDestroy(bench.stream), "ending a stream");
  if (bench.report.failed()) std::printf("FAILED: some outputs are wrong\n");
  return bench.report.failed() ? 1 : 0;
} catch (const std::exception& error) {
  std::cerr << "tree_attention: " << error.what() << "\n";
  return exit_code_of(error);
}

// Lengths of chunks (DeFT, figure 15).
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "item_attention.h"
#include "library_attention.h"
#include "parts.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 25;

constexpr Cell chunk_cells[] = {{Kind::verify, 32, 8, 4096, 32},
                                {Kind::verify, 32, 8, 4096, 64},
                                {Kind::verify, 32, 8, 4096, 256},
                                {Kind::verify, 32, 8, 16384, 64},
                                {Kind::verify, 32, 32, 4096, 64}};

CutResult run_library(const Bench& bench, const InputSets& inputs, LibraryAttention& attention) {
  inputs.poison_output();
  CutResult result;
  result.cut = attention.chosen_chunk();
  result.timing = time_replays(
      inputs.sets(), bench.samples(), [&](std::int32_t set) { attention.queue(set); },
      bench.stream);
  result.error = inputs.error(inputs.sets() - 1, workload_seed);
  return result;
}

void keep(Bench& bench, const Cell& cell, const char* method, const CutResult& result) {
  if (!(result.error <= error_limit)) bench.report.fail();
  Json fields = json_of(result.timing);
  fields["cut"] = result.cut;
  fields["error"] = result.error;
  bench.report.add("chunks", cell.name(), method, fields);
}

}  // namespace

void run_chunk_table(Bench& bench) {
  std::printf(
      "\nchunk lengths, us: DeFT-Flatten and DeFT-Node-Chunk by the item kernel, and coppice's "
      "portable kernel; last row: the portable kernel as planned, and coppice as it runs here\n"
      "%-24s %8s %10s %11s %9s %9s %8s\n",
      "cell", "chunk", "Flatten", "Node-Chunk", "portable", "coppice", "error");
  ResidentBlocks portable = bench.blocks;
  portable.ranges = 0;
  for (const Cell& cell : chunk_cells) {
    if (filtered({cell}, bench.filter).empty()) continue;
    const Workload work = make_workload(cell, workload_seed);
    const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
    const auto cut_run = [&](const MakePlan& make_plan, CutLength cut) {
      return run_cut(inputs, make_plan, cut, bench.samples(), bench.stream);
    };
    for (const CutLength cut : {64, 128, 256, 512, 1024, 2048, 4096}) {
      const CutResult flatten = cut_run(plan_flatten, cut);
      const CutResult node_chunk = cut_run(plan_nodes, cut);
      LibraryAttention attention(inputs, portable, bench.stream);
      attention.force_chunks(cut);
      const CutResult forced = run_library(bench, inputs, attention);
      const double worst = std::max({flatten.error, node_chunk.error, forced.error});
      std::printf("%-24s %8d %10.1f %11.1f %9.1f %9s %8.1e%s\n", cell.name().c_str(), cut,
                  flatten.timing.median_us, node_chunk.timing.median_us, forced.timing.median_us,
                  "", worst, worst <= error_limit ? "" : "  FAILED");
      std::fflush(stdout);
      keep(bench, cell, "DeFT-Flatten", flatten);
      keep(bench, cell, "DeFT-Node-Chunk", node_chunk);
      keep(bench, cell, "portable, forced", forced);
    }
    LibraryAttention planned(inputs, portable, bench.stream);
    const CutResult chosen = run_library(bench, inputs, planned);
    LibraryAttention attention(inputs, bench.blocks, bench.stream);
    const CutResult library = run_library(bench, inputs, attention);
    const double worst = std::max(chosen.error, library.error);
    std::printf("%-24s %8d %10s %11s %9.1f %9.1f %8.1e%s\n", cell.name().c_str(), chosen.cut, "",
                "", chosen.timing.median_us, library.timing.median_us, worst,
                worst <= error_limit ? "" : "  FAILED");
    keep(bench, cell, "portable", chosen);
    keep(bench, cell, "coppice", library);
  }
}

}  // namespace coppice::bench

#include <cstdio>

#include "library_attention.h"
#include "parts.h"

namespace coppice::bench {
namespace {

constexpr std::uint32_t workload_seed = 20;

struct Column {
  const char* name;
  PageOrder order;
};
constexpr Column columns[] = {
    {"slots", {1, true}},          {"16 shuffled", {16, true}},    {"64 shuffled", {64, true}},
    {"128 shuffled", {128, true}}, {"slots in order", {1, false}}, {"16 in order", {16, false}},
};
constexpr Cell page_cells[] = {
    {Kind::verify, 32, 8, 4096, 64},   {Kind::verify, 32, 8, 16384, 64},
    {Kind::verify, 32, 8, 65536, 32},  {Kind::verify, 32, 32, 4096, 64},
    {Kind::verify, 32, 32, 16384, 64}, {Kind::verify, 32, 32, 65536, 64},
    {Kind::decode, 32, 32, 16384, 1},  {Kind::decode, 32, 32, 65536, 1},
};

}  // namespace

void run_page_table(Bench& bench) {
  std::printf(
      "\npages, us in pass: their size in tokens, and whether a text's follow one another in the "
      "pool\n%-24s",
      "cell");
  for (const Column& column : columns) std::printf(" %14s", column.name);
  std::printf("\n");
  for (const Cell& cell : page_cells) {
    if (filtered({cell}, bench.filter).empty()) continue;
    std::printf("%-24s", cell.name().c_str());
    for (const Column& column : columns) {
      const Workload work = make_workload(cell, workload_seed, column.order);
      const InputSets inputs(work, Bench::rotated_bytes, bench.stream);
      LibraryAttention attention(inputs, bench.blocks, bench.stream);
      const Timing timing = time_replays(
          inputs.sets(), bench.samples(), [&](std::int32_t set) { attention.queue(set); },
          bench.stream);
      std::printf(" %14.1f", timing.in_pass_us);
      std::fflush(stdout);
      bench.report.add("pages", cell.name(), column.name, json_of(timing));
    }
    std::printf("\n");
  }
}

}  // namespace coppice::bench

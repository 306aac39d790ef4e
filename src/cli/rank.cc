// `coppice rank`: a rank of another process's target.
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/rank_process.h"

namespace coppice::cli {
namespace {

po::options_description rank_options() {
  po::options_description d("Options");
  d.add_options()("connect", po::value<std::string>()->value_name("HOST:PORT"),
                  "where the process waits that was given this as --rank-address")(
      "target", po::value<std::string>()->value_name("MODEL"),
      "the same model as that process's; if not given, the shipped one")(
      "devices", po::value<std::string>()->value_name("N"),
      "number of the GPU to use, where that process uses one; if not given, 0")(
      "threads", po::value<int>()->default_value(0)->value_name("N"),
      "CPU threads, where it uses none; 0: as many as this process may use")(
      "gpu-memory-fraction", po::value<double>()->default_value(0.9, "0.9")->value_name("F"),
      "part of the GPU's memory that may be used")("gpu-memory",
                                                   po::value<std::string>()->value_name("SIZE"),
                                                   "instead: so much of it, such as 24GiB");
  const po::options_description links = rank_link_options();
  for (const auto& option : links.options()) d.add(option);
  return d;
}

}  // namespace

int rank(const std::vector<std::string>& arguments) {
  po::variables_map values;
  if (!parse(arguments, rank_options(),
             "coppice rank: have a part of a target that another process speculates with\n\n"
             "  coppice generate --prompt Hello --target MODEL --tensor-parallel 2 \\\n"
             "      --rank-address 127.0.0.1:7300 --devices 0\n"
             "  coppice rank --connect 127.0.0.1:7300 --target MODEL --devices 1\n\n"
             "One process for each GPU, on one host or on several. It ends with the process that "
             "it joined.\n",
             values)) {
    return 0;
  }
  if (values.count("connect") == 0) {
    throw_usage(
        "--connect HOST:PORT is missing: say where the process waits that was given it as "
        "--rank-address");
  }
  EngineOptions options;
  options.target = text_in(values, "target");
  if (options.target.empty()) options.target = find_stories() / "target";
  options.threads = values["threads"].as<int>();
  options.gpu_memory_fraction = values["gpu-memory-fraction"].as<double>();
  read_placement(values, options);
  options.rank_address = text_in(values, "connect");
  ProgressLine progress;
  options.progress = [&](const LoadEvent& event) { progress.show(event); };
  serve_rank(options, [&](int rank, int ranks) {
    progress.clear();
    tell(cat("joined ", options.rank_address, " as rank ", rank, " of ", ranks));
  });
  return 0;
}

}  // namespace coppice::cli

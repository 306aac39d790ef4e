// Embeds a small Llama model in a larger shape, of Llama, Qwen 3 or Gemma 3, that computes the same
// function at the larger cost: what speculation gains at sizes whose trained weights are not at
// hand, with the acceptance of the small pair. See widening.h for how, and for why nothing is zero.
//
//   build/bench/widen models/stories/target llama-2-7b DIR
//   build/bench/widen models/stories/target DIR --hidden 1024 --layers 6 --heads 8 --kv-heads 4
//                     --ffn 4096
//   build/bench/widen --empty-layers models/stories/target llama-2-70b DIR   # 10 GB on the disk
//
// Load the result in bf16 or f32: f16 has no numbers as small as the extra layers' weights.
#include <boost/program_options.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <optional>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/terminal.h"
#include "widened_folder.h"

namespace {

using namespace coppice;
using namespace coppice::bench;
namespace po = boost::program_options;

struct Interrupted {};

struct Request {
  std::string source, shape, out;
  ModelShape own{};  ///< where no shape is named
  ExtraLayers extra = ExtraLayers::random;
};

void print_help(const po::options_description& options) {
  std::cout << "widen SOURCE SHAPE OUT, or widen SOURCE OUT with all numbers of the shape:\n"
            << "writes a model that computes what SOURCE does at the cost of a larger shape.\n\n"
            << "SHAPE is one of " << known_shape_names() << "\n\n"
            << options;
}

/// std::nullopt: help was asked for and given.
std::optional<Request> parse(int argc, char** argv) {
  Request request;
  std::vector<std::string> words;
  const std::pair<const char*, std::int64_t ModelShape::*> numbers[] = {
      {"hidden", &ModelShape::hidden}, {"layers", &ModelShape::layers},
      {"heads", &ModelShape::heads},   {"kv-heads", &ModelShape::kv_heads},
      {"ffn", &ModelShape::ffn},
  };
  po::options_description options("options; the numbers are a shape of your own"), hidden, all;
  for (const auto& [name, member] : numbers) {
    options.add_options()(name, po::value(&(request.own.*member)));
  }
  bool empty_layers = false;
  options.add_options()("empty-layers", po::bool_switch(&empty_layers),
                        "layers beyond the source's are zeros, which take no room on the disk")(
      "help", "print this");
  hidden.add_options()("word", po::value(&words));
  all.add(options).add(hidden);
  po::positional_options_description positions;
  positions.add("word", -1);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(all).positional(positions).run(), values);
  po::notify(values);
  if (values.count("help") != 0) {
    print_help(options);
    return std::nullopt;
  }
  std::size_t given = 0;
  for (const auto& [name, member] : numbers) {
    if (values.count(name) == 0) continue;
    ++given;
    if (request.own.*member < 1) throw_usage(cat("--", name, " must be at least 1"));
  }
  if (words.size() != (given == 0 ? 3 : 2)) {
    throw_usage(given == 0 ? "give SOURCE, SHAPE and OUT; see --help"
                           : "a shape of your own takes no SHAPE, but SOURCE and OUT; see --help");
  }
  if (given != 0 && given != std::size(numbers)) {
    throw_usage("give all of --hidden, --layers, --heads, --kv-heads and --ffn, or a SHAPE");
  }
  if (empty_layers) request.extra = ExtraLayers::zero;
  request.source = words.front();
  request.out = words.back();
  if (given == 0) request.shape = words[1];
  if (given == 0 && known_shapes().count(request.shape) == 0) {
    throw_usage(cat(quote(request.shape), " is no shape; use one of ", known_shape_names()));
  }
  return request;
}

FittedShape shape_for(const Request& request, const ModelShape& small) {
  if (!request.shape.empty()) {
    return fitted_shape(small, request.shape, known_shapes().at(request.shape));
  }
  FittedShape own{request.own, 0, {}};
  own.shape.vocab = small.vocab;
  own.shape.head_dim = small.head_dim;
  require_fit(small, own.shape);
  return own;
}

double gigabytes(std::int64_t parameters) { return 2e-9 * static_cast<double>(parameters); }

void run(const Request& request) {
  const SmallModel small(request.source);
  const FittedShape fitted = shape_for(request, small.shape());
  const ModelShape& shape = fitted.shape;
  const std::string shape_name = request.shape.empty() ? "given" : request.shape;
  const std::int64_t copies = shape.hidden / small.shape().hidden;
  WideModel wide{
      shape, wide_tensors(small.shape(), small.tied(), small.epsilon(), shape, request.extra), {}};
  wide.about = {{"source", request.source},
                {"shape", shape_name},
                {"r", copies},
                {"added_ffn_units", fitted.added_ffn},
                {"random_layers", shape.layers - small.shape().layers},
                {"notes", fitted.notes}};

  const std::uint64_t bytes = wide.tensors.back().tensor.end();
  const double start = now_seconds();
  {
    const cli::InterruptWatch watch;
    cli::ProgressLine line(true);
    write_wide_model(small, wide, request.out, [&](std::uint64_t done) {
      if (cli::InterruptWatch::interrupted()) throw Interrupted{};
      line.show("writing " + request.out, static_cast<double>(done) / static_cast<double>(bytes));
    });
  }
  std::printf("%s: %s in the shape %s\n", request.out.c_str(), request.source.c_str(),
              shape_name.c_str());
  std::printf("  hidden size %ld, %ld times %ld\n", long{shape.hidden}, long{copies},
              long{small.shape().hidden});
  const std::int64_t extra = shape.layers - small.shape().layers;
  std::printf("  %ld layers", long{shape.layers});
  if (extra > 0 && request.extra == ExtraLayers::zero) {
    std::printf(", the last %ld zeros", long{extra});
  } else if (extra > 0) {
    std::printf(", the last %ld random and adding next to nothing", long{extra});
  }
  std::printf("\n");
  std::printf("  %ld heads and %ld KV heads of %ld, copies of %ld and %ld\n", long{shape.heads},
              long{shape.kv_heads}, long{shape.head_dim}, long{small.shape().heads},
              long{small.shape().kv_heads});
  std::printf("  %ld FFN units, copies of %ld\n", long{shape.ffn}, long{small.shape().ffn});
  for (const std::string& note : fitted.notes) std::printf("  note: %s\n", note.c_str());
  if (small.rounds()) std::printf("  note: weights were rounded to bf16\n");
  std::printf("  a pass reads %.3f GB of weights", gigabytes(shape.streamed_parameters()));
  if (!request.shape.empty()) {
    const auto published = known_shapes().at(request.shape).streamed_parameters();
    std::printf(", %s's reads %.3f GB", request.shape.c_str(), gigabytes(published));
  }
  std::printf("\n  %.2f GB written in %.1f s\n", static_cast<double>(bytes) * 1e-9,
              now_seconds() - start);
}

int complain(const std::string& what, int code) {
  std::fprintf(stderr, "widen: %s\n", what.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) try {
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is an error like a full disk
  if (const auto request = parse(argc, argv)) run(*request);
  return 0;
} catch (const po::error& error) {
  return complain(cat(error.what(), "; see --help"), 2);
} catch (const Error& error) {
  return complain(error.what(), error.kind() == ErrorKind::usage ? 2 : 1);
} catch (const Interrupted&) {
  return complain("interrupted; what was written has been removed", 130);
} catch (const std::exception& error) {
  return complain(error.what(), 1);
}

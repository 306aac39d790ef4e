// `coppice quantise`: a GGUF file of a model's weights in fewer bits.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/new_file.h"
#include "cli/command.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "kernels/cpu/workers.h"
#include "models/gguf/quantise_model.h"
#include "study/figures/text.h"

namespace coppice::cli {
namespace {

namespace fs = std::filesystem;

po::options_description quantise_options() {
  po::options_description d("Options");
  d.add_options()(
      "type",
      po::value<std::string>()->default_value("q4_k_m")->value_name(any_of(all_weight_mixes)),
      "bits of the matrices: q8_0 takes 8.5 bits a weight and hardly differs; q6_k 6.6; q4_k_m "
      "about 4.9, more for tables and parts that need it, as in llama.cpp's files of that name; "
      "q4_0 4.5, faster and worse. Rows that are no multiple of 256 take q8_0 in place of q6_k, "
      "and "
      "q5_0 in place of q4_k")("threads", po::value<int>()->default_value(0)->value_name("N"),
                               "CPU threads; 0: as many as this process may use")(
      "replace", "write even if the file is there");
  return d;
}

/// "1.2 GB, 4.9 bits a weight: Q4_K 83%, Q6_K 17%".
std::string summary(const QuantisedModel& made) {
  double all = 0.0;
  for (const auto& [type, elements] : made.elements) all += static_cast<double>(elements);
  const auto bytes = static_cast<double>(made.bytes);
  std::string text = cat(bytes < 1e9 ? cat(study::fixed(bytes / 1e6, 1), " MB")
                                     : cat(study::fixed(bytes / 1e9, 2), " GB"),
                         ", ", study::fixed(8.0 * bytes / all, 1), " bits a weight:");
  const char* between = " ";
  for (const auto& [type, elements] : made.elements) {
    const double share = 100.0 * static_cast<double>(elements) / all;
    text += cat(between, type, " ", study::fixed(share, share < 1.0 ? 1 : 0), "%");
    between = ", ";
  }
  return text;
}

}  // namespace

int quantise(const std::vector<std::string>& arguments) {
  po::options_description hidden;
  hidden.add_options()("names", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("names", -1);
  po::variables_map values;
  if (!parse(
          arguments, quantise_options(),
          "coppice quantise MODEL FILE [options]: write a model in fewer bits, as a GGUF file\n\n"
          "  coppice quantise qwen3-8b qwen3-8b-q4_k_m.gguf\n"
          "  coppice chat --target qwen3-8b-q4_k_m.gguf\n\n"
          "MODEL is a Hugging Face folder, or a GGUF file, in 16 or 32 bits. FILE is read by\n"
          "coppice and by llama.cpp. A lossy step: the file is another model, whose texts differ\n"
          "a little. What a GGUF file cannot say is refused, or listed if models do without it.\n",
          values, hidden, positional)) {
    return 0;
  }
  std::vector<std::string> names;
  if (values.count("names") != 0) names = values["names"].as<std::vector<std::string>>();
  if (names.size() != 2)
    throw_usage("quantise takes a model and a file: coppice quantise MODEL FILE");
  QuantiseRequest request;
  request.from = names[0];
  request.to = names[1];
  const std::string type = text_in(values, "type");
  if (type == name_of(WeightRounding::fp8) || type == name_of(WeightRounding::int4)) {
    throw_usage(cat("--type ", type,
                    ": GGUF has no such type; name another one, or load the model ",
                    "itself with --target-weights ", type));
  }
  request.mix = named("type", type, all_weight_mixes);
  request.existing = values.count("replace") != 0 ? Existing::replace : Existing::refuse;
  constexpr int most_threads = 1024;
  request.threads = count_in(values, "threads", 0, most_threads);
  if (request.threads == 0) request.threads = cpu::usable_threads();
  std::error_code unknown;
  if (fs::equivalent(request.from, request.to, unknown)) {
    throw_usage(cat("quantise: ", quote(names[1]), " is the model itself; name another file"));
  }
  require_new_file(request.to, request.existing, "name another file, or add --replace");
  ProgressLine progress;
  const InterruptWatch interrupts;
  request.progress = [&](double fraction) {
    progress.show("quantising", fraction);
    return !InterruptWatch::interrupted();
  };
  const std::optional<QuantisedModel> made = quantise_model(request);
  progress.clear();
  if (!made) return interrupted_exit;
  write_out(cat(printable(names[1]), ": ", summary(*made), "\n"));
  for (const std::string& one : made->lost) tell(cat("the file does not say: ", one));
  return 0;
}

}  // namespace coppice::cli

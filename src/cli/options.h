// Options that several commands share, and how their values become requests.
#pragma once

#include <array>
#include <boost/program_options.hpp>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "coppice.h"
#include "engine/option_names.h"
#include "engine/policy_options.h"

namespace coppice::cli {

namespace po = boost::program_options;

/// The folder of the shipped pair. Throws Error(failure) where it is not there.
std::filesystem::path find_stories();

/// Reads --target-weights, --draft-weights and a draft "self:TYPE", which becomes the target's
/// path.
void read_roundings(const po::variables_map& values, EngineOptions& options);

/// Reads --gpu-memory, --host-memory, --gpu-layers, --draft-gpu-layers, --tensor-parallel,
/// --draft-tensor-parallel, --devices and --rank-..., as far as the command has them.
void read_placement(const po::variables_map& values, EngineOptions& options);

/// Parses `arguments`, with aliases; an unknown option, a missing, empty or malformed value or a
/// word that belongs to no option is Error(usage). `--help` prints `usage` and the options to
/// standard output and returns false.
bool parse(const std::vector<std::string>& arguments, const po::options_description& options,
           const std::string& usage, po::variables_map& values,
           const po::options_description& hidden = {},
           const po::positional_options_description& positional = {});

/// Values that a command gives to options that are left out, where not all commands give the same.
struct UsualValues {
  double temperature = 0.0;
  const char* seed = "random, and printed";
  // As --help shows them; the command fills them in.
  const char* policy = "dyspec";
  const char* tree_size = "auto";
  const char* acceptance = "auto";
  const char* acceptance_help =
      "which of two exact rules judges trees. rejection: random choices of its own; coupled: those "
      "of --draft none --acceptance coupled, so that with a seed the text is the same; auto: the "
      "faster one, which the statistics name. With a --tree-size or --cost-table auto always takes "
      "the same, so that a seed repeats its text";
};

/// What a command's --help prints, in parts.
struct CommandHelp {
  std::string usage;
  po::options_description options;
};
/// Returns the help of a command that takes the words after its name.
CommandHelp help_of(int (*run)(const std::vector<std::string>& arguments));

po::options_description model_options();
/// The same without the choice of a device: the command computes on the CPU.
po::options_description cpu_model_options();
/// Of processes that share a target, on either side.
po::options_description rank_link_options();
po::options_description sampling_options(const UsualValues& usual = {});
po::options_description drafting_options(const UsualValues& usual = {});

/// Options of commands that run many settings: repetition penalty, top-k, top-p and min-p of all.
void add_filter_options(po::options_description& options);
/// What --repetition-penalty, --top-k, --top-p and --min-p say.
void read_filters(const po::variables_map& values, SamplingParams& params);

/// Finds the models and says on standard error what it decided where that is not obvious.
/// Its largest tree is that of `speculation`, which is valid.
EngineOptions engine_options(const po::variables_map& values, const Speculation& speculation);
/// If texts are decoded plainly: says so on standard error unless somebody asked for it, and names
/// the options given that have no effect then. `engine` is what engine_options() made of `values`.
void tell_of_plain(const po::variables_map& values, const EngineOptions& engine);
/// Largest tree of automatic size where layers of the target are copied in every pass.
inline constexpr std::int32_t usual_streamed_tree = 768;
/// EngineOptions::max_tree_size for texts that speculate so.
std::int32_t tree_room(const Speculation& speculation);

/// What sampling_options() say, and of acceptance, draft-temperature and no-bos those that the
/// command has: for commands that choose policies themselves. Without a seed a random one.
GenerateOptions sampling_request(const po::variables_map& values);
/// The same with what drafting_options() say; reads the tree file.
GenerateOptions generate_options(const po::variables_map& values);
/// What drafting_options() say of lookup.
Lookup lookup_in(const po::variables_map& values);
/// What drafting_options() say of the policy.
PolicyOptions policy_options(const po::variables_map& values);
/// Puts in what --widths, --tree, --tree-depth, --beam-width and --threshold say.
void read_tree_options(const po::variables_map& values, PolicyOptions& options);
/// The value of a text option, "" if it was not given.
std::string text_in(const po::variables_map& values, const char* option);
/// The file that the option says is to be written, "" if it was not given. Throws Error(usage) for
/// "-", and for `input`, a file that is read.
std::string written_file_in(const po::variables_map& values, const char* option,
                            const std::string& input = {});
/// The value of a count. Error(usage) names the option if it is not from `least` to `most`.
std::int32_t count_in(const po::variables_map& values, const char* option, std::int32_t least,
                      std::int32_t most = std::numeric_limits<std::int32_t>::max());

/// What an option says, at least 1; `usual` if it was not given.
template <typename Number>
Number count_or(const po::variables_map& values, const char* option, Number usual,
                std::int32_t most = std::numeric_limits<std::int32_t>::max()) {
  return values[option].defaulted() ? usual : Number{count_in(values, option, 1, most)};
}

/// What --progress says. Error(usage) for less than 0, and for what is no number.
double progress_seconds(const po::variables_map& values);

/// Whether --format says json. Error(usage) where it says neither that nor text.
bool wants_json(const po::variables_map& values);

/// A whole number from 1 to `most`, or 0 for "auto". Error(usage) names `option`.
std::int64_t count_or_auto(const std::string& option, const std::string& text, std::int64_t most);
/// Draft tokens of a tree, or 0 for "auto". Error(usage) names `option`.
std::int32_t tree_size_in(const std::string& option, const std::string& text);

}  // namespace coppice::cli

#include "models/model_folder.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "models/gguf/gguf_file.h"
#include "models/settings/folder_notes.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

ModelConfig supported_config(const fs::path& dir) {
  ModelConfig config = read_config(dir);
  if (config.unsupported.empty()) return config;
  throw_failure(cat(dir.string(), ": coppice cannot run this model: ", config.unsupported.front(),
                    config.unsupported.size() > 1 ? "; `coppice info` lists more" : ""));
}

/// Settings are read for several purposes, each of which meets what is wrong with them.
void note_once(std::vector<std::string>& obstacles, const std::string& what) {
  if (std::find(obstacles.begin(), obstacles.end(), what) == obstacles.end()) {
    obstacles.push_back(what);
  }
}

const ModelConfig& with_settled_head(ModelConfig& config, const WeightSource& source) {
  settle_head(config, source);
  return config;
}

}  // namespace

ModelFiles::ModelFiles(const fs::path& folder, std::optional<WeightFormat> rounding)
    : dir(folder),
      held(held_gguf(dir)),
      config(supported_config(dir)),
      source(open_weights(dir, config, rounding)),
      weights(with_settled_head(config, *source), *source) {}

std::unique_ptr<Tokenizer> load_model_tokenizer(const fs::path& dir, std::int64_t vocab_rows,
                                                std::string& why_not) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::load(dir);
  } catch (const Error& error) {
    // Token ids still work; a text prompt will say why it does not.
    if (!is_there(dir / "tokenizer.json") && Tokenizer::is_in(dir)) throw;
    why_not = error.what();
  }
  if (tokenizer && tokenizer->vocabulary_pieces() > vocab_rows) {
    throw_failure(cat("target ", quote(dir.string()), ": its tokenizer has ",
                      tokenizer->vocabulary_pieces(), " pieces, its model only ", vocab_rows,
                      " vocabulary rows; the files do not belong together"));
  }
  return tokenizer;
}

ModelFolder::ModelFolder(const fs::path& dir)
    : held(held_gguf(dir)), config(read_config(dir, wrong_ids)), obstacles(config.unsupported) {
  const bool known = obstacles.empty();  // else neither tensors nor rows are
  if (!wrong_ids.empty()) obstacles.push_back(wrong_ids);
  try {
    source = open_weights(dir, config);
    if (known) StoredWeights(with_settled_head(config, *source), *source);
  } catch (const Error& error) {
    note_once(obstacles, error.what());
    if (source == nullptr) no_weights = error.what();
  }
  try {
    constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
    tokenizer = load_model_tokenizer(dir, known ? config.vocab_size : any, no_tokenizer);
  } catch (const Error& error) {
    note_once(obstacles, error.what());
    no_tokenizer = error.what();
  }
  try {
    settings = folder_notes(dir, config);
    settings.shorten();
  } catch (const Error& error) {
    note_once(obstacles, error.what());
  }
}

}  // namespace coppice

#include "cli/other_names.h"

#include <algorithm>
#include <cstddef>

namespace coppice::cli {
namespace {

enum class Meaning {
  same,     ///< an alias
  similar,  ///< the remark goes on behind "coppice calls it --option"
  none,     ///< the remark goes on behind "option is unknown"
};
using enum Meaning;

struct OtherNames {
  Meaning meaning;
  std::string_view option;  ///< ours
  std::string_view typed;   ///< with blanks between them
  std::string_view remark = "";
};

constexpr OtherNames table[] = {
    {same, "target", "-m --model"},
    {same, "draft", "-md --model-draft"},
    {same, "prompt", "-p"},
    {same, "prompt-file", "-f --file"},
    {same, "system", "-sys --system-prompt"},
    {same, "max-new-tokens", "-n --predict --n-predict"},
    {same, "temperature", "--temp"},
    {same, "seed", "-s"},
    {same, "threads", "-t"},
    {same, "parallel", "-np"},
    {same, "kv-tokens", "-c --ctx-size"},

    {similar, "draft", "--draft-model --speculative-model"},
    {similar, "max-new-tokens", "--num-predict --max-tokens --max-length --tokens"},
    {similar, "stop", "-r --reverse-prompt", ", and leaves that text out"},
    {similar, "chat", "-cnv --conversation -i --interactive -st --single-turn",
     ", or use coppice chat"},
    {similar, "template-name", "--chat-template", ", which names one of the model's own"},
    {similar, "template-value", "--chat-template-kwargs", ", as NAME=VALUE"},
    {similar, "repetition-penalty", "--repeat-penalty",
     ", over the whole text (llama.cpp's reaches back 64 tokens)"},
    {similar, "tree-size", "--draft-max --draft-n --num-speculative-tokens",
     ", the nodes of a tree of guesses; with --policy chain they are a line"},
    {similar, "tree-size", "--draft-min --draft-n-min",
     ", which fixes the number; otherwise a tree grows while it pays"},
    {similar, "threshold", "--draft-p-min", ", of --policy dyspec-threshold"},
    {similar, "kv-tokens", "-cd --ctx-size-draft --n-ctx --max-model-len", ", for both models"},
    {similar, "kv-dtype",
     "-ctk -ctv -ctkd -ctvd --cache-type-k --cache-type-v --cache-type-k-draft "
     "--cache-type-v-draft --kv-cache-dtype",
     ", for keys and values of both models"},
    {similar, "cpu-dtype", "--dtype"},
    {similar, "threads", "-tb -td --threads-batch --threads-draft",
     ", for all passes of both models"},
    {similar, "device",
     "-ngl -ngld --gpu-layers --n-gpu-layers --gpu-layers-draft --n-gpu-layers-draft",
     ", which takes all layers"},
    {similar, "device", "-dev -devd --device-draft", " auto, cpu or cuda, for both models"},
    {similar, "gpu-memory-fraction", "--gpu-memory-utilization"},
    {similar, "parallel", "--max-num-seqs"},
    {similar, "stats", "--perf -v --verbose"},

    {none, "", "-fa --flash-attn", "none is needed: attention always goes over the KV in blocks"},
    {none, "", "-b -ub --batch-size --ubatch-size",
     "none is needed: passes are sized by the device"},
    {none, "", "-no-cnv --no-conversation",
     "none is needed: generate continues raw text unless --chat is given"},
    {none, "", "--no-display-prompt", "none is needed: only new text is written"},
    {none, "", "--jinja", "none is needed: chat templates are always run"},
    {none, "", "--mlock --no-mmap", "none is needed: weights are read into memory"},
    {none, "", "-e --escape --no-escape",
     "prompts are taken as they are; in most shells $'two\\nlines' has a line break"},
    {none, "", "-hf -hfd --hf-repo --hf-repo-draft",
     "coppice downloads nothing; name a Hugging Face folder with --target"},
    {none, "", "-sm -ts -mg -tp --split-mode --tensor-split --main-gpu --tensor-parallel-size",
     "coppice runs on one GPU, the first that CUDA_VISIBLE_DEVICES shows"},
    {none, "", "-j --json-schema --grammar --grammar-file", "coppice has no grammars"},
    {none, "",
     "--presence-penalty --frequency-penalty --repeat-last-n --typical --mirostat "
     "--dry-multiplier --xtc-probability --top-n-sigma --samplers",
     "sampling has --repetition-penalty, --temperature, --top-k, --top-p and --min-p, in this "
     "order"},
};

template <typename Visit>
void for_each_word(std::string_view words, const Visit& visit) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    visit(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

const OtherNames* row_of(std::string_view typed) {
  for (const OtherNames& row : table) {
    bool holds = false;
    for_each_word(row.typed, [&](std::string_view word) { holds = holds || word == typed; });
    if (holds) return &row;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> aliases_of(std::string_view option) {
  std::vector<std::string> aliases;
  for (const OtherNames& row : table) {
    if (row.meaning != same || row.option != option) continue;
    for_each_word(row.typed, [&](std::string_view word) { aliases.emplace_back(word); });
  }
  return aliases;
}

std::string_view aliased(std::string_view typed) {
  const OtherNames* const row = row_of(typed);
  return row != nullptr && row->meaning == same ? row->option : "";
}

Translation translated(std::string_view typed) {
  const OtherNames* const row = row_of(typed);
  return row == nullptr || row->meaning == same ? Translation{}
                                                : Translation{row->option, row->remark};
}

}  // namespace coppice::cli

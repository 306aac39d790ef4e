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

struct OtherNames {
  Meaning meaning;
  std::string_view option;  ///< ours
  std::string_view typed;   ///< with blanks between them
  std::string_view remark = "";
};

constexpr OtherNames table[] = {
    {Meaning::same, "target", "-m --model"},
    {Meaning::same, "draft", "-md --model-draft"},
    {Meaning::same, "prompt", "-p"},
    {Meaning::same, "prompt-file", "-f --file"},
    {Meaning::same, "escape", "-e"},
    {Meaning::same, "system", "-sys --system-prompt"},
    {Meaning::same, "max-new-tokens", "-n --predict --n-predict"},
    {Meaning::same, "temperature", "--temp"},
    {Meaning::same, "seed", "-s"},
    {Meaning::same, "threads", "-t"},
    {Meaning::same, "parallel", "-np"},
    {Meaning::same, "kv-tokens", "-c --ctx-size"},
    {Meaning::same, "gpu-layers", "-ngl --n-gpu-layers"},
    {Meaning::same, "draft-gpu-layers", "-ngld --gpu-layers-draft --n-gpu-layers-draft"},
    {Meaning::same, "tensor-parallel", "-tp --tensor-parallel-size"},
    {Meaning::same, "json-schema", "-j -jf --json-schema-file"},
    {Meaning::same, "grammar", "--grammar-file"},

    {Meaning::similar, "draft", "--draft-model --speculative-model --assistant-model"},
    {Meaning::similar, "n", "--num-return-sequences"},
    {Meaning::similar, "temperature", "--do-sample", ", above 0"},
    {Meaning::similar, "prompt-file", "-bf --binary-file"},
    {Meaning::similar, "system", "-sysf --system-prompt-file",
     ", of the text itself: in most shells \"$(cat FILE)\""},
    {Meaning::similar, "max-new-tokens", "--num-predict --max-tokens --max-length --tokens"},
    {Meaning::similar, "stop", "-r --reverse-prompt", ", and leaves that text out"},
    {Meaning::similar, "chat", "-cnv --conversation -i --interactive -st --single-turn",
     ", or use coppice chat"},
    {Meaning::similar, "template-name", "--chat-template", ", which names one of the model's own"},
    {Meaning::similar, "template-value", "--chat-template-kwargs", ", as NAME=VALUE"},
    {Meaning::similar, "logit-bias", "-l", ", as TOKEN=BIAS"},
    {Meaning::similar, "min-new-tokens", "--min-tokens --min-length"},
    {Meaning::similar, "stop-tokens", "--stop-token-ids"},
    {Meaning::similar, "repetition-penalty", "--repeat-penalty",
     ", over the whole text (llama.cpp's reaches back 64 tokens)"},
    {Meaning::similar, "tree-size", "--draft-max --draft-n --num-speculative-tokens",
     ", the nodes of a tree of guesses; with --policy chain they are a line"},
    {Meaning::similar, "tree-size", "--draft-min --draft-n-min",
     ", which fixes the number; otherwise a tree grows while it pays"},
    {Meaning::similar, "threshold", "--draft-p-min", ", of --policy dyspec-threshold"},
    {Meaning::similar, "kv-tokens", "-cd --ctx-size-draft --n-ctx --max-model-len",
     ", for both models"},
    {Meaning::similar, "kv-dtype",
     "-ctk -ctv -ctkd -ctvd --cache-type-k --cache-type-v --cache-type-k-draft "
     "--cache-type-v-draft --kv-cache-dtype",
     ", for keys and values of both models"},
    {Meaning::similar, "cpu-dtype", "--dtype"},
    {Meaning::similar, "threads", "-tb -td --threads-batch --threads-draft",
     ", for all passes of both models"},
    {Meaning::similar, "device", "-dev -devd --device-draft",
     " auto, cpu or cuda, for both models"},
    {Meaning::similar, "gpu-memory-fraction", "--gpu-memory-utilization"},
    {Meaning::similar, "parallel", "--max-num-seqs"},
    {Meaning::similar, "stats", "--perf -v --verbose"},

    {Meaning::similar, "host-memory", "--cpu-offload-gb",
     ", as a limit; --gpu-layers says what stays"},
    {Meaning::none, "", "-fa --flash-attn",
     "none is needed: attention always goes over the KV in blocks"},
    {Meaning::none, "", "-b -ub --batch-size --ubatch-size",
     "none is needed: passes are sized by the device"},
    {Meaning::none, "", "-no-cnv --no-conversation",
     "none is needed: generate continues raw text unless --chat is given"},
    {Meaning::similar, "template-value", "--reasoning-budget --reasoning-format",
     ", with what the template knows, such as enable_thinking=false"},
    {Meaning::none, "", "--chat-template-file --tokenizer",
     "they are the model's own, in its folder or GGUF file"},
    {Meaning::none, "",
     "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--override-kv",
     "the model's config.json or GGUF file says it"},
    {Meaning::none, "", "--lora --lora-scaled --control-vector",
     "coppice has no adapters; merge them into the weights"},
    {Meaning::none, "", "-mm --mmproj --image --audio", "coppice reads and writes text alone"},
    {Meaning::none, "", "--host --port --api-key", "it is an option of coppice serve"},
    {Meaning::none, "", "--quantization",
     "weights are run as they are stored; --target-weights and --draft-weights round them as they "
     "are read, coppice quantise writes them in fewer bits"},
    {Meaning::none, "", "--trust-remote-code", "none is needed: no code of a model is run"},
    {Meaning::none, "", "-cb --cont-batching --enable-prefix-caching",
     "none is needed: texts are written side by side and share what they begin with"},
    {Meaning::none, "", "-nkvo --no-kv-offload", "keys and values are where the model is"},
    {Meaning::none, "", "--no-context-shift", "none is needed: a text ends with the context"},
    {Meaning::none, "", "--no-display-prompt", "none is needed: only new text is written"},
    {Meaning::none, "", "--jinja", "none is needed: chat templates are always run"},
    {Meaning::none, "", "--mlock --no-mmap", "none is needed: weights are read into memory"},
    {Meaning::none, "", "-hf -hfd --hf-repo --hf-repo-draft",
     "coppice downloads nothing; name a Hugging Face folder or GGUF file with --target"},
    {Meaning::none, "", "-sm -ts --split-mode --tensor-split",
     "--tensor-parallel splits a target over GPUs, in equal parts"},
    {Meaning::none, "", "-mg --main-gpu", "--devices names the GPUs to use"},
    {Meaning::none, "",
     "--repeat-last-n --typical --mirostat "
     "--dry-multiplier --xtc-probability --top-n-sigma --dynatemp-range --samplers",
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
    if (row.meaning != Meaning::same || row.option != option) continue;
    for_each_word(row.typed, [&](std::string_view word) { aliases.emplace_back(word); });
  }
  return aliases;
}

bool escapes(std::string_view typed) { return typed == "-p" || typed == "-f" || typed == "--file"; }

std::string_view aliased(std::string_view typed) {
  const OtherNames* const row = row_of(typed);
  return row != nullptr && row->meaning == Meaning::same ? row->option : "";
}

Translation translated(std::string_view typed) {
  const OtherNames* const row = row_of(typed);
  return row == nullptr || row->meaning == Meaning::same ? Translation{}
                                                         : Translation{row->option, row->remark};
}

}  // namespace coppice::cli

#include "study/settings.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "study/fingerprint.h"

namespace coppice::study {
namespace {

using Json = nlohmann::ordered_json;

std::string hash_of(const std::vector<StudyPrompt>& prompts) {
  Fingerprint fingerprint;
  const auto add = [&](const std::string& text) {
    fingerprint.add_number(text.size());
    fingerprint.add(text);
  };
  for (const StudyPrompt& prompt : prompts) {
    add(prompt.kind);
    add(prompt.text);
    fingerprint.add_number(prompt.tokens.size());
    for (const TokenId token : prompt.tokens) {
      fingerprint.add_number(static_cast<std::uint64_t>(token));
    }
  }
  return fingerprint.text();
}

Json model(const std::filesystem::path& folder) {
  if (folder.empty()) return nullptr;
  return {{"path", std::filesystem::absolute(folder).lexically_normal().string()},
          {"fingerprint", fingerprint_of_folder(folder)}};
}

}  // namespace

std::vector<StudyPrompt> spread(std::vector<StudyPrompt> prompts, std::int32_t count) {
  const auto wanted = static_cast<std::size_t>(std::max(count, 0));
  if (wanted == 0 || wanted >= prompts.size()) return prompts;
  std::vector<StudyPrompt> some;
  for (std::size_t i = 0; i < wanted; ++i) {
    some.push_back(std::move(prompts[i * prompts.size() / wanted]));
  }
  return some;
}

Json settings_of(const StudyRequest& request) {
  Json cells = Json::array();
  for (const Cell& cell : request.cells) {
    cells.push_back(cell.key());
    if (cell.tree.empty()) continue;
    // Its contents are the policy.
    Fingerprint fingerprint;
    fingerprint.add(read_file(cell.tree, "tree", std::uintmax_t{64} << 20));
    cells.back() = cat(cell.key(), " ", fingerprint.text());
  }
  const SharedOptions& shared = request.shared;
  const EngineOptions& engine = request.engine;
  return {{"format", 1},
          {"version", version()},
          {"target", model(engine.target)},
          {"draft", model(engine.draft)},
          {"prompts_hash", hash_of(request.prompts)},
          {"prompts", request.prompts.size()},
          {"prompt_tokens", request.prompt_tokens},
          {"max_new_tokens", shared.max_new_tokens},
          {"ignore_eos", shared.ignore_eos},
          {"repetition_penalty", shared.repetition_penalty},
          {"top_k", shared.top_k},
          {"top_p", shared.top_p},
          {"min_p", shared.min_p},
          {"oracle_positions", request.oracle_positions},
          {"oracle_sizes", request.oracle_sizes},
          {"device", engine.device},
          {"threads", engine.threads},
          {"cpu_dtype", engine.cpu_dtype},
          {"kv_tokens", engine.kv_tokens},
          {"jobs", request.jobs},
          {"cells", std::move(cells)}};
}

}  // namespace coppice::study

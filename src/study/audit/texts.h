// Texts that speculation must leave as they are, token for token.
#pragma once

#include <functional>
#include <vector>

#include "study/audit/audit.h"

namespace coppice::study {

/// Compares texts at temperature 0, or under coupled acceptance, with plain decoding's. After a
/// divergence speculation starts again behind the plain token, so that every one is counted.
/// Where context or KV memory ends a text, what there is of it is compared. `tick` is called after
/// every prompt.
TextFinding compare_texts(Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
                          const GenerateOptions& options, std::int32_t tokens,
                          const std::function<void()>& tick);

}  // namespace coppice::study

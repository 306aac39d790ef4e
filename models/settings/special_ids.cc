#include "models/settings/special_ids.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_special_tokens = 1024;

/// Token ids of a field that holds one integer or a list of them, without repetition.
std::vector<TokenId> ids_in(const Fields& fields, const char* name, std::int64_t vocab_size) {
  std::vector<TokenId> tokens;
  const Json* const value = fields.find(name);
  if (value == nullptr) return tokens;
  const bool is_given = fields.object().contains(name);
  const auto add = [&](const Json& id) {
    if (!id.is_number_integer()) fields.refuse(name, cat("token ids below ", vocab_size));
    if (!id.is_number_unsigned() && id.get<std::int64_t>() < 0) return;
    if (id.get<std::uint64_t>() >= static_cast<std::uint64_t>(vocab_size)) {
      if (is_given) fields.refuse(name, cat("token ids from 0 to ", vocab_size - 1));
      return;
    }
    const auto token = static_cast<TokenId>(id.get<std::int64_t>());
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  };
  if (!value->is_array()) {
    add(*value);
  } else if (value->size() > most_special_tokens) {
    fields.refuse(name, cat("a list of at most ", most_special_tokens, " token ids"));
  } else {
    for (const Json& id : *value) add(id);
  }
  return tokens;
}

}  // namespace

void read_config_ids(const Fields& outer, const Fields& text, ModelConfig& config) {
  const auto read = [&](const char* name) {
    const bool above = outer.object().contains(name) && outer.has(name);
    return ids_in(above ? outer : text, name, config.vocab_size);
  };
  const std::vector<TokenId> bos = read("bos_token_id");
  config.bos_token = bos.empty() ? -1 : bos.front();
  config.eos_tokens = read("eos_token_id");
}

void read_generation_ids(const Fields& generation, ModelConfig& config) {
  const std::vector<TokenId> bos = ids_in(generation, "bos_token_id", config.vocab_size);
  if (config.bos_token < 0 && !bos.empty()) config.bos_token = bos.front();
  if (generation.has("eos_token_id")) {
    config.eos_tokens = ids_in(generation, "eos_token_id", config.vocab_size);
  }
}

}  // namespace coppice

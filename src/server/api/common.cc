#include "server/api/common.h"

#include <span>

#include "base/error.h"
#include "server/api/api_error.h"

namespace coppice::server {

void read_model(Fields& fields, const std::string& model) {
  const std::optional<std::string> name = fields.text("model");
  if (!name || *name == model) return;
  throw ApiError(404,
                 cat("The model ", quote(*name), " does not exist; this server has ", quote(model)),
                 "model", "model_not_found");
}

std::vector<TokenId> token_ids(const std::string& path, const Json& list, const Backend& backend) {
  if (!list.is_array() || list.empty()) throw bad_field(path, "give a string or token ids");
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const Json& id : list) {
    const bool whole = id.is_number_integer();
    const std::int64_t number = whole ? id.get<std::int64_t>() : -1;
    if (number < 0 || number >= backend.facts().vocab_size) {
      throw bad_field(
          path, cat("token ids are whole numbers from 0 to ", backend.facts().vocab_size - 1));
    }
    tokens.push_back(static_cast<TokenId>(number));
  }
  return tokens;
}

void check_length(const std::string& path, std::size_t tokens, const Backend& backend) {
  if (tokens == 0) throw bad_field(path, "it is empty");
  const auto room = static_cast<std::size_t>(backend.facts().context_length);
  if (tokens < room) return;
  throw ApiError(400,
                 cat(path, ": it has ", tokens, " tokens, and the model's context is ", room,
                     " tokens; shorten it"),
                 path, "context_length_exceeded");
}

Constraint build_constraint(Backend& backend,
                            const std::optional<constraints::ConstraintSource>& source) {
  if (!source) return {};
  try {
    return backend.constraint(*source);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "response_format", "invalid_constraint");
  }
}

}  // namespace coppice::server

// What reading requests of several APIs needs beside their fields.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/backend.h"

namespace coppice::server {

/// Reads `model`: 404 for another than the server's. Absent, it is the server's.
void read_model(Fields& fields, const std::string& model);

/// A list of token ids. Throws for what is none.
std::vector<TokenId> token_ids(const std::string& path, const Json& list, const Backend& backend);

/// 400 for a prompt that is empty or leaves no room in the context.
void check_length(const std::string& path, std::size_t tokens, const Backend& backend);

/// The constraint of this source, if there is one; what is wrong with it is an ApiError.
Constraint build_constraint(Backend& backend,
                            const std::optional<constraints::ConstraintSource>& source);

}  // namespace coppice::server

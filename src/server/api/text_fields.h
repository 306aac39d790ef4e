// Fields of a request that say how a text is written, in whichever API.
#pragma once

#include <cstdint>
#include <optional>

#include "constraints/language.h"
#include "coppice.h"
#include "server/api/fields.h"

namespace coppice::server {

/// What a request asks for in no other way than all others.
struct TextFields {
  GenerateOptions options;
  std::optional<constraints::ConstraintSource> constraint;
  std::int32_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool trees = false;       ///< speculation.trees
  bool says_least = false;  ///< the request itself has min_tokens

  /// Sets the most new tokens. A default of the fewest becomes no more than these.
  void set_most(std::int32_t tokens);
};

/// Reads temperature, top_p, top_k, min_p, penalties, seed, stop, ignore_eos, n, stream,
/// speculation, response_format and the like; `defaults` is what is not said. Throws ApiError.
TextFields read_text_fields(Fields& fields, const GenerateOptions& defaults,
                            std::int64_t vocab_size);

/// The most tokens that a request asks for, under whichever name.
std::optional<std::int32_t> read_max_tokens(Fields& fields, std::int32_t least);

/// options.validate(), as an ApiError.
void validate(const GenerateOptions& options);

/// A seed that no request has had.
std::uint64_t random_seed();

}  // namespace coppice::server

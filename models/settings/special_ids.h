// The ids of the token that begins a text and of those that end one.
#pragma once

#include "models/config.h"
#include "models/config_fields.h"

namespace coppice {

/// Reads bos_token_id and eos_token_id of a config.json: of `outer`, or where that has none of
/// `text` (the same, but for models of more than text), with the family's for what both leave out.
/// null is none; so is a negative id, or a family's that the vocabulary does not have. Throws
/// Error(failure) for any other id that the vocabulary does not have.
void read_config_ids(const Fields& outer, const Fields& text, ModelConfig& config);

/// Reads those of a generation_config.json, whose end tokens stand in place of config.json's. Its
/// begin token counts only where there is none yet.
void read_generation_ids(const Fields& generation, ModelConfig& config);

}  // namespace coppice

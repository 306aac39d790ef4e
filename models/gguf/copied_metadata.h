// A GGUF file's metadata for another GGUF file of the same model.
#pragma once

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"

namespace coppice {

/// All but general.architecture, general.type, what speaks of formats and alignment, and what
/// speaks of the parts of a file. Throws Error(failure) naming a key whose value no writer has.
GgufMetadata copied_metadata(const GgufFile& file);

}  // namespace coppice

// What `generate --batch` is asked for: a text a line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/constraint_options.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "coppice.h"

namespace coppice::cli {

struct BatchLine {
  std::int64_t number = 0;   ///< in its file, from 1
  std::string_view raw;      ///< the whole line
  std::string id;            ///< JSON text; empty: none was given
  Prompt prompt;             ///< empty if `is_messages`
  bool is_messages = false;  ///< its key "messages" holds a conversation
  GenerateOptions options;
  std::shared_ptr<const constraints::Language> constraint;  ///< null: none
  std::int32_t samples = 1;
};

/// Lines of JSON: the first character that is no blank is '{'.
bool is_json_lines(std::string_view contents);

/// How the options of a command reach its lines.
struct LineDefaults {
  const po::variables_map& values;  ///< the command's, with a seed
  const EngineOptions& engine;
  const GenerateOptions& options;  ///< what `values` say
  bool chats = false;              ///< prompts are messages for the chat template
};

/// The texts of a batch, in order. Plain text: a prompt a line. JSON lines: objects with "prompt",
/// "tokens" (ids, BOS included) or "messages" (with --chat), perhaps "id", a text or whole number,
/// and options of their own by the names of the command's, with _ for -: those of length_options(),
/// sampling_options() and drafting_options() but for files, and no_bos. Samples have streams
/// of their own: a line that gives no "stream" has the command's plus the number of samples in the
/// lines before. Blank lines are skipped. `contents` must outlive the result. Throws Error(usage)
/// that names `where` and the line: not UTF-8, no JSON object, an unknown key, a value of another
/// type or out of range; for nothing but blank lines, and for a JSON array.
std::vector<BatchLine> read_batch_lines(std::string_view contents, const std::string& where,
                                        const LineDefaults& defaults);

}  // namespace coppice::cli

// A model's text as an answer: content, reasoning and tool calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/talk/answer_form.h"
#include "server/talk/argument_types.h"

namespace coppice::server {

/// One more part of an answer. Parts of one kind that follow each other belong together.
struct AnswerDelta {
  enum class Kind : std::uint8_t {
    content,
    reasoning,
    call,       ///< a tool call begins: number, id, name
    arguments,  ///< more text of the call's arguments, which are a JSON object in the end
  };
  Kind kind = Kind::content;
  std::string text;  ///< of content, reasoning, arguments
  int call = -1;     ///< of a call, arguments: its number, from 0
  std::string id, name;
  bool operator==(const AnswerDelta&) const = default;
};

struct AnswerOptions {
  AnswerForm form;
  /// The prompt ended within reasoning (begins_with_reasoning()).
  bool in_reasoning = false;
  /// Names of the tools that were offered; without any, all text is content. Forms without a mark
  /// of their own (llama, pythonic) take a text for calls only if its first call names one of them.
  std::vector<std::string> tools;
  /// Of the tools' arguments; forms with tags do not tell text from other values.
  ArgumentTypes types;
  /// Arguments are handed over as they come. Sound where a constraint keeps the text to the form:
  /// a call that breaks off later cannot be taken back. Otherwise a call is handed over when it is
  /// whole, and what turns out to be none is content.
  bool stream_arguments = false;
  /// Makes the id of a call that has none in the text. By default "call_0", "call_1", ...; ids of
  /// Mistral's forms should have nine letters and digits.
  std::function<std::string()> new_id;
};

/// Reads an answer that arrives in pieces. Where the pieces are cut changes how deltas are cut, and
/// nothing else. The text must spell special tokens such as [TOOL_CALLS].
///
/// White space around reasoning, and before and between calls, is left out.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  /// Takes a piece of whole characters.
  std::vector<AnswerDelta> feed(std::string_view text);
  /// Ends the text: what was held back as the beginning of a mark or a call is handed over.
  std::vector<AnswerDelta> finish();

  /// Calls that were handed over, begun ones included.
  int calls() const;
  /// Bytes of the text with which reasoning ended, its closing mark included; all that came where
  /// it did not end; 0 without reasoning.
  std::size_t reasoning_bytes() const;

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace coppice::server

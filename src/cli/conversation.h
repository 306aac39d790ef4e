// Messages from options, files and a person, as tokens for a model.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chat/model_template.h"
#include "cli/options.h"
#include "coppice.h"

namespace coppice::cli {

/// --system, --no-template, --template-name, --template-value.
po::options_description conversation_options();

class Conversation {
 public:
  /// Reads the template of the folder `target`, unless --no-template asks for raw text.
  Conversation(const std::filesystem::path& target, const po::variables_map& values);

  void add(const std::string& role, const std::string& content);
  /// Messages of a JSON list. Added tokens that an assistant's message spells are tokens, as in
  /// transformers; in all other messages they are text. Throws Error(usage), which names `where`.
  void add_json(std::string_view json, const std::string& where);
  /// The same of a list that is parsed.
  void add_list(const chat::Value& list, const std::string& where);
  void add(const chat::Value& message) { messages_.push_back(message); }
  /// Removes the last of at least one message.
  chat::Value remove_last();
  /// Whether anything was said and answered since clear().
  bool has_turn() const { return messages_.size() >= (system_.empty() ? 2U : 3U); }
  /// Forgets all messages but --system's.
  void clear();
  /// As a JSON list that add_json() reads, without --system's message.
  std::string to_json() const;

  /// What the model shall go on from. Raw text: what was said, a line for each turn.
  chat::Text text() const;
  /// What it shall go on from to continue the last message, which must be an assistant's, as
  /// continue_final_message of transformers. Throws Error(usage) if it is not, and Error(failure)
  /// if the template does not write that message as it is.
  chat::Text text_to_continue() const;
  bool raw() const { return !template_; }

 private:
  std::optional<chat::ModelTemplate> template_;
  std::vector<std::pair<std::string, chat::Value>> template_values_;
  std::string system_;
  std::vector<chat::Value> messages_;
};

/// Tokens of a text that is appended to the tokens `before`. What a template wrote may be special
/// tokens, what people wrote never is. Raw text at the start gets what the tokenizer puts around
/// one, unless `add_bos` is false; a template says itself what it wants.
std::vector<TokenId> tokens_of(Engine& engine, const chat::Text& text, bool raw, bool add_bos,
                               std::span<const TokenId> before = {});

/// Sets what generation_config.json of the folder recommends and no option says: temperature,
/// top-k, top-p, min-p, repetition penalty, most new tokens, stop texts. Returns lines to tell:
/// what was taken and matters, and the names of settings that are not obeyed. Throws Error(failure)
/// for a file that cannot be read.
std::vector<std::string> take_recommended(const std::filesystem::path& target,
                                          const po::variables_map& values,
                                          GenerateOptions& request);

}  // namespace coppice::cli

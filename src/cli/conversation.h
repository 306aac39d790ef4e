// Messages from options, files and a person, as tokens for a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chat/model_template.h"
#include "cli/options.h"
#include "conversation/messages.h"
#include "coppice.h"
#include "models/settings/generation_settings.h"

namespace coppice::cli {

/// --system, --no-template, --template-name, --template-value.
po::options_description conversation_options();

class Conversation {
 public:
  /// Reads the template of the folder `target`, unless --no-template asks for raw text.
  Conversation(const std::filesystem::path& target, const po::variables_map& values);

  void add(const std::string& role, const std::string& content);
  /// Messages of a JSON list (conversation/messages.h). Throws Error(usage), which names `where`.
  void add_json(std::string_view json, const std::string& where);
  /// The same of a list that is parsed.
  void add_list(const chat::Value& list, const std::string& where);
  void add(const chat::Value& message) { messages_.push_back(message); }
  /// Removes the last of at least one message.
  chat::Value remove_last();
  /// Whether anything was said and answered since clear().
  bool has_turn() const { return messages_.size() >= (system_.empty() ? 2U : 3U); }
  /// Of its messages' roles and contents, and some for each message.
  std::uint64_t bytes() const;
  /// Forgets all messages but --system's.
  void clear();
  /// As a JSON list that add_json() reads, without --system's message.
  std::string to_json() const;

  /// What the model shall go on from. Raw text: what was said, a line for each turn.
  chat::Text text() const;
  /// What it shall go on from to continue the last message (conversation/messages.h).
  chat::Text text_to_continue() const;
  bool raw() const { return !template_; }

 private:
  std::optional<chat::ModelTemplate> template_;
  conversation::Names template_values_;
  std::string system_;
  std::vector<chat::Value> messages_;
};

/// conversation/recommended.h, for options that were not given. `settings`: the target's, if they
/// were read.
std::vector<std::string> take_recommended(const std::filesystem::path& target,
                                          const po::variables_map& values, GenerateOptions& request,
                                          const GenerationSettings* settings = nullptr);

}  // namespace coppice::cli

// A generation as JSON, by the names that other programs read, and as a short table.
#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "coppice.h"

namespace coppice::cli {
/// Lists a model's layers as plans and statistics have them.
nlohmann::ordered_json to_json(const LayerPlacement& placement);

/// `engine` wrote it.
nlohmann::ordered_json to_json(Engine& engine, const Generation& generation, bool with_logprobs);
/// One line; what is no UTF-8 is replaced.
std::string json_line(const nlohmann::ordered_json& json);
std::string to_table(const Generation& generation);
/// A line of a table.
std::string table_line(const char* name, const std::string& value);
/// With so many digits behind the point.
std::string fixed(double number, int digits);
/// An accepted length over texts that may share passes, in words.
std::string accepted_of_texts(double length);
/// "dyspec, coupled, temperature 0.7 (draft 0.72), seed 2, cpu f32"
std::string as_used(const Used& used);
/// Device and types, the end of that.
std::string machine_of(const Used& used);
/// Token ids with commas between them, as --prompt-ids takes them.
std::string id_list(std::span<const TokenId> tokens);
/// That the context is full, and what makes room, if anything does.
std::string full_context(Engine& engine);
/// That a text reached its greatest length before its constraint ended it; "" for others.
std::string cut_short(const Generation& text);
/// What a text failed by, in words.
std::string message_of(const std::exception_ptr& error);

}  // namespace coppice::cli

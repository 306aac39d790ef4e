// Tree shapes in JSON files; shared by the formats that hold one.
#pragma once

#include <filesystem>
#include <string>

#include "base/json_file.h"
#include "drafting/static_tree.h"

namespace coppice {

/// Reads a file of one JSON object. Throws Error(failure) that names the file and the place.
JsonObject read_shape_file(const std::filesystem::path& file);
/// Writes the file in one step: it is the old one or the new one, never a part. Throws
/// Error(failure).
void write_shape_file(const std::filesystem::path& file, const nlohmann::ordered_json& json);

/// The shape under the key "paths". Throws Error(failure) that names `file` and the place in it.
TreeShape shape_from_json(const nlohmann::json& object, const std::string& file);
/// A path as it stands in a file, for messages; a long one is shortened.
std::string path_text(const RankPath& path);

}  // namespace coppice

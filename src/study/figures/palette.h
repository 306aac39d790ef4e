// Colours by what they are for, each in a light and a dark form.
//
// Wherever figures take a colour, it is either "#rrggbb", the same in light and dark, or the name
// of a role. Elements carry the light form as attributes, which every viewer of SVG reads, and a
// class for each role, by which dark_rules() gives them the dark form.
#pragma once

#include <string>
#include <string_view>

namespace coppice::study {

inline constexpr std::string_view paper = "paper";        ///< what figures stand on
inline constexpr std::string_view ink = "ink";            ///< text and axes
inline constexpr std::string_view soft_ink = "soft";      ///< reference lines, means
inline constexpr std::string_view grid_ink = "grid";      ///< faint lines across a plot
inline constexpr std::string_view rule_ink = "rule";      ///< frames, leaders
inline constexpr std::string_view strong_ink = "strong";  ///< bounds, lines over cells

struct PaletteColour {
  std::string_view role, light, dark;
};

/// The colour of a role; nullptr for "#rrggbb" and all else that is no role.
const PaletteColour* find_role(std::string_view name);

/// Style rules for readers who prefer the dark, on screens: all classes, of roles as fill ("fill-")
/// and as stroke ("line-"), and "turned", whose colours are turned over in lightness.
std::string dark_rules();

}  // namespace coppice::study

// Colours by what they are for, each in a light and a dark form; and scales of colours for maps.
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

/// Colour "#rrggbb" of a share in [0, 1] (clamped): from pale yellow by teal to dark blue. Equal
/// steps of the share are equal distances in OKLab (Ottosson, "A perceptual color space for image
/// processing", 2020); lightness falls all the way, so that the scale reads in grey and with any
/// colour vision.
std::string heat_colour(double share);

/// Colour "#rrggbb" of a share in [-1, 1] (clamped): orange below 0, nearly white at 0, blue above.
/// Both arms darken alike; orange and blue are told apart by any colour vision.
std::string diverging_colour(double share);

}  // namespace coppice::study

// Looks shared by all figures: type sizes, greys, and series told apart by colour, marker and dash.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::study {

class Svg;
struct Xy;

inline constexpr double tick_font = 12;
inline constexpr double label_font = 13;
inline constexpr double picture_margin = 14;  ///< pixels around what is drawn
inline constexpr double axis_width = 0.8;
inline constexpr double line_width = 1.6;

// Colours are "#rgb" or "#rrggbb".
inline constexpr std::string_view paper = "#fff";        ///< what figures stand on
inline constexpr std::string_view ink = "#222";          ///< text and axes
inline constexpr std::string_view soft_ink = "#777";     ///< reference lines
inline constexpr std::string_view grid_ink = "#e4e4e4";  ///< faint lines across a plot
inline constexpr std::string_view rule_ink = "#bbb";     ///< frames
inline constexpr std::string_view strong_ink = "#000";   ///< bounds, lines over cells

enum class Marker { none, circle, square, triangle, diamond, wedge, cross };

/// How a series is drawn.
struct SeriesStyle {
  std::string_view colour;
  std::string_view dash;
  Marker marker = Marker::none;
  bool open = false;  ///< markers are outlines
};

/// Style of the series with this number: six colours, each with a marker; numbers 6 to 11 repeat
/// the colours with other markers and dashes, and so on, so that series differ in grey too.
SeriesStyle series_style(std::size_t number);
/// The number of a policy's style, the same in all figures of all studies for coppice's own; a
/// policy with learned acceptance has the colour of its namesake. Others follow in the order of
/// `policies`.
std::size_t style_number(const std::string& policy, const std::vector<std::string>& policies);
/// A bound that nothing measured can pass, such as an oracle's.
SeriesStyle ceiling_style();
SeriesStyle reference_style();

void draw_marker(Svg& svg, const SeriesStyle& style, Xy at);

/// Fill of the area with this number, 0 to 5, neighbours well apart in lightness.
std::string_view area_colour(std::size_t number);
/// "#000" or "#fff", whichever reads better on the fill "#rrggbb".
std::string_view ink_on(std::string_view fill);

/// Colour "#rrggbb" of a share in [0, 1] (clamped): from pale yellow by teal to dark blue. Equal
/// steps of the share are equal distances to the eye; lightness falls all the way, so that the
/// scale reads in grey and with any colour vision.
std::string heat_colour(double share);

}  // namespace coppice::study

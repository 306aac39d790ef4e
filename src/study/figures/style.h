// Looks shared by all figures: type sizes, greys, and series told apart by colour, marker and dash.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "study/figures/svg.h"

namespace coppice::study {

inline constexpr double tick_font = 12;
inline constexpr double label_font = 13;
inline constexpr double picture_margin = 14;  ///< pixels around what is drawn
inline constexpr double axis_width = 0.8;
inline constexpr double line_width = 1.6;

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

/// Fill of the area with this number, neighbours well apart in lightness; later rounds are paler.
std::string area_colour(std::size_t number);
/// "#000" or "#fff", whichever reads better on the fill "#rrggbb".
std::string_view ink_on(std::string_view fill);

}  // namespace coppice::study

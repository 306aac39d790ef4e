// A minimal writer of SVG 1.1: the shapes that charts are made of, and the looks that all figures
// share: type sizes, greys, and series told apart by colour, marker and dash.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::study {

inline constexpr double tick_font = 12;
inline constexpr double label_font = 13;
inline constexpr double picture_margin = 14;  ///< pixels around what is drawn
inline constexpr double axis_width = 0.8;
inline constexpr double line_width = 1.6;

// Colours are "#rgb" or "#rrggbb". These have others in a dark window (dark_colours()).
inline constexpr std::string_view paper = "#fff";          ///< what figures stand on
inline constexpr std::string_view ink = "#222";            ///< text and axes
inline constexpr std::string_view soft_ink = "#777";       ///< reference lines
inline constexpr std::string_view grid_ink = "#e4e4e4";    ///< faint lines across a plot
inline constexpr std::string_view rule_ink = "#bbb";       ///< frames
inline constexpr std::string_view faint_fill = "#ececec";  ///< areas of what no longer counts

/// Rules of CSS by which a picture's greys suit a reader's dark window, where a browser shows it;
/// series keep their colours. Paper and other programs have the picture as its attributes say.
std::string dark_colours();

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
/// The number of a policy's style, the same in all figures of all studies; a policy with plain
/// values has the colour of its namesake. A name that no study has gets a number of its own.
std::size_t style_number(const std::string& policy);
SeriesStyle reference_style();

struct Xy {
  double x = 0;
  double y = 0;
};

/// A rectangle of the drawing, in pixels; y grows downwards, so top < bottom.
struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};

/// A line's look. An empty colour draws no line.
struct Stroke {
  std::string_view colour;
  double width = 1;
  std::string_view dash = {};  ///< lengths of dashes and gaps in pixels, "6 4"; empty: solid
};

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 13;
  Anchor anchor = Anchor::start;
  std::string_view colour = ink;
  bool upwards = false;  ///< turned by 90 degrees, to be read from below to above
};

/// Builds one picture of `width` by `height` pixels on paper, with dark_colours(). No element
/// carries an id, so that several pictures can share one HTML page. `label` is what screen readers
/// say.
class Svg {
 public:
  Svg(double width, double height, std::string_view label);

  void line(Xy from, Xy to, const Stroke& stroke);
  void polyline(std::span<const Xy> points, const Stroke& stroke);
  void polygon(std::span<const Xy> points, std::string_view fill, const Stroke& stroke = {});
  void rect(const Box& box, std::string_view fill, const Stroke& stroke = {});
  void circle(Xy centre, double radius, std::string_view fill, const Stroke& stroke = {});
  /// `at.y` is the baseline.
  void text(Xy at, std::string_view text, const TextStyle& style = {});

  /// Everything until close() belongs together; `tooltip` is shown by browsers, may be empty.
  void open_group(std::string_view tooltip);
  void close();

  /// The picture, a file of its own without an XML declaration. Call it once, with every group
  /// closed.
  std::string finish();

 private:
  struct Length;  // an attribute of an element
  void open(const char* element, std::initializer_list<Length> lengths);
  void points(std::span<const Xy> points);
  void paint(std::string_view fill, const Stroke& stroke);

  std::string out_;
};

void draw_marker(Svg& svg, const SeriesStyle& style, Xy at);

/// "#000" or "#fff", whichever reads better on the fill "#rrggbb".
std::string_view ink_on(std::string_view fill);

/// Colour "#rrggbb" of a share in [0, 1] (clamped): from pale yellow by teal to dark blue. Equal
/// steps of the share are equal distances to the eye; lightness falls all the way, so that the
/// scale reads in grey and with any colour vision.
std::string heat_colour(double share);

}  // namespace coppice::study

// A minimal writer of SVG 1.1: the shapes that charts are made of.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "study/figures/style.h"

namespace coppice::study {

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

/// Builds one picture of `width` by `height` pixels on paper. No element carries an id, so that
/// several pictures can share one HTML page. `label` is what screen readers say.
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

}  // namespace coppice::study

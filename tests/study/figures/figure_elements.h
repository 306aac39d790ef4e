// What tests look for in the elements of a figure.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "study/figures/svg.h"
#include "study/figures/text.h"
#include "study/figures/xml_reader.h"

namespace coppice::test {

using study::coordinate;
using study::tick_font;
using study::Xy;
using Elements = std::vector<XmlElement>;

inline constexpr double print_error = 0.011;  // of coordinates with two decimals

inline Elements named(const Elements& elements, const std::string& name) {
  Elements out;
  for (const XmlElement& e : elements) {
    if (e.name == name) out.push_back(e);
  }
  return out;
}

inline bool has_text(const Elements& elements, const std::string& text) {
  return std::any_of(elements.begin(), elements.end(),
                     [&](const XmlElement& e) { return e.name == "text" && e.text == text; });
}

// The tick label (y labels are anchored at their end).
inline XmlElement tick(const Elements& elements, const std::string& label, bool vertical) {
  for (const XmlElement& e : elements) {
    if (e.name == "text" && e.text == label && e.has("font-size", coordinate(tick_font)) &&
        e.has("text-anchor", vertical ? "end" : "middle")) {
      return e;
    }
  }
  ADD_FAILURE() << "no tick " << label;
  return {"text", {{"x", "0"}, {"y", "0"}}, "", 0};
}

inline double tick_x(const Elements& elements, const std::string& label) {
  return tick(elements, label, false).number("x");
}

inline double tick_y(const Elements& elements, const std::string& label) {
  return tick(elements, label, true).number("y") - 0.35 * tick_font;
}

// Rectangles of cells: inside a group that has a tooltip.
inline Elements cell_boxes(const Elements& elements) {
  Elements boxes;
  for (std::size_t i = 2; i < elements.size(); ++i) {
    if (elements[i].name == "rect" && elements[i - 1].name == "title") boxes.push_back(elements[i]);
  }
  return boxes;
}

// The points of a polyline or polygon.
inline std::vector<Xy> points_of(const XmlElement& element) {
  std::vector<Xy> points;
  const std::string& text = element.attributes.at("points");
  for (std::size_t at = 0; at < text.size();) {
    std::size_t used = 0;
    const double x = std::stod(text.substr(at), &used);
    at += used + 1;
    const double y = std::stod(text.substr(at), &used);
    at += used + 1;
    points.push_back({x, y});
  }
  return points;
}

}  // namespace coppice::test

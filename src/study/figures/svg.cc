#include "study/figures/svg.h"

#include "study/figures/text.h"

namespace coppice::study {
namespace {

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escape_markup(value) + "\"";
}

}  // namespace

struct Svg::Length {
  std::string_view name;
  double value;
};

void Svg::open(const char* element, std::initializer_list<Length> lengths) {
  out_ += '<';
  out_ += element;
  for (const Length& one : lengths) out_ += attribute(one.name, coordinate(one.value));
}

Svg::Svg(double width, double height, std::string_view label) {
  open("svg xmlns=\"http://www.w3.org/2000/svg\"", {{"width", width}, {"height", height}});
  out_ += attribute("viewBox", "0 0 " + coordinate(width) + " " + coordinate(height)) +
          attribute("role", "img") + attribute("stroke", "none") + attribute("aria-label", label) +
          attribute("font-family", "Helvetica, Arial, 'Liberation Sans', sans-serif") +
          ">\n<style>" + dark_colours() + "</style>\n";
  rect({0, 0, width, height}, paper);
}

void Svg::line(Xy from, Xy to, const Stroke& look) {
  open("line", {{"x1", from.x}, {"y1", from.y}, {"x2", to.x}, {"y2", to.y}});
  paint("", look);
  out_ += "/>\n";
}

void Svg::polyline(std::span<const Xy> corners, const Stroke& look) {
  open("polyline", {});
  points(corners);
  paint("none", look);
  out_ += attribute("stroke-linejoin", "round") + "/>\n";
}

void Svg::polygon(std::span<const Xy> corners, std::string_view colour, const Stroke& look) {
  open("polygon", {});
  points(corners);
  paint(colour, look);
  out_ += "/>\n";
}

void Svg::rect(const Box& box, std::string_view colour, const Stroke& look) {
  open("rect", {{"x", box.left}, {"y", box.top}, {"width", box.width()}, {"height", box.height()}});
  paint(colour, look);
  out_ += "/>\n";
}

void Svg::circle(Xy centre, double radius, std::string_view colour, const Stroke& look) {
  open("circle", {{"cx", centre.x}, {"cy", centre.y}, {"r", radius}});
  paint(colour, look);
  out_ += "/>\n";
}

void Svg::text(Xy at, std::string_view words, const TextStyle& style) {
  // Turned at the origin, then moved: some renderers turn around another point than they are told.
  const Xy start = style.upwards ? Xy{} : at;
  open("text", {{"x", start.x}, {"y", start.y}, {"font-size", style.size}});
  paint(style.colour, {});
  if (style.anchor != Anchor::start) {
    out_ += attribute("text-anchor", style.anchor == Anchor::middle ? "middle" : "end");
  }
  if (style.upwards) {
    out_ += attribute("transform",
                      "translate(" + coordinate(at.x) + " " + coordinate(at.y) + ") rotate(-90)");
  }
  out_ += ">" + escape_markup(words) + "</text>\n";
}

void Svg::open_group(std::string_view tooltip) {
  out_ += "<g>";
  if (!tooltip.empty()) out_ += "<title>" + escape_markup(tooltip) + "</title>";
  out_ += "\n";
}

void Svg::close() { out_ += "</g>\n"; }

std::string Svg::finish() {
  out_ += "</svg>\n";
  return std::move(out_);
}

void Svg::points(std::span<const Xy> corners) {
  std::string list;
  for (const Xy& corner : corners) {
    list += (list.empty() ? "" : " ") + coordinate(corner.x) + "," + coordinate(corner.y);
  }
  out_ += attribute("points", list);
}

void Svg::paint(std::string_view fill, const Stroke& stroke) {
  if (!fill.empty()) out_ += attribute("fill", fill);
  if (stroke.colour.empty()) return;
  out_ += attribute("stroke", stroke.colour) + attribute("stroke-width", coordinate(stroke.width));
  if (!stroke.dash.empty()) out_ += attribute("stroke-dasharray", stroke.dash);
}

}  // namespace coppice::study

#include "study/figures/svg.h"

#include "study/figures/text.h"

namespace coppice::study {

Svg::Svg(double width, double height, std::string_view label) {
  out_ = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
  attribute("width", width);
  attribute("height", height);
  attribute("viewBox", "0 0 " + coordinate(width) + " " + coordinate(height));
  attribute("role", "img");
  attribute("aria-label", label);
  attribute("font-family", "Helvetica, Arial, 'Liberation Sans', sans-serif");
  out_ += ">\n";
  rect({0, 0, width, height}, paper);
}

void Svg::line(Xy from, Xy to, const Stroke& look) {
  out_ += "<line";
  attribute("x1", from.x);
  attribute("y1", from.y);
  attribute("x2", to.x);
  attribute("y2", to.y);
  paint("", look);
  out_ += "/>\n";
}

void Svg::polyline(std::span<const Xy> corners, const Stroke& look) {
  out_ += "<polyline";
  points(corners);
  paint("none", look);
  attribute("stroke-linejoin", "round");
  out_ += "/>\n";
}

void Svg::polygon(std::span<const Xy> corners, std::string_view colour, double opacity,
                  const Stroke& look) {
  out_ += "<polygon";
  points(corners);
  if (opacity < 1) attribute("fill-opacity", opacity);
  paint(colour, look);
  out_ += "/>\n";
}

void Svg::rect(const Box& box, std::string_view colour, const Stroke& look) {
  out_ += "<rect";
  attribute("x", box.left);
  attribute("y", box.top);
  attribute("width", box.width());
  attribute("height", box.height());
  paint(colour, look);
  out_ += "/>\n";
}

void Svg::circle(Xy centre, double radius, std::string_view colour, const Stroke& look) {
  out_ += "<circle";
  attribute("cx", centre.x);
  attribute("cy", centre.y);
  attribute("r", radius);
  paint(colour, look);
  out_ += "/>\n";
}

void Svg::text(Xy at, std::string_view words, const TextStyle& style) {
  out_ += "<text";
  attribute("x", at.x);
  attribute("y", at.y);
  attribute("font-size", style.size);
  paint(style.colour, {});
  if (style.anchor != Anchor::start) {
    attribute("text-anchor", style.anchor == Anchor::middle ? "middle" : "end");
  }
  if (style.bold) attribute("font-weight", "bold");
  if (style.upwards) {
    attribute("transform", "rotate(-90 " + coordinate(at.x) + " " + coordinate(at.y) + ")");
  }
  out_ += ">" + escape_markup(words) + "</text>\n";
}

void Svg::open_group(std::string_view tooltip) {
  out_ += "<g>";
  if (!tooltip.empty()) out_ += "<title>" + escape_markup(tooltip) + "</title>";
  out_ += "\n";
  closers_ += 'g';
}

void Svg::open_turned() {
  out_ += "<g class=\"turned\">\n";
  closers_ += 'g';
}

// A nested picture cuts off without a clip path, which would need an id.
void Svg::open_clip(const Box& box) {
  out_ += "<svg";
  attribute("x", box.left);
  attribute("y", box.top);
  attribute("width", box.width());
  attribute("height", box.height());
  attribute("viewBox", coordinate(box.left) + " " + coordinate(box.top) + " " +
                           coordinate(box.width()) + " " + coordinate(box.height()));
  attribute("overflow", "hidden");
  out_ += ">\n";
  closers_ += 's';
}

void Svg::close() {
  out_ += closers_.back() == 'g' ? "</g>\n" : "</svg>\n";
  closers_.pop_back();
}

std::string Svg::finish() {
  out_ += "</svg>\n";
  return std::move(out_);
}

void Svg::attribute(std::string_view name, double value) { attribute(name, coordinate(value)); }

void Svg::attribute(std::string_view name, std::string_view value) {
  out_ += ' ';
  out_ += name;
  out_ += "=\"" + escape_markup(value) + "\"";
}

void Svg::points(std::span<const Xy> corners) {
  std::string list;
  for (const Xy& corner : corners) {
    if (!list.empty()) list += ' ';
    list += coordinate(corner.x) + "," + coordinate(corner.y);
  }
  attribute("points", list);
}

void Svg::paint(std::string_view fill, const Stroke& stroke) {
  std::string classes;
  const auto colour = [&](const char* name, const char* form, std::string_view wanted) {
    const PaletteColour* role = find_role(wanted);
    attribute(name, role == nullptr ? wanted : role->light);
    if (role != nullptr) classes += (classes.empty() ? "" : " ") + (form + std::string(wanted));
  };
  if (!fill.empty()) colour("fill", "fill-", fill);
  if (!stroke.colour.empty()) {
    colour("stroke", "line-", stroke.colour);
    attribute("stroke-width", stroke.width);
    if (!stroke.dash.empty()) attribute("stroke-dasharray", stroke.dash);
  }
  if (!classes.empty()) attribute("class", classes);
}

std::string stand_alone(std::string_view svg) {
  const std::size_t inside = svg.find('>') + 1;
  return std::string(svg.substr(0, inside)) + "\n<style>\n" + dark_rules() + "</style>" +
         std::string(svg.substr(inside));
}

}  // namespace coppice::study

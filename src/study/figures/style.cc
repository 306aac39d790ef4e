#include "study/figures/style.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace coppice::study {
namespace {

constexpr std::array<std::string_view, 6> line_colours = {"series0", "series1", "series2",
                                                          "series3", "series4", "series5"};
constexpr std::array<Marker, 6> markers = {Marker::circle, Marker::square, Marker::triangle,
                                           Marker::cross,  Marker::wedge,  Marker::diamond};
constexpr std::array<std::string_view, 4> dashes = {"", "7 3", "2 2", "7 2 2 2"};
constexpr std::array<std::string_view, 8> area_colours = {
    "#0072b2", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#56b4e9", "#d55e00", "#999999"};

struct Rgb {
  std::array<int, 3> channel;
};

Rgb parse(std::string_view colour) {
  Rgb rgb = {};
  for (std::size_t i = 0; i < 3; ++i) {
    const char* first = colour.data() + 1 + 2 * i;
    std::from_chars(first, first + 2, rgb.channel[i], 16);
  }
  return rgb;
}

// Relative luminance of WCAG 2.
double luminance(const Rgb& rgb) {
  static constexpr std::array<double, 3> weights = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double c = rgb.channel[i] / 255.0;
    sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

}  // namespace

SeriesStyle series_style(std::size_t number) {
  const std::size_t round = number / line_colours.size();
  const std::size_t place = number % line_colours.size();
  // Markers move on by three places, so that no two series of a colour share one.
  const std::size_t marker = (place + 3 * round) % markers.size();
  return {line_colours[place], dashes[round % dashes.size()], markers[marker]};
}

std::size_t style_number(const std::string& policy, const std::vector<std::string>& policies) {
  // Colours of the first six, then those again with dashes: a plain policy below its namesake.
  static constexpr std::array<std::string_view, 12> known = {"dyspec",
                                                             "sequoia",
                                                             "specinfer",
                                                             "chain",
                                                             "expand-rerank",
                                                             "dyspec-threshold",
                                                             "dyspec-plain",
                                                             "static",
                                                             "",
                                                             "",
                                                             "",
                                                             "dyspec-threshold-plain"};
  const auto place_of = [](std::string_view name) {
    return static_cast<std::size_t>(std::find(known.begin(), known.end(), name) - known.begin());
  };
  if (place_of(policy) < known.size()) return place_of(policy);
  std::size_t number = known.size();
  for (const std::string& other : policies) {
    if (other == policy) break;
    if (place_of(other) == known.size()) ++number;
  }
  return number;
}

SeriesStyle ceiling_style() { return {strong_ink, "6 4", Marker::none, false}; }
SeriesStyle reference_style() { return {soft_ink, "2 3", Marker::none, false}; }

void draw_marker(Svg& svg, const SeriesStyle& style, Xy at) {
  constexpr double r = 3.6;
  const std::string_view fill = style.open ? paper : style.colour;
  // A rim of paper parts markers that lie over each other; an open marker's rim is its colour.
  const Stroke rim = {style.open ? style.colour : paper, style.open ? 1.4 : 0.8};
  const auto polygon = [&](const std::vector<Xy>& corners) {
    std::vector<Xy> moved;
    for (const Xy& c : corners) moved.push_back({at.x + c.x * r, at.y + c.y * r});
    svg.polygon(moved, fill, 1, rim);
  };
  switch (style.marker) {
    case Marker::none:
      break;
    case Marker::circle:
      svg.circle(at, r, fill, rim);
      break;
    case Marker::square:
      polygon({{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}});
      break;
    case Marker::triangle:
      polygon({{0, -1.3}, {1.15, 0.8}, {-1.15, 0.8}});
      break;
    case Marker::wedge:
      polygon({{0, 1.3}, {1.15, -0.8}, {-1.15, -0.8}});
      break;
    case Marker::diamond:
      polygon({{0, -1.35}, {1.2, 0}, {0, 1.35}, {-1.2, 0}});
      break;
    case Marker::cross:
      polygon({{-0.4, -1.2},
               {0.4, -1.2},
               {0.4, -0.4},
               {1.2, -0.4},
               {1.2, 0.4},
               {0.4, 0.4},
               {0.4, 1.2},
               {-0.4, 1.2},
               {-0.4, 0.4},
               {-1.2, 0.4},
               {-1.2, -0.4},
               {-0.4, -0.4}});
      break;
  }
}

std::string area_colour(std::size_t number) {
  Rgb rgb = parse(area_colours[number % area_colours.size()]);
  const std::size_t round = number / area_colours.size();
  std::string out = "#";
  for (int channel : rgb.channel) {
    for (std::size_t i = 0; i < round && i < 3; ++i) channel = (channel + 255) / 2;
    static constexpr std::string_view digits = "0123456789abcdef";
    out += digits[static_cast<std::size_t>(channel / 16)];
    out += digits[static_cast<std::size_t>(channel % 16)];
  }
  return out;
}

std::string_view ink_on(std::string_view fill) {
  const double light = luminance(parse(fill));
  // White from a contrast ratio (WCAG 2) of 3.5 on: on saturated colours it reads better than black
  // well before the ratios say so.
  return 1.05 / (light + 0.05) >= 3.5 ? "#fff" : "#000";
}

}  // namespace coppice::study

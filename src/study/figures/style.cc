#include "study/figures/style.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

#include "study/figures/svg.h"

namespace coppice::study {
namespace {

constexpr std::array<std::string_view, 6> line_colours = {"series0", "series1", "series2",
                                                          "series3", "series4", "series5"};
constexpr std::array<Marker, 6> markers = {Marker::circle, Marker::square, Marker::triangle,
                                           Marker::cross,  Marker::wedge,  Marker::diamond};
constexpr std::array<std::string_view, 4> dashes = {"", "7 3", "2 2", "7 2 2 2"};
constexpr std::array<std::string_view, 6> area_colours = {"#0072b2", "#e69f00", "#009e73",
                                                          "#f0e442", "#cc79a7", "#56b4e9"};
// Colours of the first six, then those again with dashes: a plain policy below its namesake.
constexpr std::array<std::pair<std::string_view, std::size_t>, 9> known_policies = {
    {{"dyspec", 0},
     {"sequoia", 1},
     {"specinfer", 2},
     {"chain", 3},
     {"expand-rerank", 4},
     {"dyspec-threshold", 5},
     {"dyspec-plain", 6},
     {"static", 7},
     {"dyspec-threshold-plain", 11}}};
constexpr std::size_t first_unknown = 12;

// Relative luminance of WCAG 2, of "#rrggbb".
double luminance(std::string_view colour) {
  constexpr std::array<double, 3> weights = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    int channel = 0;
    const char* first = colour.data() + 1 + 2 * i;
    std::from_chars(first, first + 2, channel, 16);
    const double c = channel / 255.0;
    sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

// A marker's corners, in radii; none of a circle.
std::vector<Xy> corners_of(Marker marker) {
  switch (marker) {
    case Marker::square:
      return {{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}};
    case Marker::triangle:
      return {{0, -1.3}, {1.15, 0.8}, {-1.15, 0.8}};
    case Marker::wedge:
      return {{0, 1.3}, {1.15, -0.8}, {-1.15, -0.8}};
    case Marker::diamond:
      return {{0, -1.35}, {1.2, 0}, {0, 1.35}, {-1.2, 0}};
    case Marker::cross:
      return {{-0.4, -1.2}, {0.4, -1.2}, {0.4, -0.4}, {1.2, -0.4}, {1.2, 0.4},   {0.4, 0.4},
              {0.4, 1.2},   {-0.4, 1.2}, {-0.4, 0.4}, {-1.2, 0.4}, {-1.2, -0.4}, {-0.4, -0.4}};
    case Marker::none:
    case Marker::circle:
      break;
  }
  return {};
}

// Series: Okabe and Ito ("Color Universal Design", 2008), black and yellow left out; in the dark
// the same hues, lightened until each stands out from dark paper by 4.5 to 1 (WCAG 2).
constexpr std::array palette = {
    PaletteColour{paper, "#fff", "#16181b"},        PaletteColour{ink, "#222", "#e6e6e6"},
    PaletteColour{soft_ink, "#777", "#9da3aa"},     PaletteColour{grid_ink, "#e4e4e4", "#33373c"},
    PaletteColour{rule_ink, "#bbb", "#5b6168"},     PaletteColour{strong_ink, "#000", "#fff"},
    PaletteColour{"series0", "#0072b2", "#4ba3e3"}, PaletteColour{"series1", "#d55e00", "#f0813f"},
    PaletteColour{"series2", "#009e73", "#2fbf93"}, PaletteColour{"series3", "#cc79a7", "#e394c0"},
    PaletteColour{"series4", "#e69f00", "#f2b63f"}, PaletteColour{"series5", "#56b4e9", "#a6d8f7"},
};

using Triple = std::array<double, 3>;

// A path through OKLab: lightness falls evenly, hue turns from yellow by teal to blue, and chroma
// is what the sRGB gamut has room for along the way.
Triple lab_at(double t) {
  const double lightness = 0.945 - 0.625 * t;
  const double chroma = 0.062 + 0.125 * t * (1 - t) + 0.035 * t;
  const double hue = (105 + 165 * t) * std::numbers::pi / 180;
  return {lightness, chroma * std::cos(hue), chroma * std::sin(hue)};
}

double distance(const Triple& a, const Triple& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

// Matrices of Ottosson's definition.
Triple to_linear_srgb(const Triple& lab) {
  const auto cube = [](double v) { return v * v * v; };
  const double l = cube(lab[0] + 0.3963377774 * lab[1] + 0.2158037573 * lab[2]);
  const double m = cube(lab[0] - 0.1055613458 * lab[1] - 0.0638541728 * lab[2]);
  const double s = cube(lab[0] - 0.0894841775 * lab[1] - 1.2914855480 * lab[2]);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

constexpr std::size_t samples = 256;

// The path's parameter at equal shares of its length.
std::array<double, samples + 1> even_parameters() {
  constexpr std::size_t fine = 16 * samples;
  std::array<double, fine + 1> length = {};
  for (std::size_t i = 1; i <= fine; ++i) {
    const auto at = [](std::size_t k) { return lab_at(static_cast<double>(k) / fine); };
    length[i] = length[i - 1] + distance(at(i - 1), at(i));
  }
  std::array<double, samples + 1> parameters = {};
  for (std::size_t i = 0; i <= samples; ++i) {
    const double wanted = length[fine] * static_cast<double>(i) / samples;
    const auto found = std::lower_bound(length.begin(), length.end(), wanted) - length.begin();
    parameters[i] = static_cast<double>(std::min<std::ptrdiff_t>(found, fine)) / fine;
  }
  return parameters;
}

std::string to_hex(const Triple& lab) {
  std::string out = "#";
  for (const double linear : to_linear_srgb(lab)) {
    const double c = std::clamp(linear, 0.0, 1.0);
    const double coded = c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055;
    const auto byte = static_cast<std::size_t>(std::lround(255 * coded));
    static constexpr std::string_view digits = "0123456789abcdef";
    out += digits[byte / 16];
    out += digits[byte % 16];
  }
  return out;
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
  const auto find = [](const std::string& name) {
    return std::ranges::find(known_policies, name, [](const auto& one) { return one.first; });
  };
  if (const auto known = find(policy); known != known_policies.end()) return known->second;
  std::size_t number = first_unknown;
  for (const std::string& other : policies) {
    if (other == policy) break;
    if (find(other) == known_policies.end()) ++number;
  }
  return number;
}

SeriesStyle ceiling_style() { return {strong_ink, "6 4", Marker::none, false}; }
SeriesStyle reference_style() { return {soft_ink, "2 3", Marker::none, false}; }

void draw_marker(Svg& svg, const SeriesStyle& style, Xy at) {
  constexpr double radius = 3.6;
  const std::string_view fill = style.open ? paper : style.colour;
  // A rim of paper parts markers that lie over each other; an open marker's rim is its colour.
  const Stroke rim = {style.open ? style.colour : paper, style.open ? 1.4 : 0.8};
  if (style.marker == Marker::circle) svg.circle(at, radius, fill, rim);
  std::vector<Xy> corners = corners_of(style.marker);
  for (Xy& corner : corners) corner = {at.x + corner.x * radius, at.y + corner.y * radius};
  if (!corners.empty()) svg.polygon(corners, fill, 1, rim);
}

std::string_view area_colour(std::size_t number) {
  return area_colours[number % area_colours.size()];
}

std::string_view ink_on(std::string_view fill) {
  // White from a contrast ratio (WCAG 2) of 3.5 on: on saturated colours it reads better than black
  // well before the ratios say so.
  return 1.05 / (luminance(fill) + 0.05) >= 3.5 ? "#fff" : "#000";
}

const PaletteColour* find_role(std::string_view name) {
  const auto found =
      std::ranges::find_if(palette, [&](const PaletteColour& one) { return one.role == name; });
  return found == palette.end() ? nullptr : &*found;
}

std::string dark_rules() {
  std::string rules = "@media screen and (prefers-color-scheme: dark) {\n";
  for (const PaletteColour& one : palette) {
    const std::string role(one.role), dark(one.dark);
    rules += "  .fill-" + role + " { fill: " + dark + "; } .line-" + role + " { stroke: " + dark +
             "; }\n";
  }
  return rules + "  .turned { filter: invert(1) hue-rotate(180deg); }\n}\n";
}

std::string heat_colour(double share) {
  static const auto parameters = even_parameters();
  const double place = std::isnan(share) ? 0 : std::clamp(share, 0.0, 1.0) * samples;
  return to_hex(lab_at(parameters[std::lround(place)]));
}

std::string diverging_colour(double share) {
  const double s = std::isnan(share) ? 0 : std::clamp(share, -1.0, 1.0);
  const double hue = (s < 0 ? 55 : 250) * std::numbers::pi / 180;
  const double chroma = 0.13 * std::abs(s);
  return to_hex({0.96 - 0.44 * std::abs(s), chroma * std::cos(hue), chroma * std::sin(hue)});
}

}  // namespace coppice::study

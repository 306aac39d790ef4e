#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "study/figures/svg.h"

namespace coppice::study {
namespace {

// Okabe and Ito ("Color Universal Design", 2008), black and yellow left out.
constexpr std::array<std::string_view, 6> line_colours = {"#0072b2", "#d55e00", "#009e73",
                                                          "#cc79a7", "#e69f00", "#56b4e9"};
constexpr std::array<Marker, 6> markers = {Marker::circle, Marker::square, Marker::triangle,
                                           Marker::cross,  Marker::wedge,  Marker::diamond};
constexpr std::array<std::string_view, 4> dashes = {"", "7 3", "2 2", "7 2 2 2"};
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
constexpr std::size_t first_unnamed = 12;

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> on_dark = {
    {{paper, "#15171a"},
     {ink, "#e3e3e3"},
     {soft_ink, "#a5a9ad"},
     {grid_ink, "#33373b"},
     {rule_ink, "#5a5f64"},
     {faint_fill, "#2b2f33"}}};

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

// At equal distances in OKLab (Ottosson 2020) along a path within sRGB: lightness falls evenly from
// 0.945 to 0.32 while the hue turns from yellow to blue.
constexpr std::array<std::string_view, 17> heat_stops = {
    "#f2f0c0", "#dde6b0", "#c5dda3", "#abd39b", "#90ca96", "#73c094",
    "#55b594", "#33aa95", "#009e96", "#009196", "#008395", "#007593",
    "#00668e", "#005887", "#07497d", "#193b71", "#202d64"};

/// Channels of "#rrggbb".
std::array<int, 3> channels_of(std::string_view colour) {
  std::array<int, 3> channels{};
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const char* first = colour.data() + 1 + 2 * i;
    std::from_chars(first, first + 2, channels[i], 16);
  }
  return channels;
}

// Relative luminance of WCAG 2, of "#rrggbb".
double luminance(std::string_view colour) {
  constexpr std::array<double, 3> weights = {0.2126, 0.7152, 0.0722};
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double c = channels_of(colour)[i] / 255.0;
    sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

}  // namespace

std::string dark_colours() {
  std::string rules = "@media screen and (prefers-color-scheme: dark) {";
  for (const auto& [light, dark] : on_dark) {
    // White words on a tile stay white.
    rules += cat(light == paper ? " :not(text)" : " ", "[fill=\"", light, "\"] { fill: ", dark,
                 "; } [stroke=\"", light, "\"] { stroke: ", dark, "; }");
  }
  return rules + " }";
}

SeriesStyle series_style(std::size_t number) {
  const std::size_t round = number / line_colours.size();
  const std::size_t place = number % line_colours.size();
  // Markers move on by three places, so that no two series of a colour share one.
  const std::size_t marker = (place + 3 * round) % markers.size();
  return {line_colours[place], dashes[round % dashes.size()], markers[marker]};
}

std::size_t style_number(const std::string& policy) {
  const auto known =
      std::ranges::find(known_policies, policy, [](const auto& one) { return one.first; });
  return known == known_policies.end() ? first_unnamed : known->second;
}

SeriesStyle reference_style() { return {soft_ink, "2 3", Marker::none, false}; }

void draw_marker(Svg& svg, const SeriesStyle& style, Xy at) {
  constexpr double radius = 3.6;
  const std::string_view fill = style.open ? paper : style.colour;
  // A rim of paper parts markers that lie over each other; an open marker's rim is its colour.
  const Stroke rim = {style.open ? style.colour : paper, style.open ? 1.4 : 0.8};
  if (style.marker == Marker::circle) svg.circle(at, radius, fill, rim);
  std::vector<Xy> corners = corners_of(style.marker);
  for (Xy& corner : corners) corner = {at.x + corner.x * radius, at.y + corner.y * radius};
  if (!corners.empty()) svg.polygon(corners, fill, rim);
}

std::string_view ink_on(std::string_view fill) {
  // White from a contrast ratio (WCAG 2) of 3.5 on: on saturated colours it reads better than black
  // well before the ratios say so.
  return 1.05 / (luminance(fill) + 0.05) >= 3.5 ? "#fff" : "#000";
}

std::string heat_colour(double share) {
  const double place =
      std::isnan(share) ? 0 : std::clamp(share, 0.0, 1.0) * (heat_stops.size() - 1.0);
  const auto before = static_cast<std::size_t>(place);
  const auto a = channels_of(heat_stops[before]);
  const auto b = channels_of(heat_stops[std::min(before + 1, heat_stops.size() - 1)]);
  std::array<char, 8> out{};
  const auto mixed = [&](std::size_t i) {
    return static_cast<unsigned>(
        std::lround(a[i] + (place - static_cast<double>(before)) * (b[i] - a[i])));
  };
  std::snprintf(out.data(), out.size(), "#%02x%02x%02x", mixed(0) & 255, mixed(1) & 255,
                mixed(2) & 255);
  return out.data();
}

}  // namespace coppice::study

#include "study/figures/palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace coppice::study {
namespace {

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

const PaletteColour* find_role(std::string_view name) {
  const auto found = std::find_if(palette.begin(), palette.end(),
                                  [&](const PaletteColour& one) { return one.role == name; });
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
  return to_hex(lab_at(parameters[static_cast<std::size_t>(std::lround(place))]));
}

std::string diverging_colour(double share) {
  const double s = std::isnan(share) ? 0 : std::clamp(share, -1.0, 1.0);
  const double hue = (s < 0 ? 55 : 250) * std::numbers::pi / 180;
  const double chroma = 0.13 * std::abs(s);
  return to_hex({0.96 - 0.44 * std::abs(s), chroma * std::cos(hue), chroma * std::sin(hue)});
}

}  // namespace coppice::study

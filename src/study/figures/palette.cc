#include "study/figures/palette.h"

#include <algorithm>
#include <array>

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

}  // namespace coppice::study

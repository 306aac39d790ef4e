// Colour scales for heat maps: one that rises, and one that parts around a middle.
#pragma once

#include <string>

namespace coppice::study {

/// Colour "#rrggbb" of a share in [0, 1] (clamped): from pale yellow by teal to dark blue. Equal
/// steps of the share are equal distances in OKLab (Ottosson, "A perceptual color space for image
/// processing", 2020); lightness falls all the way, so that the scale reads in grey and with any
/// colour vision.
std::string heat_colour(double share);

/// Colour "#rrggbb" of a share in [-1, 1] (clamped): orange below 0, nearly white at 0, blue above.
/// Both arms darken alike; orange and blue are told apart by any colour vision.
std::string diverging_colour(double share);

}  // namespace coppice::study

// What quantise() searches for: scales, minima and zeros of groups, many groups at a time.
#pragma once

#include <cstddef>

namespace coppice::cpu {

/// x is about scale q - minimum, minimum at least 0.
struct AffineFit {
  float scale = 0.0f, minimum = 0.0f;
};

/// x is about scale (q - zero), zero whole.
struct GridFit {
  float scale = 0.0f, zero = 0.0f;
};

// x: `groups` groups, one after the other, all numbers finite. Sums of a group are added up one
// after the other, so that every processor finds the same.

/// Groups of 32, q from 0 to 15: of steps somewhat wider and narrower than the range asks for, the
/// one whose best line has the least squares, weighted by magnitude.
void fit_affine(const float* x, std::size_t groups, AffineFit* fits);

/// Groups of 16, q from -32 to 31: the scale that serves best, weighted by magnitude.
void fit_scales(const float* x, std::size_t groups, float* scales);

/// Groups of 32, q from 0 to 15: of steps as above, each with the two zeros next to the range's
/// own, the one whose best scale has the least squares.
void fit_grids(const float* x, std::size_t groups, GridFit* fits);

}  // namespace coppice::cpu

#include "drafting/acceptance_model.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

// Information of the start's c[0] and of its other coefficients, by log loss on texts of the
// shipped pair and of one with half its acceptance.
constexpr OnlineLogistic::Coefficients start_information = {3.0, 60.0, 60.0};

}  // namespace

AcceptanceModel::AcceptanceModel(const Start& start)
    : classes_{OnlineLogistic{start[0], start_information},
               OnlineLogistic{start[1], start_information},
               OnlineLogistic{start[2], start_information}} {}

void AcceptanceModel::start_from(const AcceptanceModel& others) {
  for (std::size_t k = 0; k < classes_.size(); ++k) classes_[k].start_from(others.classes_[k]);
}

void AcceptanceModel::fade(double left) {
  for (OnlineLogistic& of : classes_) of.fade(left);
}

std::size_t AcceptanceModel::class_of(std::int32_t rank) {
  return static_cast<std::size_t>(std::min(rank, 2));
}

AcceptanceModel::Coefficients AcceptanceModel::features(double share, double u) {
  return {1.0, log_odds(share), u > 0.0 ? -u - std::log(u) : 0.0};
}

double AcceptanceModel::chance(std::int32_t rank, double share, double u) const {
  return classes_[class_of(rank)].chance(features(share, u));
}

void AcceptanceModel::observe(std::int32_t rank, double share, bool accepted, double u) {
  classes_[class_of(rank)].observe(features(share, u), accepted);
}

}  // namespace coppice

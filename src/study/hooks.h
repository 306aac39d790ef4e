// What whoever waits for a study, an audit or advice is told, and says.
#pragma once

#include <functional>
#include <string>

namespace coppice::study {

struct StudyHooks {
  /// What is being done, and how far it is, 0 to 1.
  std::function<void(const std::string& what, double fraction)> progress;
  std::function<bool()> stop;  ///< asked again and again; true ends the work early

  void tell(const std::string& what, double done, double all = 1.0) const {
    if (progress) progress(what, done / all);
  }
  bool stopped() const { return stop && stop(); }
};

}  // namespace coppice::study

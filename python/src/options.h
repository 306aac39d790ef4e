// Python's dictionaries as the structs of coppice_c.h, with what these point to.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "handles.h"
#include "policy.h"

namespace coppice_python {

/// Texts that members point to; they stay where they are.
using Texts = std::deque<std::string>;

/// Throws TypeError for a name that there is not, and for a value of another type.
class EngineSettings {
 public:
  explicit EngineSettings(const nb::dict& given);
  EngineSettings(const EngineSettings&) = delete;
  const coppice_engine_options* get() const { return &options_; }

 private:
  static void report(void* self, const char* what, double fraction);

  coppice_engine_options options_;
  Texts texts_;
  nb::object progress_;
};

/// A request: prompt (str) or tokens, n, sequence, listened (whether anybody hears of its pieces),
/// and options (a dictionary).
class RequestSettings {
 public:
  explicit RequestSettings(const nb::dict& given);
  RequestSettings(const RequestSettings&) = delete;
  const coppice_request* get() const { return &request_; }
  bool has_sequence() const { return sequence_ != nullptr; }
  bool listened() const { return listened_; }
  /// What a policy of one's own raised first; None.
  nb::object policy_failure() const { return policy_ == nullptr ? nb::none() : policy_->failure(); }
  void listen(coppice_piece_callback on_piece, void* user) {
    request_.on_piece = on_piece;
    request_.user = user;
  }

 private:
  void read_options(const nb::dict& given);

  coppice_request request_;
  coppice_generate_options options_;
  Texts texts_;
  std::string prompt_;
  std::vector<const char*> stop_;
  std::vector<std::int32_t> tokens_, widths_, stop_tokens_, bias_tokens_;
  std::vector<double> acceptance_vector_, biases_;
  double draft_temperature_ = 0.0;
  ConstraintHandle constraint_;
  std::shared_ptr<coppice_sequence> sequence_;
  std::unique_ptr<OwnPolicy> policy_;
  bool listened_ = false;
};

}  // namespace coppice_python

// An audit's report, for people and for programs.
#pragma once

#include <string>

#include "study/audit/audit.h"

namespace coppice::study {

/// Plain text of several lines. `engine` shows tokens as text where it has a tokenizer.
std::string to_text(const AuditReport& report, const Engine& engine);
/// One JSON object in one line.
std::string to_json(const AuditReport& report);

}  // namespace coppice::study

// What the commands about studies print.
#pragma once

#include <string>

#include "study/study.h"

namespace coppice::cli {

/// What --format names.
enum class TableFormat { text, latex, csv };
const char* name_of(TableFormat format);
/// Throws Error(usage) for another name.
TableFormat table_format(const std::string& name);

/// As text, tables for a terminal with what their columns mean; else all tables, each after a line
/// with its name that is a comment there.
std::string tables_text(const study::StudyOutcome& outcome, TableFormat format);
std::string tables_text(const study::StudyComparison& comparison, TableFormat format);

}  // namespace coppice::cli

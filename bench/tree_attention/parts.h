// The parts of the program; each prints its tables and adds to the report.
#pragma once

#include "report.h"

namespace coppice::bench {

/// The cells of anchors.csv against the existing kernels, the bounds and the targets.
void run_verify_table(Bench& bench);
void run_decode_table(Bench& bench);
void run_prefill_table(Bench& bench);
/// Several texts in a pass, apart and with shared levels.
void run_forest_table(Bench& bench);
/// Windows, soft caps and heads of other sizes, by this device's kernel and by the portable one.
void run_rule_table(Bench& bench);
/// What the host spends before the first kernel of a pass.
void run_planning_table(Bench& bench);
/// DeFT's ways of cutting the work, against each other, at its sizes and over shared levels.
void run_paper_table(Bench& bench);
/// Divisions of the work into ranges, against a bound and against each other.
void run_division_table(Bench& bench);
/// DySpec's orders of a tree's nodes.
void run_order_table(Bench& bench);
void run_chunk_table(Bench& bench);
/// Page sizes and orders.
void run_page_table(Bench& bench);
/// When the blocks of the kernel that takes ranges get where.
void run_phase_table(Bench& bench);

}  // namespace coppice::bench

// Every tuned number of automatic sizes, with where it comes from. README.md has the theory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice {

struct SizingConstants {
  // Prices that no table holds.

  /// What a speculative step costs beside the models' passes: drawing, ordering, planning,
  /// accepting. Measured on the shipped pair (bench/generate).
  static constexpr double step_overhead_seconds = 15e-6;
  /// What a node costs beside its row of the passes: heap, order, results from the device.
  /// About the slope of that overhead.
  static constexpr double node_seconds = 2e-6;

  /// Rows up to which passes of a split target are run at load, and of those with a long prefix.
  static constexpr std::int32_t most_warmed_rows = 256, most_warmed_far_rows = 32;

  // What is learned.

  /// Discount, per speculative step, of the tokens and seconds whose ratio is the present rate, and
  /// of the surplus: 25 steps are a paragraph, over which the rate of a text is about steady.
  static constexpr double discount = 0.96;
  /// How far the clock may be from the table, as the spread of a logarithm: for the whole machine
  /// (others use it, its frequency changes), for a kind of work, and for a number of rows; how
  /// alike the latter are from one row count to the next. By judgement, from what tables measured
  /// at load were off by.
  static constexpr double machine_spread = 0.5, work_spread = 0.5, rows_spread = 0.25;
  static constexpr double rows_alike = 0.8;
  /// Spread of the machine at first: a table has been measured, or checked, just now.
  static constexpr double first_machine_spread = 0.2;
  /// Steps until one is as uncertain as at first, but for a third.
  static constexpr double machine_memory = 100.0, work_memory = 2000.0;
  /// Spread of single passes: at first, at least, and the weight of one pass in it. A pass that was
  /// interrupted counts as so many times the usual at most.
  static constexpr double first_noise = 0.2, least_noise = 0.1, noise_weight = 0.03;
  static constexpr double most_clock_step = 8.0;
  /// A step in which its thread had its processor for less than this share was disturbed; up to so
  /// many of them in a row are not looked at.
  static constexpr double least_share_run = 0.95;
  static constexpr std::int32_t most_disturbed = 16;
  /// Standard deviations of a single pass that its surprise may move what is known.
  static constexpr double surprise = 3.0;
  /// One in so many speculative steps prices what was not seen lately lower, by this many standard
  /// deviations: enough to find out a price that is twice too high.
  static constexpr std::int32_t optimism_every = 32;
  static constexpr double optimism = 3.0;

  /// Several texts decode plainly for a step if what that costs may be further off than this: all
  /// that speculation wins or loses is held against it, and one step says enough.
  static constexpr double unseen = 0.2;

  /// Depth of the chain by which the speeds of texts are compared, and steps of a text of whose
  /// draft all texts' steps say more than its own.
  static constexpr std::int32_t usual_chain = 3, others_know_better = 8;
  /// Weight of a token of a text that is as far behind the others as counts, or ahead. Batches of
  /// 4 to 64 texts ended 1 to 5% sooner than with twice as much or half of it.
  static constexpr double most_behind = 4.0;

  // When to stop, and to try again.

  /// Tokens that speculation may lose against plain decoding before it is given up: the cost of
  /// about three wasted steps.
  static constexpr double tolerated_loss = 3.0;
  /// Plain steps until it is tried again: doubling, so that a useless draft costs at most about
  /// (tolerated loss) / (longest wait), 1%, of the text.
  static constexpr std::int32_t first_wait = 8, longest_wait = 256;
  /// Among other texts, who does not speculate tries again after this many steps at least, and at
  /// steps of the engine whose number is a multiple of it: together, for the first rows in a bucket
  /// of the matrix products are dear to whoever opens it alone.
  static constexpr std::int32_t retry_every = 32;
  /// Steps in a row whose draft pass found nothing worth a row: prices are against it for now.
  static constexpr std::int32_t most_barren = 3;
  /// A draft that gave the prompt's tokens less than this on average is not tried at once, but
  /// after so many plain steps; random drafts stay below it, drafts that pay far above. Any other
  /// may lose the credit, in tokens, before its luck counts against it.
  static constexpr double useless_likelihood = 0.02, first_credit = 3.0;
  static constexpr std::int32_t useless_wait = 160;

  // Whether a text among others has its draft begin (draft_start_policy.h).

  /// Judged children that what was learned of them outlasts, and how many of them what is usual
  /// counts for; steps after which their acceptance counts as known.
  static constexpr double acceptance_memory = 500.0, usual_weight = 2.0, known_steps = 8.0;
  /// Depth of the longest chain that is looked at, and a chance that leaves little to doubt.
  static constexpr std::int32_t most_chain_expected = 8;
  static constexpr double nearly_sure = 0.95;
  /// Plain steps of a whole batch that the prices count for, and that what texts have won outlasts:
  /// if it spoke against them in error, they have the last word again after a dozen answers.
  static constexpr double gain_prior = 32.0, gain_memory = 1024.0;
  /// Passes over prompts that what is known of them outlasts, and plain tokens' time that the table
  /// counts for.
  static constexpr double prefill_memory = 50.0, usual_prefill = 4.0;
  /// Share of the tokens left that a draft's prefill may cost so that nobody is sent ahead; that it
  /// may be expected to lose; and that probes may.
  static constexpr double cheap_prefill = 0.02, tolerated_share = 0.005, probing_share = 1.0 / 256;
  /// Tokens that a text is taken to write at most: it may end early.
  static constexpr std::int32_t tokens_ahead = 512;
  /// Tokens of all that a probe's step may cost: others wait for its draft's passes.
  static constexpr double probing_loss = 2.0;
  /// Probes of a batch whose acceptance is not known: one, or one in so many texts.
  static constexpr std::int32_t texts_per_probe = 16;

  // How far trees are priced.

  /// Nodes of the largest tree, beyond which a row costs what the last one does; tokens of a chain;
  /// and so many times the largest tree that a text has had. (Pricing 256 sizes takes 20 us.)
  static constexpr std::int32_t most_priced = 2048, longest_chain = 32, priced_ahead = 2;
  /// Steps between fixing prices anew, once the first ones have been made.
  static constexpr std::int32_t price_every = 4, first_prices = 4;

  // Which acceptance rule (rule_choice.h): coupled over rejection, as a logarithm.

  /// Gain of the tokens per second, for each doubling of the tree, and the tree at which both bring
  /// the same: fitted to trees of 2 to 64 nodes of the shipped pair and of one with a weaker draft,
  /// at temperatures 0.6 to 1 (README.md).
  static constexpr double gain_per_doubling = 0.02, even_nodes = 10.0;
  /// How far pairs differ from that, and single texts from one another, as standard deviations.
  static constexpr double gain_spread = 0.05, text_spread = 0.25;
  /// One text in so many takes the other rule, until the better one is so many deviations ahead:
  /// at a difference of 4%, this costs 0.25%.
  static constexpr std::int32_t explore_every = 16;
  static constexpr double sure = 2.0;
  /// Steps of a text that says anything of a rule, and texts in them, on average, at most.
  static constexpr std::int64_t least_steps = 8;
  static constexpr double most_company = 1.1;

  /// Automatic lookup under rejection: a draft's pass of a row costs at least this of a plain one.
  /// Tokens per second with lookup over those without, at temperature 0.7: 0.97 where it costs 0.03
  /// (7B and 68M on an H200), 1.03 to 1.05 where it costs 0.15 and more (the shipped pair).
  /// Between them nothing was measured.
  static constexpr double least_draft_beside_lookup = 1.0 / 16;

  // How costs are measured.

  /// Budget of a first start: seconds granted; if models are large, so many passes, up to the most.
  static constexpr double budget_seconds = 0.4, budget_passes = 250.0, most_budget_seconds = 1.5;
  /// At least so many rounds; then until a round takes less than this share off the least times, or
  /// the budget is spent. A round that takes more than `disturbed` off says that others were
  /// disturbed: it then goes on, up to `patience` times the budget.
  static constexpr std::int32_t least_rounds = 3;
  static constexpr double steady = 0.002, disturbed = 0.03, patience = 2.0;
  /// Prefix lengths: 1, and this or what the context allows.
  static constexpr std::int32_t long_prefix = 512, least_context = 8;
  /// Passes of the draft before each of the target, as in a step; the caches' time to settle on
  /// plain decoding.
  static constexpr int draft_passes_before = 3;
  static constexpr double settling_seconds = 0.006;

  // When a kept table is measured anew.

  /// Costs against one another further apart than this, all of them further off, or no agreement
  /// within so many seconds. Sizes depend on ratios; the clock corrects what is common.
  static constexpr double most_apart = 1.4, most_off = 2.0, check_seconds = 0.06;
  /// Starts at which a kept table did not hold, in a row, until it is given up.
  static constexpr std::int32_t most_doubts = 3;
  /// Tables in the user's cache folder.
  static constexpr std::size_t most_tables = 100;
};

}  // namespace coppice

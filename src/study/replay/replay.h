// Policies, sizes and acceptance rules judged anew over recorded distributions, without the models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/distributions.h"
#include "coppice.h"
#include "drafting/grow.h"
#include "drafting/lookup.h"
#include "drafting/policy.h"
#include "engine/tree_plan.h"
#include "study/figures/table.h"
#include "study/replay/recording.h"
#include "study/statistics.h"
#include "verify/verifier.h"

namespace coppice::study {

// A recorded text in the place of the models: what policies and acceptance rules read.

/// A node of a recording: a position of its text, and a node around it. Negative: not recorded.
struct RecordedPlace {
  std::int32_t position = -1;
  std::int32_t node = -1;
  bool recorded() const { return position >= 0; }
};

/// Tokens of a replayed tree are not vocabulary entries: a child of a node is named by its entry
/// there, 0, 1, ..., and three more stand for all tokens that were not recorded, which are never
/// drawn: one that D and T have alike (the overlap), one that D alone has, one that T alone has. So
/// masses, and that of max(T - D, 0), are the recorded node's own. The mass of max(T - c D, 0) for
/// larger c, which judges third and later children, is then at most too large.
///
/// This is how many tokens the largest node has.
inline std::int64_t local_vocabulary(const Recording& recording) { return recording.widest() + 3; }

/// The draft, out of a recording.
class RecordedDraft final : public TextDraft {
 public:
  /// `vocab_size`: local_vocabulary().
  explicit RecordedDraft(std::int64_t vocab_size) : distributions_(0, vocab_size) {}

  /// Token of a child that stands for one that is not on record.
  static constexpr TokenId stand_in = -1;
  static bool is_stand_in(const TokenTree& tree, std::int32_t node) {
    return node > 0 && tree.token[node] == stand_in;
  }

  /// Starts a step at a position of a text, which must outlive the step. `stand_ins`: children
  /// that are not on record are drawn as stand-ins, below which all are, so that a tree whose shape
  /// is fixed gets the size and takes the passes that it would have had. They cannot be judged.
  /// `drafts`: false: it draws nothing and takes no passes, but says where nodes are.
  void begin(const RecordedText& text, std::int32_t position, AcceptanceRule draw, bool stand_ins,
             bool drafts = true);
  void evaluate(const TokenTree& candidates, std::span<const std::int32_t> nodes) override;
  std::optional<DrawnChild> child(const TokenTree& candidates, std::int32_t node,
                                  std::int32_t rank) override;
  void exclude(std::int32_t node, TokenId token) override { excluded_.push_back({node, token}); }
  /// Of what is on record.
  double expected_share(std::int32_t node) override;

  RecordedPlace root() const { return {start_, 0}; }
  /// Where the child with this token leads.
  RecordedPlace place_below(RecordedPlace parent, TokenId local_token) const;
  /// Returns the place of an evaluated node, by candidate.
  RecordedPlace place(std::int32_t node) const { return nodes_[node].place; }
  /// Of any node of the candidate tree.
  RecordedPlace place_in(const TokenTree& candidates, std::int32_t node) const;
  /// The vocabulary's token for a node's child that is named `local_token`, -1 for a stand-in; and
  /// the other way round, -1 where it is not on record.
  TokenId token_of(RecordedPlace parent, TokenId local_token) const;
  TokenId local_token(RecordedPlace parent, TokenId token) const;
  /// Something was wanted below a node that is not on record, or an entry of one that is.
  void note_shortfall(std::int32_t node);
  bool evaluated(std::int32_t node) const {
    return std::cmp_less(node, nodes_.size()) && nodes_[node].evaluated;
  }
  const RecordedPosition& position(RecordedPlace place) const {
    return text_->positions[place.position];
  }

  /// D over the local vocabulary, of those nodes that it was written for.
  const DistributionTable& distributions() const { return distributions_; }
  /// Writes D of an evaluated and recorded node, unless this step has done so already. Of a grown
  /// tree's nodes few are judged.
  void write_distribution(std::int32_t node);
  /// Candidates below which growth wanted others that were not recorded.
  std::span<const std::int32_t> shortfalls() const { return shortfalls_; }
  /// Whether a node's children were not recorded (RecordingHeader::nodes are too few), and whether
  /// only the first of a node's were (RecordingHeader::top_k).
  bool lacks_nodes() const { return lacks_nodes_; }
  bool lacks_entries() const { return lacks_entries_; }
  std::int32_t passes() const { return passes_; }  ///< of this step

 private:
  struct Node {
    RecordedPlace place;
    std::span<const ChildTable::Child> children;  ///< none where it is not recorded
    std::size_t drawn = 0;                        ///< of these
    bool evaluated = false;
  };

  const ChildTable& children_of(const RecordedPosition& position) const {
    return draw_ == AcceptanceRule::rejection ? position.sampled : position.settled;
  }
  bool has_others(std::int32_t node) const;
  bool is_excluded(std::int32_t node, TokenId token) const {
    return std::ranges::find(excluded_, std::pair(node, token)) != excluded_.end();
  }

  DistributionTable distributions_;
  const RecordedText* text_ = nullptr;
  std::int32_t start_ = 0;
  AcceptanceRule draw_ = AcceptanceRule::rejection;
  bool stand_ins_ = false, drafts_ = true;
  std::vector<Node> nodes_;                                 ///< by candidate
  std::vector<std::pair<std::int32_t, TokenId>> excluded_;  ///< node and local token
  std::vector<std::int32_t> shortfalls_;
  bool lacks_nodes_ = false, lacks_entries_ = false;
  std::int32_t passes_ = 0;
};

/// The target, out of a recording, at the nodes of a tree that was grown from `draft`. At a node
/// that is not recorded it gives a distribution of a token that no child is: what ends there has
/// the right length, but its bonus token means nothing.
class RecordedTarget final : public TargetSource {
 public:
  explicit RecordedTarget(std::int64_t vocab_size, RecordedDraft& draft)
      : draft_(draft), probs_(static_cast<std::size_t>(vocab_size)) {}
  /// `tree` must outlive its judging.
  void begin(const TokenTree& tree) { tree_ = &tree; }
  /// T, and in the draft's table the node's D, if it may have children: rules look at D only where
  /// they have asked for T.
  std::span<const float> distribution(std::int32_t node) override;
  TokenId argmax(std::int32_t node) override;
  RecordedPlace place(std::int32_t node) const;

 private:
  TokenId none() const { return static_cast<TokenId>(probs_.size()) - 1; }

  RecordedDraft& draft_;
  std::vector<float> probs_;
  const TokenTree* tree_ = nullptr;
};

/// What lookup proposes in a replayed text: that of a run, as far as it is on record.
class RecordedLookup final : public Proposer {
 public:
  explicit RecordedLookup(RecordedDraft& draft) : draft_(draft) {}
  /// Begins a walk over a text, which must outlive it.
  void start(const RecordedText& text);
  /// The next step is at this position, no earlier than the last one.
  void follow(std::int32_t position);
  void begin() override;
  std::optional<Proposal> next(const TokenTree& candidates, std::int32_t node,
                               TokenId but) override;
  /// Learns from a judged tree.
  void record(const TokenTree& tree, std::span<const std::int32_t> path);

 private:
  void name_nodes(const TokenTree& candidates);

  RecordedDraft& draft_;
  LookupProposer lookup_;
  std::vector<TokenId> tokens_;  ///< prompt and text
  std::int32_t prompt_ = 0, length_ = 0;
  TokenTree named_;  ///< the candidate tree, its tokens those of the vocabulary
};

// Steps over it.

struct ReplayedStep {
  std::int32_t position = 0;         ///< of the recorded text
  std::int32_t accepted_length = 1;  ///< the bonus token included
  /// As a run's where the policy's shape is fixed, whatever is on record; else of what could be
  /// grown.
  std::int32_t tree_size = 0;
  std::int32_t looked_up = 0, looked_up_accepted = 0;  ///< of what could be grown
  std::int32_t draft_passes = 0;
  bool complete = true;        ///< growth asked for nothing that was not recorded
  bool lacks_nodes = false;    ///< it asked for nodes beyond those recorded at a position
  bool lacks_entries = false;  ///< it asked for children beyond those recorded of a node
  bool ended_short = false;    ///< the accepted path ended where it asked for more
};

/// Replays texts under one setting. What grows trees and what judges them is what an engine uses:
/// make_policy() and the rules of verify/verifier.h, over a RecordedDraft and a RecordedTarget.
///
/// A step at position t that accepts L tokens (bonus included) is followed by one at t + L. The
/// first is at position 1: a text's first token comes with its prompt and is no step's. Only where
/// the prompt is a single token is there nothing for it to come with, and the first step is at 0.
/// At temperature 0 and under coupled acceptance the text that a run writes is the recorded one,
/// so that the replay makes the run's very steps where nothing that it asks for is missing. Under
/// rejection the recorded text stands for the one that the steps would have written: both are
/// drawn from the target's law, but what the next step meets is then independent of what this one
/// drew. Children are the recorded draws, the same for all settings; judging has fresh noise.
///
/// What lookup proposes is learned along a walk as in a run, so that its walks are made one by one.
///
/// Approximate are, beside that, steps that ask for nodes which were not recorded, and the judging
/// of third and later children (local_vocabulary).
class Replayer {
 public:
  /// Is told each step of the walk with this seed, in order; steps of several walks come
  /// interleaved.
  using Visit = std::function<void(std::uint64_t seed, const ReplayedStep& step)>;

  /// `options`: policy, its own options, acceptance; of a fixed size, for costs are not recorded.
  /// All that bears on distributions comes from the recording, which must outlive this object.
  /// Throws Error(usage) for what generate() refuses, for automatic sizes, for policy none, and for
  /// a fixed shape in which a node has more children than were recorded, and for lookup in a
  /// recording without prompts or in what other texts wrote.
  Replayer(const Recording& recording, const GenerateOptions& options);
  /// One that makes the same steps, for another thread. The tree is not planned anew.
  Replayer(const Replayer& like);
  Replayer& operator=(const Replayer&) = delete;
  ~Replayer();

  /// Walks over a text with seeds first_seed, first_seed + 1, ..., each the same as by itself.
  /// Seeds are of judging under rejection; all other noise is the recording's. Where walks come to
  /// the same position, its tree is grown once.
  void replay(const RecordedText& text, std::uint64_t first_seed, std::uint64_t seeds,
              const Visit& visit);

  const GenerateOptions& options() const { return setting_.options; }
  /// Whether sizes and passes depend on the text's end alone.
  bool has_fixed_shape() const { return setting_.fixed_shape; }
  // About the step that is visited:
  const TokenTree& tree() const { return tree_; }  ///< what of it is on record
  const Verdict& verdict() const { return verdict_; }
  /// Tells the trees of the last replayed text apart from others, whatever policy grew them and in
  /// what order: equal for equal nodes at the same positions.
  std::uint64_t trees_print() const { return trees_print_; }

 private:
  struct Setting {
    GenerateOptions options;
    AcceptanceRule draw;
    std::int64_t local_vocab;
    TreePlan plan;
    GrowthLimits limits;
    bool fixed_shape;
  };

  bool looks_up() const { return setting_.options.lookup != Lookup::none; }
  static Setting setting_of(const Recording& recording, const GenerateOptions& options);
  Replayer(const Recording& recording, Setting setting);
  void grow(const RecordedText& text, std::int32_t position);
  void leave_out_stand_ins();
  void note_tree(std::int32_t position);
  ReplayedStep judge(const RecordedText& text, std::int32_t position, std::uint64_t seed);

  const Recording& recording_;
  Setting setting_;
  std::unique_ptr<DraftPolicy> policy_;
  std::unique_ptr<Verifier> verifier_;
  RecordedDraft draft_;
  RecordedTarget target_;
  RecordedLookup lookup_;
  TokenTree tree_;                      ///< what can be judged of the grown tree
  std::int32_t size_ = 0;               ///< of the grown tree
  TokenTree grown_;                     ///< scratch: with its stand-ins
  std::vector<std::int32_t> recorded_;  ///< scratch: nodes of grown_ without them
  Verdict verdict_;
  std::uint64_t trees_print_ = 0;
  std::vector<std::uint64_t> node_prints_;  ///< scratch
  std::vector<std::int32_t> next_;          ///< by walk: the position of its next step
};

// A setting replayed over all texts of a recording: the row of a table.

struct ReplayRow {
  std::string policy;               ///< as studies name it: "dyspec-plain"
  std::string acceptance;           ///< "greedy" at temperature 0
  std::string planned_for;          ///< sequoia: what its trees were planned for, in words
  std::int32_t requested_size = 0;  ///< 0: as the policy's tree or widths say
  double temperature = 0.0;
  std::int64_t steps = 0;
  /// Tokens kept per step, bonus included: a ratio of sums, its interval by bootstrap over prompts.
  /// Recordings ignore end tokens, so that nothing stands behind one.
  Estimate accepted_length;
  Estimate accepted_share;    ///< accepted draft tokens of all drafted
  bool fixed_shape = false;   ///< the policy's: the next two are then a run's own
  double draft_passes = 0.0;  ///< per step; else of what could be grown
  double tree_size = 0.0;     ///< likewise
  double looked_up = 0.0, looked_up_accepted = 0.0;  ///< of these, per step
  double unrecorded_share = 0.0;  ///< of steps whose tree wants nodes that are not on record
  double lacks_nodes_share = 0.0, lacks_entries_share = 0.0;  ///< of these, for want of what
  double short_share = 0.0;       ///< of steps whose accepted path ended at such a place
  std::uint64_t trees_print = 0;  ///< equal for rows whose trees are the same at every step
};

/// Replays every text `seeds` times (seeds 0, 1, ...; once where the noise is the recording's).
/// `stop` is asked between texts, by one thread at a time. The row is the same for any number of
/// threads. Throws Error(usage) as Replayer does.
ReplayRow replay_all(const Recording& recording, const GenerateOptions& options, std::int32_t seeds,
                     const std::function<bool()>& stop = {}, int threads = 1);

/// Names rows of one rule whose trees are the same at every step, a line each: "identical trees:
/// chain 4, specinfer fixed (coupled)".
std::vector<std::string> identical_rows(const std::vector<ReplayRow>& rows);

/// What readers should know of the rows, a line each: trees that are identical, what Sequoia's were
/// planned for, and which option of `coppice record` leaves steps short.
std::vector<std::string> replay_notes(const std::vector<ReplayRow>& rows,
                                      const RecordingHeader& header);

/// For people.
Table replay_table(const std::vector<ReplayRow>& rows);
/// All figures, for programs.
Table replay_csv(const std::vector<ReplayRow>& rows);

}  // namespace coppice::study

#include "drafting/lookup.h"

#include <algorithm>
#include <utility>

#include "base/judged_children.h"

namespace coppice {
namespace {

// Before anything is judged: of texts that repeat themselves now and then. Shares below a half and
// second followers are held to less.
constexpr std::array<double, 6> usual_chance = {0.1, 0.2, 0.35, 0.5, 0.65, 0.8};
constexpr double usual_weight = 4.0;
constexpr double rare_share = 0.5;         ///< of occurrences: less than that is a class of its own
constexpr std::size_t longest_match = 64;  ///< that is looked for anew
constexpr double kept_of_texts = 0.8;
constexpr double most_of_texts = 200.0;  ///< observations that earlier texts count for

std::size_t class_of_length(std::int32_t length) {
  if (length <= 2) return static_cast<std::size_t>(std::max(length, 1) - 1);
  if (length <= 4) return 2;
  if (length <= 8) return 3;
  return length <= 16 ? 4 : 5;
}

// Chance beside a draft's belief: as if both were evidence of their own, each a little too sure.
constexpr OnlineLogistic::Coefficients beside_start = {0.3, 0.7, 0.4};
constexpr OnlineLogistic::Coefficients beside_information = {3.0, 20.0, 20.0};

}  // namespace

// --- what is learned --------------------------------------------------------------------------

std::size_t LookupCalibration::class_of(std::int32_t length, double share, bool first) {
  return 4 * class_of_length(length) + (first ? 0 : 2) + (share < rare_share ? 1 : 0);
}

LookupCalibration::LookupCalibration() : beside_(beside_start, beside_information) {}

OnlineLogistic::Coefficients LookupCalibration::features(double chance, double belief) {
  return {1.0, log_odds(belief), log_odds(chance)};
}

double LookupCalibration::chance(std::size_t of) const {
  double usual = usual_chance[of / 4];
  if (of % 4 != 0) usual *= 0.4;
  const Count& count = counts_[of];
  return (count.accepted + usual_weight * usual) / (count.seen + usual_weight);
}

void LookupCalibration::observe(std::size_t of, bool accepted) {
  counts_[of].accepted += accepted ? 1.0 : 0.0;
  counts_[of].seen += 1.0;
}

void LookupCalibration::expect(const LookupCalibration& others) {
  counts_ = others.counts_;
  for (Count& count : counts_) {
    const double left = std::min(1.0, 20.0 / std::max(count.seen, 1.0));  // texts differ
    count.accepted *= left;
    count.seen *= left;
  }
  started_ = counts_;
}

void LookupCalibration::add(const LookupCalibration& text) {
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    Count& count = counts_[c];
    const double seen = text.counts_[c].seen - text.started_[c].seen;
    if (seen <= 0.0) continue;
    count.accepted =
        kept_of_texts * count.accepted + text.counts_[c].accepted - text.started_[c].accepted;
    count.seen = kept_of_texts * count.seen + seen;
    const double left = std::min(1.0, most_of_texts / count.seen);
    count.accepted *= left;
    count.seen *= left;
  }
}

// --- what is proposed -------------------------------------------------------------------------

void TextIndex::begin(std::span<const TokenId> tokens) {
  const std::span<const TokenId> here = index_.tokens();
  const bool goes_on =
      followed_ >= 0 && std::cmp_less_equal(followed_, tokens.size()) &&
      std::ranges::equal(here, tokens.first(static_cast<std::size_t>(followed_)).last(here.size()));
  if (goes_on) return;
  index_ = SuffixIndex();
  followed_ = 0;
}

void TextIndex::follow(std::span<const TokenId> tokens) {
  if (followed_ < 0) begin(tokens);  // a step that memory ran out for is taken again
  const auto gained = tokens.subspan(static_cast<std::size_t>(followed_));
  followed_ = -1;
  for (const TokenId token : gained) index_.append(token);
  appended_ += static_cast<std::int64_t>(gained.size());
  followed_ = static_cast<std::int32_t>(tokens.size());
}

void LookupProposer::follow(std::span<const TokenId> tokens) {
  std::span<const TokenId> gained = tokens.subspan(static_cast<std::size_t>(followed_));
  if (followed_ == 0) own_->begin(tokens);
  own_->follow(tokens);
  followed_ = static_cast<std::int32_t>(tokens.size());
  if (others_ == nullptr) return;
  if (std::exchange(version_, others_->version()) != others_->version()) {
    end_of_others_ = {};
    gained = tokens.last(std::min(tokens.size(), longest_match));
  }
  for (const TokenId token : gained) {
    end_of_others_ = others_->index().then(end_of_others_, token);
  }
}

void LookupProposer::begin() {
  nodes_.assign(1, {own_->index().end(), end_of_others_, true});
  proposed_.clear();
}

const LookupProposer::Node& LookupProposer::node(const TokenTree& candidates, std::int32_t node) {
  const auto n = static_cast<std::size_t>(node);
  if (nodes_.size() <= n) nodes_.resize(candidates.token.size());
  if (!nodes_[n].known) {
    const Node above = this->node(candidates, candidates.parent[n]);
    Node& at = nodes_[n];
    at.own = own_->index().then(above.own, candidates.token[n]);
    if (others_ != nullptr) at.others = others_->index().then(above.others, candidates.token[n]);
    at.known = true;
  }
  return nodes_[n];
}

std::optional<Proposal> LookupProposer::next(const TokenTree& candidates, std::int32_t node_id,
                                             TokenId but) {
  const Node at = node(candidates, node_id);
  struct Text {
    const SuffixIndex* index;
    SuffixIndex::Match match;
  };
  const SuffixIndex* const others = others_ == nullptr ? nullptr : &others_->index();
  std::array<Text, 2> texts = {{{&own_->index(), at.own}, {others, at.others}}};
  if (at.others.length > at.own.length) std::swap(texts[0], texts[1]);
  for (const Text& text : texts) {
    if (text.index == nullptr || text.match.length == 0) continue;
    const auto followers = text.index->after(text.match);
    double all = 0.0;
    for (const SuffixIndex::Follower& follower : followers) all += follower.count;
    for (const SuffixIndex::Follower& follower : followers) {
      if (follower.token == but || candidates.child_with(node_id, follower.token) >= 0) continue;
      const std::size_t of = LookupCalibration::class_of(text.match.length, follower.count / all,
                                                         &follower == followers.data());
      Proposal found{follower.token, calibration_.chance(of), 0.0};
      const SuffixIndex::Match below = text.index->then(text.match, follower.token);
      const auto further = text.index->after(below);
      if (!further.empty() && below.length > text.match.length) {
        double counts = 0.0;
        for (const SuffixIndex::Follower& next : further) counts += next.count;
        found.follow = calibration_.chance(
            LookupCalibration::class_of(below.length, further[0].count / counts, true));
      }
      proposed_.push_back(
          {node_id, follower.token, of, text.index == others ? follower.last : std::int32_t{-1}});
      return found;
    }
  }
  return std::nullopt;
}

LookupProposer::Proposed* LookupProposer::find(std::int32_t node, TokenId token) {
  const auto of = std::ranges::find_if(proposed_, [&](const Proposed& proposed) {
    return proposed.node == node && proposed.token == token;
  });
  return of == proposed_.end() ? nullptr : &*of;
}

double LookupProposer::chance_beside(std::int32_t node, TokenId token, double chance,
                                     double belief) {
  Proposed* const of = find(node, token);
  if (of == nullptr) return chance;
  of->belief = belief;
  return calibration_.chance_beside(calibration_.chance(of->number), belief);
}

void LookupProposer::record(const TokenTree& tree, std::span<const std::int32_t> path) {
  for_each_judged(tree, path, false, [&](std::int32_t node, bool accepted) {
    const auto n = static_cast<std::size_t>(node);
    if (tree.origin[n] != Origin::lookup) return;
    const std::int32_t candidate = tree.candidate[static_cast<std::size_t>(tree.parent[n])];
    const Proposed* const of = find(candidate, tree.token[n]);
    if (of == nullptr) return;
    if (of->belief >= 0.0) {
      calibration_.observe_beside(calibration_.chance(of->number), of->belief, accepted);
    }
    calibration_.observe(of->number, accepted);
    if (accepted && of->place >= 0) others_->note_use(of->place);
  });
}

}  // namespace coppice

#include "study/replay/recorder.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <queue>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/fingerprint.h"
#include "engine/check_speculation.h"
#include "engine/tree_plan.h"
#include "kernels/logits.h"
#include "study/observed.h"

namespace coppice::study {
namespace {

// A draft path that may be recorded: a token below a candidate.
struct FoundPath {
  double score = 1.0;
  std::int32_t depth = 0;
  std::uint64_t number = 0;  // in the order found: parents before children
  std::int32_t parent = -1;  // candidate
  TokenId token = -1;
  std::int32_t node = -1;  // candidate, once evaluated
  // Product of acceptance by rank along the path; 0 where the path is not of this order. What
  // lookup proposes is of either.
  double settled = 1.0, sampled = 1.0;
  Origin origin = Origin::model;
};

bool better(const FoundPath& a, const FoundPath& b) {
  return std::tuple(-a.score, a.depth, a.number) < std::tuple(-b.score, b.depth, b.number);
}

// Fixed shapes want nodes that D finds improbable. A rank counts as Sequoia's trees weigh it, and
// at least as in shapes that spread more evenly.
double rank_weight(std::size_t rank) {
  constexpr double first = 0.8, next = 0.3;
  return std::max(usual_acceptance[std::min(rank, usual_acceptance.size() - 1)],
                  first * std::pow(next, static_cast<double>(rank)));
}

// The tokens of the `count` largest positive scores, largest first, lower id first among equals.
template <typename Score>
std::vector<TokenId> largest(std::size_t vocab, Score score, std::int32_t count) {
  // Worst on top. Ids are negated, so that of equal scores the higher id is the worse.
  using Scored = std::pair<float, TokenId>;
  std::priority_queue<Scored, std::vector<Scored>, std::greater<>> best;
  for (std::size_t i = 0; i < vocab; ++i) {
    const Scored scored{score(i), -static_cast<TokenId>(i)};
    if (!(scored.first > 0.0f)) continue;
    if (best.size() == static_cast<std::size_t>(count)) {
      if (!(scored > best.top())) continue;
      best.pop();
    }
    best.push(scored);
  }
  std::vector<TokenId> tokens(best.size());
  for (std::size_t i = tokens.size(); i-- > 0; best.pop()) tokens[i] = -best.top().second;
  return tokens;
}

std::uint16_t rank_in(const std::vector<TokenId>& order, TokenId token) {
  const auto at = std::ranges::find(order, token);
  return at == order.end() ? no_rank : static_cast<std::uint16_t>(at - order.begin());
}

/// A node's children in both orders, as far as they are recorded.
struct DrawnOrders {
  /// By largest D times noise, lower id first among equals, none of probability 0; at temperature 0
  /// by D.
  std::vector<TokenId> settled;
  std::vector<TokenId> sampled;  ///< drawn from D without replacement; empty at temperature 0
  std::vector<TokenId> looked_up;
  std::vector<double> chances;  ///< of these
};

/// What lookup proposes at a node where the text ends with this match, whatever was proposed
/// before. Chances are those of a text in which nothing was looked up yet.
void look_up(const SuffixIndex& index, SuffixIndex::Match match, DrawnOrders& orders) {
  if (match.length == 0) return;
  const auto followers = index.after(match);
  double all = 0.0;
  for (const SuffixIndex::Follower& follower : followers) all += follower.count;
  for (const SuffixIndex::Follower& follower : followers) {
    orders.looked_up.push_back(follower.token);
    orders.chances.push_back(LookupCalibration().chance(LookupCalibration::class_of(
        match.length, follower.count / all, &follower == followers.data())));
  }
}

/// Appends a node's rows to `out`, all but its parent. Entries are the tokens of both orders, those
/// that lookup proposes and the `top_k` of largest max(D, T). `target`, `draft`: [vocab].
void append_node(const DrawnOrders& orders, std::span<const float> target,
                 std::span<const float> draft, std::int32_t top_k, TokenId target_token,
                 RecordedPosition& out) {
  std::vector<TokenId> ids = largest(
      draft.size(), [&](std::size_t i) { return std::max(draft[i], target[i]); }, top_k);
  ids.insert(ids.end(), orders.settled.begin(), orders.settled.end());
  ids.insert(ids.end(), orders.sampled.begin(), orders.sampled.end());
  ids.insert(ids.end(), orders.looked_up.begin(), orders.looked_up.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());

  // The rests are summed themselves, not taken from 1: what is left is often tiny.
  double draft_rest = 0.0, target_rest = 0.0, overlap = 0.0;
  auto recorded = ids.begin();
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (recorded != ids.end() && static_cast<std::size_t>(*recorded) == i) {
      ++recorded;
      continue;
    }
    draft_rest += static_cast<double>(draft[i]);
    target_rest += static_cast<double>(target[i]);
    overlap += static_cast<double>(std::min(draft[i], target[i]));
  }
  for (const TokenId token : ids) {
    out.token.push_back(token);
    out.draft.push_back(draft[token]);
    out.target.push_back(target[token]);
    out.settled_rank.push_back(rank_in(orders.settled, token));
    out.sampled_rank.push_back(rank_in(orders.sampled, token));
  }
  out.first_entry.push_back(static_cast<std::uint32_t>(out.token.size()));
  out.target_token.push_back(target_token);
  out.draft_rest.push_back(static_cast<float>(draft_rest));
  out.target_rest.push_back(static_cast<float>(target_rest));
  out.overlap.push_back(static_cast<float>(std::min({overlap, draft_rest, target_rest})));
}

}  // namespace

Recorder::Recorder(Engine& engine, const RecordOptions& options)
    : engine_(engine), options_(options), noise_(engine.vocab_size(), 256) {
  GenerateOptions& g = options_.generate;
  g.speculation = Plain{};
  g.acceptance = Acceptance::coupled;
  g = whole_text(g, g.max_new_tokens);
  g.validate();
  if (g.max_new_tokens < 1) {
    throw_usage(cat("max-new-tokens ", g.max_new_tokens, ": use 1 or more to record"));
  }
  EngineAccess access(engine);
  if (!engine.has_draft()) throw_usage("record: it needs a draft model; give --draft MODEL");
  if (access.judges_on_device()) {
    throw_usage(
        "record: the draft's distributions are read on the host, and this device keeps them; use "
        "--device cpu");
  }
  const std::int32_t most = access.options().max_tree_size + 1;
  if (options_.nodes < 1 || options_.nodes > most) {
    throw_usage(cat("nodes ", options_.nodes, ": use 1 to ", most, " for this engine"));
  }
  if (options_.top_k < 1 || options_.top_k > most_top_k) {
    throw_usage(cat("--entries ", options_.top_k, ": use 1 to ", most_top_k,
                    " (children of each node that can be replayed)"));
  }
  target_params_ = draft_params_ = g.sampling;
  draft_params_.temperature = first_draft_temperature(g);
}

RecordingHeader Recorder::header(std::span<const std::vector<TokenId>> prompts) const {
  const EngineAccess access(engine_);
  RecordingHeader h;
  h.top_k = options_.top_k;
  h.nodes = options_.nodes;
  h.vocab_size = engine_.vocab_size();
  h.draft_context = access.draft().model->max_positions();
  h.target_params = {target_params_};
  h.draft_params = {draft_params_};
  h.seed = options_.generate.seed;
  h.max_new_tokens = options_.generate.max_new_tokens;
  h.prompts = static_cast<std::int32_t>(prompts.size());
  h.target = access.options().target.string();
  h.draft = access.options().draft.string();
  h.dtype = compute_name(*access.target().model);
  h.kv_dtype = name_of(access.device().kv_dtype());
  Fingerprint fingerprint;
  for (const std::string& folder : {h.target, h.draft}) {
    fingerprint.add(fingerprint_of_folder(folder));
  }
  for (const std::vector<TokenId>& tokens : prompts) {
    fingerprint.add_number(tokens.size());
    for (const TokenId token : tokens) fingerprint.add_number(static_cast<std::uint64_t>(token));
  }
  h.fingerprint = fingerprint.text();
  return h;
}

RecordedText Recorder::record(std::int32_t prompt, std::span<const TokenId> tokens,
                              const Progress& progress) {
  stream_ = static_cast<std::uint64_t>(prompt);
  GenerateOptions request = options_.generate;
  request.stream = stream_;
  RecordedText text;
  text.prompt = prompt;
  text.prompt_tokens = static_cast<std::int32_t>(tokens.size());
  text.prompt_ids.assign(tokens.begin(), tokens.end());
  text.tokens = engine_.generate(tokens, request).tokens;
  index_ = SuffixIndex();
  for (const TokenId token : tokens) index_.append(token);

  EngineAccess access(engine_);
  const Model& draft = *access.draft().model;
  SequenceState state = access.new_state(tokens);
  {
    const EngineAccess::Turn turn = access.turn();
    DraftPrompt missing{&state, draft_params_};
    if (!turn.target.prefill(state) || !turn.draft->prefill(missing)) {
      throw_failure("record: too few KV slots for the prompt; raise kv_tokens");
    }
  }
  const std::int32_t draft_rows = static_cast<std::int32_t>(draft.config().vocab_size);
  for (const TokenId next : text.tokens) {
    // What the draft cannot follow is plain decoding in a real run too.
    if (state.largest_token >= draft_rows || state.length() >= draft.max_positions()) {
      text.tokens.resize(text.positions.size());
      break;
    }
    record_position(state, next, text.positions.emplace_back());
    state.append(next);
    index_.append(next);
    ++state.steps;
    const auto done = static_cast<double>(text.positions.size());
    if (progress && !progress(done / static_cast<double>(text.tokens.size()))) break;
  }
  return text;
}

void Recorder::record_position(SequenceState& state, TokenId next, RecordedPosition& out) {
  EngineAccess access(engine_);
  const EngineAccess::Turn turn = access.turn();
  DraftRunner& draft = *turn.draft;
  TargetRunner& target = turn.target;
  const StepKey key{options_.generate.seed, stream_, state.steps,
                    static_cast<std::uint64_t>(state.length())};
  const bool greedy = target_params_.temperature == 0.0;
  const auto noise_at = [&](std::int32_t depth) -> std::span<const float> {
    if (greedy) return {};
    return noise_.row(key.seed, key.sequence,
                      key.noise_position(static_cast<std::uint64_t>(depth)));
  };
  const std::int32_t deepest =
      std::min(access.draft().model->max_positions(), access.target().model->max_positions()) -
      state.length();
  const auto most = static_cast<std::size_t>(std::min(
      {options_.nodes, draft.room(DraftRunner::lag(state), 1) / 2 + 1, target.free_slots()}));

  TokenTree candidates;
  candidates.reset(state.tokens.back());
  std::vector<FoundPath> of_node(1);                         // by candidate; the root
  std::vector<DrawnOrders> orders;                           // by candidate
  std::vector<SuffixIndex::Match> matches(1, index_.end());  // by candidate
  std::vector<FoundPath> best(1);
  best[0].node = 0;
  std::uint64_t found = 0;
  std::vector<std::int32_t> batch(1, 0), children(1, 0);

  const DraftRunner::Step step =
      draft.begin(state, key, {draft_params_, AcceptanceRule::rejection});
  const auto draft_probs = [&](std::int32_t node) {
    return step->sampler().distributions()->row(node);
  };
  // What a child's place in an order is worth; 0 where its path is not of this order.
  const auto worth = [](double of_parent, const std::vector<TokenId>& order, TokenId token) {
    const std::uint16_t rank = of_parent > 0.0 ? rank_in(order, token) : no_rank;
    return rank == no_rank ? 0.0 : of_parent * rank_weight(rank);
  };
  // Offers the children of an evaluated node, each token once.
  const auto offer = [&](std::int32_t node) {
    const FoundPath parent = of_node[node];
    const DrawnOrders& drawn = orders[node];
    std::vector<TokenId> tokens;
    if (parent.settled > 0.0) tokens = drawn.settled;
    for (const TokenId token : drawn.sampled) {
      const bool is_new = rank_in(tokens, token) == no_rank;
      if (parent.sampled > 0.0 && is_new) tokens.push_back(token);
    }
    const std::size_t drawn_tokens = tokens.size();
    for (const TokenId token : drawn.looked_up) {
      if (rank_in(tokens, token) == no_rank) tokens.push_back(token);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const TokenId token = tokens[i];
      // Behind the text's own token the next position is recorded.
      if (node == 0 && token == next) continue;
      FoundPath& one = best.emplace_back();
      one.settled = worth(parent.settled, drawn.settled, token);
      one.sampled = worth(parent.sampled, drawn.sampled, token);
      one.origin = i < drawn_tokens ? Origin::model : Origin::lookup;
      if (const std::uint16_t place = rank_in(drawn.looked_up, token); place != no_rank) {
        one.settled = std::max(one.settled, parent.settled * drawn.chances[place]);
        one.sampled = std::max(one.sampled, parent.sampled * drawn.chances[place]);
      }
      const double w = candidates.path_prob[node] * static_cast<double>(draft_probs(node)[token]);
      one.score = std::min(parent.score, std::max({w, one.settled, one.sampled}));
      one.depth = parent.depth + 1;
      one.number = ++found;
      one.parent = node;
      one.token = token;
    }
  };
  while (!batch.empty()) {
    step->evaluate(candidates, batch);
    orders.resize(static_cast<std::size_t>(candidates.nodes()));
    for (const std::int32_t node : batch) {
      const std::span<const float> probs = draft_probs(node),
                                   noise = noise_at(candidates.depth[node]);
      // Multiplied in float, as ChildDrawer does: ties must fall alike.
      const auto noisy = [&](std::size_t i) { return greedy ? probs[i] : probs[i] * noise[i]; };
      orders[node].settled = largest(probs.size(), noisy, options_.top_k);
      for (std::int32_t rank = 0; !greedy && rank < options_.top_k; ++rank) {
        const auto drawn = step->child(candidates, node, rank);
        if (!drawn) break;
        orders[node].sampled.push_back(drawn->token);
      }
      look_up(index_, matches[node], orders[node]);
      if (candidates.depth[node] < deepest) offer(node);
    }
    if (best.size() > most) {
      std::vector<std::int32_t> dropped;
      std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(most), best.end(),
                       better);
      for (std::size_t i = most; i < best.size(); ++i) {
        if (best[i].node >= 0) dropped.push_back(best[i].node);
      }
      best.resize(most);
      step->forget(dropped);
    }
    batch.clear();
    for (FoundPath& candidate : best) {
      if (candidate.node >= 0) continue;
      candidate.node =
          candidates.add(candidate.parent, candidate.token, children[candidate.parent]++,
                         draft_probs(candidate.parent)[candidate.token], candidate.score);
      children.push_back(0);
      of_node.push_back(candidate);
      matches.push_back(index_.then(matches[candidate.parent], candidate.token));
      batch.push_back(candidate.node);
    }
  }

  // What stays, parents first, and the target's pass over it.
  std::vector<std::int32_t> kept;
  for (const FoundPath& one : best) {
    if (one.node > 0) kept.push_back(one.node);
  }
  std::ranges::sort(kept);
  TokenTree tree;
  tree.assign_part(candidates, kept);
  const TargetRunner::Pass pass = target.pass(state, tree, target_params_);
  if (!pass) {
    throw_failure("record: too few KV slots for the nodes; raise kv_tokens or record fewer");
  }
  target.wait();
  TargetRows& judged = pass->text();
  out.first_entry.assign(1, 0);
  for (std::int32_t node = 0; node < tree.nodes(); ++node) {
    const TokenId most_probable = greedy ? judged.argmax(node) : -1;
    const std::span<const float> probs = judged.distribution(node);
    const std::int32_t candidate = tree.candidate[node];
    append_node(orders[candidate], probs, draft_probs(candidate), options_.top_k,
                greedy ? most_probable : argmax_product(probs, noise_at(tree.depth[node])), out);
    out.origin.push_back(of_node[candidate].origin);
    const auto parent = static_cast<std::size_t>(std::max(0, tree.parent[node]));
    out.parent.push_back(static_cast<std::uint32_t>(parent));
    const auto first = out.token.begin() + out.first_entry[parent];
    const auto last = out.token.begin() + out.first_entry[parent + 1];
    out.parent_entry.push_back(
        node == 0
            ? std::uint16_t{0}
            : static_cast<std::uint16_t>(std::lower_bound(first, last, tree.token[node]) - first));
  }
  // The text is what it is, should rounding have decided a near-tie otherwise here.
  out.target_token[0] = next;
  judged.commit({});
}

}  // namespace coppice::study

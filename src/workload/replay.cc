#include "workload/replay.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/access.h"
#include "workload/branch.h"

namespace coppice::workload {
namespace {

/// A tree while it is written.
class Replay {
 public:
  Replay(Engine& engine, const TreeTemplate& tree, const ReplaySettings& settings,
         ReplayReport& report)
      : engine_(engine),
        tree_(tree),
        settings_(settings),
        report_(report),
        to_fork_(tree.nodes.size(), 0) {
    for (std::size_t n = 1; n < tree.nodes.size(); ++n) {
      ++to_fork_[static_cast<std::size_t>(tree.nodes[n].parent)];
    }
  }

  bool run(const std::vector<TokenId>& prompt) {
    {
      const Stopwatch timing(report_.seconds.prefill);
      branches_.emplace(0, Branch(engine_, prompt, settings_.sharing));
    }
    if (settings_.sharing) report_.prompt_tokens += std::ssize(prompt);  // computed just now
    bool finished = true;
    for_each_span(tree_, [&](const Span& span) {
      finished = finished && !settings_.stop.stop_requested() && write(span);
    });
    return finished;
  }

 private:
  // The branches are written side by side for as long as they are the same ones.
  bool write(const Span& span) {
    for (const std::int32_t node : span.writing) begin(node);
    std::vector<Request> requests(span.writing.size());
    std::vector<std::int64_t> left(requests.size(), span.iterations());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      request.options = settings_.options;
      request.options.max_new_tokens = static_cast<std::int32_t>(span.iterations());
      request.options.ignore_eos = true;
      request.options.stream += static_cast<std::uint64_t>(span.writing[i]);
      branches_.at(span.writing[i]).ask(request);
      request.callback = [this, i, &left](std::int32_t, const Piece& piece) {
        const std::ptrdiff_t tokens = std::ssize(piece.tokens);
        written_ += tokens;
        left[i] -= tokens;
        if (i == 0 || left[i] <= 0) note_memory();  // once a pass, and at the end
        if (settings_.progress) settings_.progress(written_);
        return true;
      };
    }
    const std::vector<Outcome> outcomes = engine_.generate(requests, {}, settings_.stop);
    if (!account(outcomes)) return false;
    for (const std::int32_t node : span.completed) prune(node);
    return true;
  }

  // Parents of no tokens are never written: they are forked here, too.
  void begin(std::int32_t node) {
    if (branches_.contains(node)) return;
    const std::int32_t parent = tree_.nodes[static_cast<std::size_t>(node)].parent;
    begin(parent);
    const Branch& from = branches_.at(parent);
    branches_.emplace(node, settings_.sharing ? from.fork() : from.copy(engine_, ++copies_));
    ++report_.forks;
    if (--to_fork_[static_cast<std::size_t>(parent)] == 0) drop(parent);
  }

  // A branch that others go on from lives until the last of them has been forked.
  void prune(std::int32_t node) {
    if (to_fork_[static_cast<std::size_t>(node)] == 0) drop(node);
  }
  void drop(std::int32_t node) {
    branches_.erase(node);
    report_.prunes += node == 0 ? 0 : 1;
  }

  // What nobody uses any more may still be there: it is not counted.
  void note_memory() {
    const CacheStatistics cache = engine_.cache();
    const std::int64_t used = cache.target_slots - cache.target_free - cache.evictable;
    report_.peak_kv = std::max(report_.peak_kv, used);
  }

  bool account(const std::vector<Outcome>& outcomes) {
    bool stopped = false;
    for (const Outcome& outcome : outcomes) {
      if (outcome.error) std::rethrow_exception(outcome.error);
      const Generation& text = outcome.samples.front();
      if (text.finish_reason == FinishReason::cancelled) {
        stopped = true;
      } else if (text.finish_reason != FinishReason::length) {
        throw_failure(cat(tree_.name, ": a branch ended early (", name_of(text.finish_reason),
                          "); give more --kv-tokens, or shrink the tree"));
      }
      const Statistics& s = text.statistics;
      report_.generated += std::ssize(text.tokens);
      report_.prompt_tokens += s.prompt_tokens;
      report_.cached_tokens += s.cached_tokens;
      report_.preemptions += s.preemptions;
      report_.accepted.add(text);
      report_.seconds.prefill += s.seconds.prefill;
      report_.seconds.draft += s.seconds.draft;
      report_.seconds.verify += s.seconds.verify;
      report_.seconds.sampling += s.seconds.sampling;
    }
    return !stopped;
  }

  Engine& engine_;
  const TreeTemplate& tree_;
  const ReplaySettings& settings_;
  ReplayReport& report_;
  std::map<std::int32_t, Branch> branches_;
  std::vector<std::int32_t> to_fork_;  ///< by node: children that have not begun
  std::int32_t copies_ = 0;
  std::int64_t written_ = 0;
};

std::int64_t passes_of(Engine& engine) { return EngineAccess(engine).turn().target.passes(); }

}  // namespace

void Accepted::add(const Generation& text) {
  policy = text.used.policy;
  steps += text.statistics.steps;
  tokens += text.statistics.accepted_length * static_cast<double>(text.statistics.steps);
}

std::vector<TokenId> prompt_of_length(const Engine& engine, std::string_view text,
                                      std::int64_t tokens, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(tokens);
  std::vector<TokenId> prompt;
  if (!text.empty() && engine.has_tokenizer()) {
    // A token spells a few bytes: of a long text its beginning is enough.
    const std::size_t enough = std::min(text.size(), 64 * count + 256);
    std::size_t end = enough;
    while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;
    }
    const std::vector<TokenId> once = engine.tokenize(text.substr(0, end));
    while (prompt.size() < count && !once.empty()) {
      const std::size_t more = std::min(once.size(), count - prompt.size());
      prompt.insert(prompt.end(), once.begin(), once.begin() + static_cast<std::ptrdiff_t>(more));
    }
  }
  std::mt19937_64 random(seed);
  while (prompt.size() < count) {
    prompt.push_back(
        static_cast<TokenId>(random() % static_cast<std::uint64_t>(engine.vocab_size())));
  }
  return prompt;
}

void require_context(const Engine& engine, const TreeTemplate& tree, std::int64_t divisor) {
  std::int64_t longest = 0, deepest = 0;
  std::vector<std::int64_t> path(tree.nodes.size(), 0), depth(tree.nodes.size(), 1);
  for (std::size_t n = 0; n < tree.nodes.size(); ++n) {
    path[n] = tree.nodes[n].tokens;
    if (n > 0) {
      const auto parent = static_cast<std::size_t>(tree.nodes[n].parent);
      path[n] += path[parent];
      depth[n] += depth[parent];
    }
    longest = std::max(longest, path[n]);
    deepest = std::max(deepest, depth[n]);
  }
  const std::int64_t context = engine.context_length();
  if (longest <= context) return;
  // Lengths are rounded up: by less than a token for each node of a path.
  const std::int64_t room = context - deepest;
  const std::string shrink =
      room > 0 ? cat(", --shrink ", (longest * divisor + room - 1) / room, " for shorter branches")
               : std::string();
  throw_usage(cat(tree.name, ": its longest branch has ", longest,
                  " tokens, more than the target's context of ", context,
                  "; use a model with a longer context", shrink,
                  ", fewer --prompt-tokens, or --count-only"));
}

void replay(Engine& engine, const TreeTemplate& tree, const std::vector<TokenId>& prompt,
            const ReplaySettings& settings, ReplayReport& report) {
  engine.drop_cache();  // no tree finds what another one left
  const Seconds before = report.seconds;
  const CacheStatistics read_before = engine.cache();
  const std::int64_t passes_before = passes_of(engine);
  const double start = working_seconds(engine);
  const bool finished = Replay(engine, tree, settings, report).run(prompt);
  Seconds& seconds = report.seconds;
  const double took = working_seconds(engine) - start;
  const double parts = seconds.prefill - before.prefill + seconds.draft - before.draft +
                       seconds.verify - before.verify + seconds.sampling - before.sampling;
  seconds.total += took;
  seconds.other += std::max(0.0, took - parts);
  const CacheStatistics read = engine.cache();
  report.read_by_text += read.read_by_text - read_before.read_by_text;
  report.read_by_tree += read.read_by_tree - read_before.read_by_tree;
  report.passes += passes_of(engine) - passes_before;
  report.trees += finished ? 1 : 0;
  report.finished = report.finished && finished;
}

}  // namespace coppice::workload

#include "study/replay/position.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace coppice::study {
namespace {

bool is_prob(float p) { return p >= 0.0f && p <= 1.001f; }  // false for NaN

// Ranks 0, 1, ..., each once, in any places. `seen` is scratch.
void require_order(const BlockReader& in, std::span<const std::uint16_t> ranks,
                   std::vector<char>& seen) {
  seen.assign(ranks.size(), 0);
  std::ptrdiff_t ranked = 0;
  for (const std::uint16_t rank : ranks) {
    if (rank == no_rank) continue;
    in.require(rank < ranks.size() && seen[rank] == 0, "sibling ranks that are no order");
    seen[rank] = 1;
    ++ranked;
  }
  in.require(std::find(seen.begin(), seen.begin() + ranked, 0) == seen.begin() + ranked,
             "sibling ranks with a gap");
}

void check(const BlockReader& in, const RecordedPosition& p, std::int64_t vocab_size) {
  for (const auto* probs : {&p.draft_rest, &p.target_rest, &p.overlap, &p.draft, &p.target}) {
    in.require(std::all_of(probs->begin(), probs->end(), is_prob), "a probability outside [0, 1]");
  }
  const auto in_vocabulary = [&](TokenId token) { return token >= 0 && token < vocab_size; };
  in.require(std::all_of(p.token.begin(), p.token.end(), in_vocabulary) &&
                 std::all_of(p.target_token.begin(), p.target_token.end(), in_vocabulary),
             "a token outside the vocabulary");
  std::vector<char> seen;
  for (std::int32_t node = 0; node < p.nodes(); ++node) {
    const std::size_t first = p.first_entry[static_cast<std::size_t>(node)];
    const auto entries = static_cast<std::size_t>(p.entries(node));
    require_order(in, std::span(p.settled_rank).subspan(first, entries), seen);
    require_order(in, std::span(p.sampled_rank).subspan(first, entries), seen);
    for (std::size_t e = 1; e < entries; ++e) {
      in.require(p.token[first + e - 1] < p.token[first + e], "entries out of order");
    }
  }
}

void link(const BlockReader& in, RecordedPosition& p, TokenId next) {
  std::vector<std::uint16_t> leads_to(p.token.size(), ChildTable::no_node);  // by entry
  for (std::int32_t node = 1; node < p.nodes(); ++node) {
    const auto n = static_cast<std::size_t>(node);
    const std::uint32_t parent = p.parent[n];
    in.require(parent < n && p.parent_entry[n] < p.entries(static_cast<std::int32_t>(parent)),
               "a node whose parent is not there");
    std::uint16_t& place = leads_to[p.first_entry[parent] + p.parent_entry[n]];
    in.require(place == ChildTable::no_node, "two nodes in one place");
    place = static_cast<std::uint16_t>(node);
  }
  // Whatever else is recorded of it, the text's own token leads on to the next position.
  const auto of_root = std::span(p.token).first(static_cast<std::size_t>(p.entries(0)));
  const auto followed = std::find(of_root.begin(), of_root.end(), next);
  if (followed != of_root.end()) leads_to[static_cast<std::size_t>(followed - of_root.begin())] = 0;
  p.settled = ChildTable(p.first_entry, p.settled_rank, p.draft, leads_to);
  p.sampled = ChildTable(p.first_entry, p.sampled_rank, p.draft, leads_to);
}

}  // namespace

std::uint32_t recording_checksum(std::string_view bytes) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

void BlockReader::refuse(const char* what) const {
  throw_failure(cat(where_, " byte ", place_, ": ", what,
                    "; the file is damaged, record anew or copy it again"));
}

RecordedPosition read_position(BlockReader in, std::int64_t vocab_size, TokenId next) {
  RecordedPosition p;
  const auto nodes = static_cast<std::size_t>(in.take<std::uint32_t>());
  in.require(nodes >= 1 && nodes <= static_cast<std::size_t>(most_recorded_nodes),
             "too many nodes or none");
  in.take_all(nodes, p.parent);
  in.take_all(nodes, p.parent_entry);
  std::vector<std::uint16_t> entries;
  in.take_all(nodes, entries);
  p.first_entry.reserve(nodes + 1);
  p.first_entry.push_back(0);
  for (const std::uint16_t count : entries) {
    in.require(count <= 3 * most_recorded_top_k, "too many entries");
    p.first_entry.push_back(p.first_entry.back() + count);
  }
  const auto m = static_cast<std::size_t>(p.first_entry.back());
  in.take_all(nodes, p.target_token);
  in.take_all(nodes, p.draft_rest);
  in.take_all(nodes, p.target_rest);
  in.take_all(nodes, p.overlap);
  in.take_all(m, p.token);
  in.take_all(m, p.draft);
  in.take_all(m, p.target);
  in.take_all(m, p.settled_rank);
  in.take_all(m, p.sampled_rank);
  in.require(in.left() == 0, "a position of another length than it says");
  check(in, p, vocab_size);
  link(in, p, next);
  return p;
}

}  // namespace coppice::study

#include "kernels/cpu/link_communicator.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/rank_link.h"

namespace coppice::cpu {
namespace {

std::size_t size_of(std::int64_t values) { return static_cast<std::size_t>(values); }

class LinkCommunicator final : public Communicator {
 public:
  explicit LinkCommunicator(const RankGroup& group) : rank_(group.rank), links_(group.links) {}

  void sum(float* values, std::int64_t count) override {
    const std::span<float> all(values, size_of(count));
    if (rank_ > 0) {
      send(*links_.front(), all);
      return links_.front()->receive_values(all);
    }
    part_.resize(all.size());
    for (RankLink* const link : links_) {
      link->receive_values(part_);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += part_[i];
    }
    for (RankLink* const link : links_) send(*link, all);
  }

  void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows,
                      float* staged, float* all) override {
    if (rank_ > 0) {
      const std::int64_t width = widths[size_of(rank_)];
      return send(*links_.front(), {part, size_of(rows * width)});
    }
    float* place = staged;
    for (std::size_t rank = 1; rank < widths.size(); ++rank) {
      const std::size_t count = size_of(rows * widths[rank]);
      links_[rank - 1]->receive_values({place, count});
      place += count;
    }
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* from = part;
      for (std::size_t rank = 0; rank < widths.size(); ++rank) {
        all = std::copy_n(from + row * widths[rank], widths[rank], all);
        from = rank == 0 ? staged : from + rows * widths[rank];
      }
    }
  }

  void abort(const std::string& why) noexcept override {
    for (RankLink* const link : links_) link->abort(why);
  }

 private:
  static void send(RankLink& link, std::span<const float> values) {
    link.send(RankLink::Kind::values, {std::as_bytes(values)});
  }

  const int rank_;
  const std::vector<RankLink*> links_;
  std::vector<float> part_;
};

}  // namespace

std::unique_ptr<Communicator> make_link_communicator(const RankGroup& group) {
  return std::make_unique<LinkCommunicator>(group);
}

}  // namespace coppice::cpu

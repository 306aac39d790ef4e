#include "models/pass_message.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace coppice {
namespace {

struct PassHead {
  std::uint64_t epilogue;
  std::uint32_t rows, logit_rows, segments, slots;  ///< slots of all segments together
  std::uint32_t division, unused;
};

struct PassSegment {
  std::uint32_t slots;
  std::int32_t q_begin, q_end, first_position;
  std::uint32_t former;
};

/// Fills memory from its beginning on.
class PassWriter {
 public:
  explicit PassWriter(std::vector<std::byte>& bytes) : place_(bytes.data()) {}

  template <typename T>
  void put(std::span<const T> values) {
    static_assert(std::has_unique_object_representations_v<T>);
    if (!values.empty()) std::memcpy(place_, values.data(), values.size_bytes());
    place_ += values.size_bytes();
  }

 private:
  std::byte* place_;
};

class PassReader {
 public:
  explicit PassReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <typename T>
  void take(std::span<T> values) {
    if (values.size_bytes() > left_.size()) refuse();
    if (!values.empty()) std::memcpy(values.data(), left_.data(), values.size_bytes());
    left_ = left_.subspan(values.size_bytes());
  }
  template <typename T>
  void take(std::vector<T>& values, std::size_t count) {
    if (count > left_.size() / sizeof(T)) refuse();  // before memory is taken
    values.resize(count);
    take(std::span(values));
  }
  void end() const {
    if (!left_.empty()) refuse();
  }
  [[noreturn]] static void refuse() {
    throw_failure("a pass from rank 0 has other sizes than it says");
  }

 private:
  std::span<const std::byte> left_;
};

std::uint32_t count_of(std::size_t size) { return static_cast<std::uint32_t>(size); }

}  // namespace

std::span<const std::byte> PassMessage::write(const PassInputs& inputs, std::uint64_t epilogue) {
  std::size_t slots = 0;
  for (const KvSegment& segment : inputs.segments) slots += segment.slots.size();
  const PassHead head{epilogue,
                      count_of(inputs.tokens.size()),
                      count_of(inputs.logit_rows.size()),
                      count_of(inputs.segments.size()),
                      count_of(slots),
                      static_cast<std::uint32_t>(inputs.division),
                      0};
  const std::size_t rows = inputs.tokens.size();
  bytes_.resize(sizeof(PassHead) +
                (3 * rows + inputs.logit_rows.size() + slots) * sizeof(std::int32_t) +
                inputs.segments.size() * sizeof(PassSegment));
  PassWriter writer(bytes_);
  writer.put(std::span<const PassHead>(&head, 1));
  writer.put(inputs.tokens);
  writer.put(inputs.positions.first(rows));
  writer.put(inputs.write_slots.first(rows));
  writer.put(inputs.logit_rows);
  for (const KvSegment& of : inputs.segments) {
    const PassSegment segment{count_of(of.slots.size()), of.q_begin, of.q_end, of.first_position,
                              of.former ? 1u : 0u};
    writer.put(std::span<const PassSegment>(&segment, 1));
  }
  for (const KvSegment& segment : inputs.segments) writer.put(segment.slots);
  return bytes_;
}

void PassMessage::read(std::span<const std::byte> bytes) {
  PassReader reader(bytes);
  PassHead head{};
  reader.take(std::span(&head, 1));
  if (head.division > static_cast<std::uint32_t>(AttentionDivision::subtree)) PassReader::refuse();
  epilogue_ = head.epilogue;
  division_ = static_cast<AttentionDivision>(head.division);
  reader.take(tokens_, head.rows);
  reader.take(positions_, head.rows);
  reader.take(write_slots_, head.rows);
  reader.take(logit_rows_, head.logit_rows);
  std::vector<PassSegment> segments;
  reader.take(segments, head.segments);
  reader.take(slots_, head.slots);
  reader.end();
  segments_.clear();
  std::span<const KvSlot> left = slots_;
  for (const PassSegment& of : segments) {
    if (of.slots > left.size()) PassReader::refuse();
    segments_.push_back(
        {left.first(of.slots), of.q_begin, of.q_end, of.former != 0, of.first_position});
    left = left.subspan(of.slots);
  }
  if (!left.empty()) PassReader::refuse();
}

PassInputs PassMessage::inputs() const {
  return {tokens_, positions_, write_slots_, segments_, logit_rows_, division_};
}

}  // namespace coppice

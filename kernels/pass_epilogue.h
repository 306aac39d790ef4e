// Work queued behind a pass on the logits that it leaves, and recorded with it.
#pragma once

#include <cstdint>

namespace coppice {

class PassEpilogue {
 public:
  PassEpilogue() { renew(); }
  virtual ~PassEpilogue() = default;
  PassEpilogue(const PassEpilogue&) = delete;
  PassEpilogue& operator=(const PassEpilogue&) = delete;

  /// logits [rows, vocab] f32 on the device; rows beyond the batch's logit rows are padding.
  virtual void queue(float* logits, std::int32_t rows) = 0;
  /// Not 0, and never used twice in a process: recordings hold for one.
  std::uint64_t id() const { return id_; }

 protected:
  /// Has the id of one in another process.
  explicit PassEpilogue(std::uint64_t id) : id_(id) {}
  /// From now on something else is queued.
  void renew();

 private:
  std::uint64_t id_ = 0;
};

}  // namespace coppice

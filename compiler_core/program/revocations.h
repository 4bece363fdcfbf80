// Revocations: which signed programs are not to be loaded any more, because a coordinator took
// them, or kernels in them, back. The list has a serial, which grows with each change, so that an
// older list never replaces a newer one. A program is meant up to a serial of its own
// (Program::serial): what the coordinator makes later under the same key is good.
//
//   kiln-revocations 1
//   serial 1790000000123
//   program DIGEST 8589934597
//   kernel DIGEST 8589934597
//
// Plain value.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "compiler_core/program/program.h"

namespace kiln {

class Revocations {
 public:
  Revocations() = default;
  explicit Revocations(uint64_t serial) : serial_(serial) {}

  void revoke_program(const Digest& key, int64_t through) { raise(programs_[key], through); }
  void revoke_kernel(const Digest& key, int64_t through) { raise(kernels_[key], through); }

  uint64_t serial() const { return serial_; }  // 0: nothing was ever taken back
  size_t size() const { return programs_.size() + kernels_.size(); }
  // A program without a serial is covered too: it is older than any.
  bool cover(const Program& program) const;
  std::string to_text() const;
  static Result<Revocations> parse(std::string_view text);  // kCorruption

 private:
  static void raise(int64_t& through, int64_t to) {
    if (to > through) through = to;
  }
  uint64_t serial_ = 0;
  std::unordered_map<Digest, int64_t> programs_, kernels_;  // through
};

}  // namespace kiln

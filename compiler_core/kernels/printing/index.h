// Index: where a generated loop reads or writes, as an affine expression over the loop variables
// with known ranges; so that views compose on paper and a division is printed only when the ranges
// do not decide it. Factors and the ends of ranges may have symbols (size.h). A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler_core/base/dim.h"

namespace kiln {

// How often a value changes in the generated loop nest, outermost first. A statement is printed at
// the outermost level where all it needs is known.
enum class Level : uint8_t {
  kKernel,  // once a call
  kOuter,   // once an iteration of the outer loop (a row; a slab of columns)
  kInner,   // once a vector
};

struct LoopVar {
  enum class Kind : uint8_t {
    kScalar,  // an index_t, the same for all lanes
    kVector,  // an index_t for lane 0; lane l has the value name + l
    kLanes,   // a vindex: every lane has its own value
  };
  std::string name;  // in the generated code
  Kind kind = Kind::kScalar;
  Level level = Level::kInner;
  Dim begin = 0, end = 1;  // its values lie in [begin, end)
  int64_t multiple = 1;    // of which they (for kVector: lane 0's) are multiples
};

class Index {
 public:
  Index(int64_t constant = 0) : constant_(constant) {}     // NOLINT: a number is an Index
  Index(Dim constant) : constant_(std::move(constant)) {}  // NOLINT: a size is an Index
  Index(const LoopVar& var);                               // NOLINT: a variable is one

  friend Index operator+(const Index& a, const Index& b);
  friend Index operator*(const Index& a, const Dim& factor);

  // Bounds that the ranges of the variables imply; an invalid Dim when they imply none.
  Dim least() const;
  Dim greatest() const;
  Level level() const;
  bool is_constant() const { return terms_.empty(); }
  // Lane l is at lane 0's index + l * lane_stride(); meaningful when !has_lanes().
  Dim lane_stride() const;
  bool has_lanes() const;  // some kLanes variable occurs
  // The greatest power of two, at most `most`, of which lane 0's index is always a multiple.
  int64_t alignment(int64_t most) const;
  bool varies_by_lane() const { return has_lanes() || !lane_stride().is(0); }

  // A part of whole multiples, divided by `divisor`, and the rest, which is not negative. Nothing where
  // the ranges do not show that.
  std::optional<std::pair<Index, Index>> take_multiples(const Dim& divisor) const;
  // Quotient and remainder, when the ranges show that they are affine too.
  std::optional<std::pair<Index, Index>> divide(const Dim& divisor) const;
  // The constant c when this is exactly a kVector variable plus c.
  std::optional<int64_t> past_vector_variable() const;

  // C text of lane 0 (kLanes variables left out), "" never: "0" at least.
  std::string text() const;
  // C text of a vindex with every lane's index.
  std::string lanes_text() const;

 private:
  struct Term {
    LoopVar var;
    Dim factor;
  };
  void add(const LoopVar& var, const Dim& factor);
  Dim bound(bool greatest) const;

  Dim constant_ = 0;
  std::vector<Term> terms_;  // ascending by name, no zero factor
};

}  // namespace kiln

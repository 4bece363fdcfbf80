// Weights of 4 bits as arithmetic on what holds several of them: bytes taken apart into two, or i32
// words into eight. Kernels read the bytes or words, and take them apart themselves. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// How values of 4 bits lie in memory. Two in each byte, neighbours along the depth: which half has the
// first. Or in the words that ATen's _weight_int4pack_mm takes, [lines / 8, depth / word_depth, 32,
// word_depth / 32] of i32: lane 4 r + i has of line r, in half byte j + 4 e of its w-th word, the
// element 32 w + 8 j + 2 i + e of word_depth.
enum class Packing : uint8_t { kNone, kLowFirst, kHighFirst, kWords };

// Bytes of which `joined`, [..., 2], has the two halves side by side.
struct Halves {
  NodeId bytes = kInvalidNode;  // u8
  Packing packing = Packing::kNone;
};
std::optional<Halves> find_halves(const Graph& graph, NodeId joined);

struct PackedWords {
  NodeId words = kInvalidNode;  // i32, in row-major order
  int64_t word_depth = 0;       // 32, 64 or 128
  std::vector<NodeId> nodes;    // the arithmetic and Views from the words to the values
};
// `values` of u8, of which axis `line` goes along the lines, `depth` along the depth, and all others
// have size 1.
std::optional<PackedWords> find_packed_words(const Graph& graph, NodeId values, size_t depth,
                                             size_t line);

}  // namespace kiln

// Workload: one kernel's canonical subgraph. Its inputs and outputs are dense row-major buffers;
// every view between them is part of the graph. Equal workloads have equal digests, in whatever
// model they stand. Values; freely shared.
//
// Rules that code generation may rely on, checked by classify():
//
// Every family
//  - Sizes are constants, at least 1, or polynomials over symbols that are never negative; which
//    of those a family has kernels for, its code generator says. Every node is needed by an output.
//    No ScanSum.
//  - Half types (f16, bf16, f8) are only moved or converted: they occur on inputs, constants, View,
//    Pad, Concat, Gather, Matmul operands and Cast; a Cast with a half type has f32 on its other
//    side. All arithmetic, comparison and reduction is in f32, f64, integers or bool.
//  - A View's operand is a leaf (Input, Constant, Iota) unless the family says otherwise. Constants
//    are scalars of shape []; elsewhere than in a space of shape [] they are read through a View
//    whose strides are all 0. Elementwise nodes never stand below a View, so that all arithmetic
//    happens in the family's iteration space (recomputed under a broadcast: loads are dearer).
//  - Adjacent axes of the iteration space are merged where every View allows it, axes of size 1 are
//    dropped, and an input that is read only through Views is declared one-dimensional (a View
//    indexes the flattened operand anyway). Expect low ranks, but handle any rank, 0 included.
//  - Outputs are distinct nodes. An output may be read inside the workload too. Only in kPointwise
//    may an output be an Input (a copy), a Constant, an Iota or a View (a rearrangement).
//
// kPointwise: no Reduce, no Matmul. Iteration space S: every output has shape S. An output's cone
//  is elementwise nodes of shape S over Inputs of shape S and Views, Pads, Concats and Gathers of
//  shape S. Those four may stand on anything pointwise: a View that could not be composed on
//  View, Pad, Concat or Gather; a Pad, Concat or Gather on elementwise nodes of its operand's own
//  shape. "The value of node N at index I" is a recursive expression, total for every I inside N.
//  May have no inputs at all (a filled buffer, an iota). A Philox of any shape may stand wherever
//  an elementwise node may, and Views on it; its seed, of shape [], is an Input, a Constant or a
//  View of one. Only here: elsewhere what comes of random values is stored first.
//
// kRowReduction and kColumnReduction: at least one Reduce, no Matmul, Pad, Concat. One iteration
//  space S, the shape of every Reduce's operand; all Reduces have the same axes. They are
//  one run of adjacent axes: S = batch ++ reduced ++ kept. Row: kept is empty (the reduced axes are
//  innermost). Column: kept is not empty. Reduced space T = batch ++ kept, the shape of every
//  Reduce. Each node is one of:
//   full     shape S: an Input, a View of a leaf, an elementwise node over full nodes;
//   reduced  shape T: a Reduce, an Input, a View of a leaf, an elementwise node over reduced nodes;
//            in kRowReduction also a Gather with a reduced index, one element a row, from a table:
//            an Input, or a View of one, of one axis, that Gathers alone read;
//   spread   a View of shape S of a reduced node (a Reduce or elementwise), which repeats it along
//            the reduced axes: its strides are T's contiguous strides, 0 on the reduced axes,
//            offset 0. It counts as full.
//  Outputs are full or reduced nodes, in any mixture. A Reduce may depend on another (layernorm:
//  a full node over the spread of the first mean feeds the second). S != T, as reduced sizes > 1.
//
// kMatmul: exactly one Matmul, [b..., m, k] x [b..., k, n] -> T = [b..., m, n], no Reduce, Pad,
//  Concat, Gather. Each Matmul operand is an Input or a View of an Input (a permutation, a slice, a
//  batch broadcast: any strides and offset inside the buffer), both of one dtype; or is dequantised
//  from one of those whose elements have 8 bits (dequantised.h; its zeros and scales are Casts of
//  Views of leaves). A norm may scale the rows of the first operand, of bf16, where the Matmul has two
//  axes (rms_norm.h): the graph has the Reduce of that norm then, and no other. Exactly one output, of
//  shape T: the Matmul itself, or elementwise nodes of shape T over the Matmul, Inputs of shape T and
//  Views of leaves (bias, residual). The Matmul is never read through a View. Batch axes are not merged
//  with m or n.
//
// kScan, kSort, kScatter, kCustom: exactly one such node, whose operands are Inputs, and which is
//  the one output. The operand of a scan is [outer, size, inner], summed along axis 1; of a sort
//  [rows, size]; of a scatter [rows, elements of one] with an index [updates], except where one
//  input is two operands that this would give two shapes. Only a scatter's operands may be halves,
//  and a sort's.
//
// kConvolution: as kMatmul, with a Convolution [n, c, spatial...] x [o, c/groups, window...] for
//  the Matmul; T is its shape. Of the Convolution and its operands only n and x's and so the
//  result's spatial sizes may have symbols. Where one View that puts its channels last alone reads
//  it (channels_last.h), that stands for it, and T is the View's shape.
//
// kProducts: two to eight Matmuls [m, k] x [k, n] of one first operand (joined_products.h), each with
//  a second operand of its own. A norm may scale the rows of the first operand, as of kMatmul. Of the
//  sizes only m may have symbols. Operands are halves, each an Input or a View of one whose lines are
//  contiguous along k and begin at multiples of 16 bytes; those of the second operands lie equally far
//  apart. Every output has one product, or every output has two, which no other output needs. An output
//  is elementwise nodes of its products' shape over them, Inputs of that shape and Views of leaves. It
//  is of halves, and n is a multiple of 8. No Philox.
//
// kRowUpdate: as kPointwise, and find_row_update() (row_update.h) finds what it writes.
//
// kAttention: see plan/attention/attention.h. kAttentionGradient: see attention_gradient.h beside it.
#pragma once

#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

// Persisted by name; never renamed.
enum class Family : uint8_t {
  kPointwise = 1,           // every output element from elements of the inputs
  kRowReduction = 2,        // reductions over the innermost axes: softmax, layernorm, rmsnorm
  kColumnReduction = 3,     // reductions over outer axes, contiguous axis kept: vertical vectors
  kMatmul = 4,              // one batched matmul with an elementwise epilogue
  kScan = 5,                // running sums along an axis
  kSort = 6,                // positions in order along the last axis
  kScatter = 7,             // updates combined into rows that an index names
  kConvolution = 8,         // one convolution with an elementwise epilogue
  kAttention = 9,           // matmul, softmax, matmul in one pass
  kCustom = 10,             // a user's kernel
  kAttentionGradient = 11,  // products with what two products of one shape give, element by element
  kProducts = 12,           // matmuls of one first operand, with elementwise epilogues
  kRowUpdate = 13,          // one row along an axis, of outputs whose buffers hold the others
};
std::string_view to_string(Family family);  // "pointwise", "row_reduction", ...
Result<Family> parse_family(std::string_view name);

struct Workload {
  Graph graph;  // in normal form
  Family family = Family::kPointwise;
  Digest digest;  // WorkloadDigest: normaliser version, graph, family
};

// Canonicalises `subgraph` and classifies it. `input_order[i]` is the subgraph input that is
// workload input i; inputs that no output needs do not occur. Outputs keep their order; their
// shapes may have been merged to lower ranks, so that an argument agrees with its buffer in dtype
// and number of elements, not always in shape.
struct WorkloadBinding {
  Workload workload;
  std::vector<int> input_order;
  std::vector<Dim> dims;  // the value of each of the workload's symbols, in the subgraph's symbols
};
Result<WorkloadBinding> make_workload(const Graph& subgraph);
// The same graph as a workload of another family. REQUIRES: it keeps that one's rules too.
Workload with_family(Workload workload, Family family);

// Whether a Cast from one dtype to the other keeps every value, where the first has 8 bits.
bool widens_8_bits(DType from, DType to);
// A Matmul's operand as it is stored: `operand`, or below Casts that widen 8 bits.
NodeId stored_operand(const Graph& graph, NodeId operand);

// The family whose rules above `subgraph` keeps. kUnsupported says which op or rule stands against
// the nearest one.
Result<Family> classify(const Graph& subgraph);

// The iteration space of a reduction: S = batch ++ reduced ++ kept, by axis numbers of S.
struct ReductionSpace {
  Shape shape;            // S
  int reduced_begin = 0;  // axes [reduced_begin, reduced_end) are reduced
  int reduced_end = 0;
  bool operator==(const ReductionSpace&) const = default;
};
// REQUIRES: workload is kRowReduction or kColumnReduction.
ReductionSpace reduction_space(const Graph& workload);

}  // namespace kiln

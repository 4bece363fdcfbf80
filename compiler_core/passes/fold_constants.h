// Evaluates what depends on no input: constants, iotas, and what is computed from them.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// The same outputs, bit for bit by the interpreter. A value without inputs, of at most 64 Ki
// elements and fixed sizes, that turns out to be
//  - one number everywhere, becomes that constant;
//  - an i32 or i64 that is an affine function of its coordinates, becomes its least element plus a
//    View of an iota: one spelling, whatever it was computed by;
// and stays as it is otherwise. Not evaluated: random values, custom calls, sums of floats (their
// last bits are a matter of order), values that op.h leaves unspecified, and what is computed from
// these. The elements evaluated are bounded for a graph, so time is linear in its nodes.
Result<Graph> fold_constants(const Graph& graph);

}  // namespace kiln

// The passes that normalise (normalise.cc) and make_workload (plan/workload.cc) are made of. Each
// returns a graph with the same outputs.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Spells out that half types compute in f32: arithmetic on f16, bf16 and f8 becomes a cast of the
// operands to f32, the operation, and a cast of the result back. Afterwards these types occur only
// where values are moved (inputs, views, pads, concats, gathers, matmul operands) and at casts to
// and from f32, so that no later stage has to know the rule.
Result<Graph> expand_half(const Graph& graph);

// Applies algebraic identities that change no bit of a result beyond reassociation: x*1, x-c as
// x+(-c), division by a power of two, double negation, conversions that lose nothing, arithmetic on
// constants, a select that is decided, powers with the exponents PyTorch special-cases, reductions
// of nothing, of one element and of reductions. Not among them, because a zero's sign or a NaN
// would change: x+0, x*0, x-x.
Result<Graph> simplify(const Graph& graph);

// Evaluates what depends on no input: constants, iotas, and what is computed from them. The outputs
// are the same bit for bit by the interpreter. A value without inputs, of at most 64 Ki elements
// and fixed sizes, that turns out to be
//  - one number everywhere, becomes that constant;
//  - an i32 or i64 that is an affine function of its coordinates, becomes its least element plus a
//    View of an iota: one spelling, whatever it was computed by;
// and stays as it is otherwise. Not evaluated: random values, custom calls, sums of floats (their
// last bits are a matter of order), values that op.h leaves unspecified, and what is computed from
// these. The elements evaluated are bounded for a graph, so time is linear in its nodes.
Result<Graph> fold_constants(const Graph& graph);

// The same where sizes have symbols, which are evaluated by nobody: an i64 that is an affine function of its
// coordinates whatever the symbols are, strides and all (the places of tokens, and what models compute from
// them) is known by that function. What it decides is folded: comparisons, selects, values that are one number
// everywhere; and rows that it names within a table are a View of that. Changes no graph without symbols.
Result<Graph> fold_places(const Graph& graph);

enum class SinkLimit {
  // Only views that do not repeat elements: a broadcast stays above the cheaper computation.
  kNoExtraWork,
  // Broadcasts too, as long as nothing below is reduced, contracted, gathered or joined: a kernel
  // computes such values anew for every element rather than keep them in memory.
  kRecomputePointwise,
  // As kRecomputePointwise, but for what a matmul reads repeated: its operands are kept in memory, where
  // each element is computed once.
  kRecomputeUnstored,
  // Broadcasts too, whatever is below: for kernels that need few of the elements.
  kRecompute,
};
// Moves Views of elementwise nodes to the operands, where chains of views meet and merge into one;
// so that reshape, permute and slice leave no trace between arithmetic, wherever the user put them.
Result<Graph> sink_views(const Graph& graph, SinkLimit limit);

struct Canonical {
  Graph graph;
  std::vector<int> input_order;        // input_order[i] is the old input that is now input i
  std::vector<SymbolId> symbol_order;  // the old symbol that is now symbol i
};
// A size may be known only from an input that is otherwise not needed.
enum class UnusedInputs { kKeepWhatBindsSymbols, kDrop };
// The canonical form: nodes in the order of a traversal from the outputs that follows colours (see
// colours.h), operands of commutative ops in the order of their colours, inputs and symbols
// numbered as the traversal meets them. Drops whatever no output needs.
Result<Canonical> canonicalise(const Graph& graph,
                               UnusedInputs unused = UnusedInputs::kKeepWhatBindsSymbols);

}  // namespace kiln

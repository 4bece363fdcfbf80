// Rewrites of a whole graph before it is partitioned into kernels. Each returns a graph with the
// same outputs and changes no bit of a result beyond reassociation. partition.cc has their order.
#pragma once

#include "compiler_core/ir/graph.h"
#include "compiler_core/plan/attention/attention.h"

namespace kiln {

// Turns reductions over small windows, which is what pooling is, into arithmetic on shifted reads:
// max(x[2i], max(x[2i + 1], x[2i + 2])). So pooling is pointwise: it runs along the positions
// instead of over rows of four or nine elements, and fuses with its neighbours.
//
// A reduction is unrolled if it has at most 64 elements, a number known when planning (elements of
// unrolled reductions below it count), and some View below it, with only arithmetic between, reads
// windows: windows that overlap, or that interleave in memory. Contiguous rows and columns are left
// to the reduction families.
Result<Graph> unroll_windows(const Graph& graph);

// Turns a matmul of one column with one row into products of elements, and one of one row with one
// column into a sum of products, as attention to a single key is: both fuse with their neighbours.
// Runs before broadcasts are sunk: it leaves some to sink.
Result<Graph> multiply_vectors(const Graph& graph);

// Multiplies rows that share a matrix by it together: a product whose second operand repeats each
// matrix for several neighbours along its last batch axis, as a step of decoding does with the keys
// and values of grouped queries, becomes one with more rows and fewer batches, and no repeated copy is
// stored. Products of an attention that is one pass (attention.h) stay as they are: its kernels read
// shared heads.
Result<Graph> pack_shared_heads(const Graph& graph, OnePass one_pass);

// Turns a reduction over axes that are not neighbours into one reduction per run of neighbours,
// innermost first; so that the row and column families cover every set of axes. Reassociates sums.
Result<Graph> split_reductions(const Graph& graph);

// Computes one element of every row of a value, picked by an index (the target's entry in a
// log-softmax), from the same element of what the value is computed from: so that the value is
// never stored, and the row kernel beneath it computes the entry too.
//
// Gathers from a flattened [rows, columns] value at row * columns + column move below its
// arithmetic, where that has the result of a reduction of each row in it. A column outside
// [0, columns) is the caller's error, as every index out of range.
Result<Graph> sink_gathers(const Graph& graph);

// Arranges matmuls of single rows, each with the matrix of a table that an index picks
// (picked_products.h): mixtures of experts. With `in_place`, those that kernels read so stay as they
// are. Of the others, where equal indices are neighbours, blocks of rows of one matrix become the
// batches of one matmul, or every row is multiplied with every matrix, whatever costs less; the rest
// stays as it is, and each row has a copy of its matrix.
Result<Graph> share_picked_matrices(const Graph& graph, bool in_place);

// Makes one value of several that differ in their axes only. Normalisation carries every reshape
// down to the inputs, so that arithmetic which a model does once, and reads in two shapes (a
// residual stream: as rows by a matmul, as [batch, tokens, width] by a norm), stands in the graph
// twice. Of elementwise nodes on products that compute equal elements in one row-major order the
// first is kept, and the others become reshapes of it: computed once, stored once.
Result<Graph> share_reshapes(const Graph& graph);

// Makes one value of two of which one is the other transposed: arithmetic that stands in the graph
// twice, since normalisation carries a transpose down to the inputs as it does a reshape. A step of
// training multiplies by every gradient as it is and by its transpose, or convolves with images whose
// first two axes are exchanged. What reads memory in order is kept, and the other becomes a View of it.
// The two axes that change places. Values of two axes have last ones only.
enum class Transpose : uint8_t { kLastAxes, kFirstAxes };
Result<Graph> share_transposes(const Graph& graph, Transpose transpose);

// Turns a convolution of few channels whose windows lie side by side and are long (the patches of a
// vision transformer) into a matmul: a row for each patch, which a copy of the image has in order.
Result<Graph> patch_convolutions(const Graph& graph);

// Computes images channels last (channels_last.h): what convolutions give for others like them to
// read, and arithmetic, joins, parts and sums of it. A convolution of single elements becomes a
// matmul of rows. Other convolutions are followed by a View that puts their channels last, and
// others' operands come through one that puts them second. A graph with a convolution of groups of
// several channels, or without two that follow each other, stays as it is; so does one that mixes groups of
// one channel with half as many convolutions whose results no kernel stores channels last.
Result<Graph> keep_channels_last(const Graph& graph);

// Rounds a product before it is read, where several Views read it, or one in an order that no product is
// stored in, and each rounds to the same half type, maybe behind a Select. The product then takes half
// the bytes. Each View may also add a bias first, one element for each column or, of a convolution, for
// each channel: queries, keys and values become Views of one stored matmul, windows of an image Views
// of its patches. A convolution whose readers all have the channels as their last axis is stored so, if
// kernels can (may_end_channels_last).
Result<Graph> round_products(const Graph& graph);

// Reads elements of a value that the graph also computes whole, instead of computing them again.
// Applies to halves made of two large values or more. Normalisation carries Views up to the inputs, so
// that a model which reads windows of its residual stream has every sum twice: for the stream, and for
// the windows.
Result<Graph> share_parts(const Graph& graph);

// Does arithmetic with constants on some columns of a product where the product is stored, if all else
// reads other columns: queries that are scaled, of a product that gives queries, keys and values.
Result<Graph> fold_column_arithmetic(const Graph& graph);

// Picks elements of a table in the order of the one View that reads them, where that repeats them and its
// last axis is not the rows' own: the biases of an attention's positions, which lie in a table with the
// heads last, and which every batch reads with the keys last. What is stored is then read along its rows.
// An index that is computed leaves them as they are: it would be stored for it.
Result<Graph> order_gathers(const Graph& graph);

// Decides how the operands and results of matmuls are laid out: layers that are written alike are
// partitioned alike, and what is stored is small and read along its rows.
//  - An operand that is computed for one matmul only takes the order in which its inputs lie in
//    memory, and the matmul reads it transposed.
//  - Where two products meet, the one with more arithmetic on its way comes second, so that its
//    epilogue reads the other's result. Which of them canonical order puts first differs from layer
//    to layer.
Result<Graph> arrange_products(const Graph& graph);

}  // namespace kiln

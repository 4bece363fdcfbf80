// How the operands and results of matmuls are laid out and met, decided before a graph is cut:
// layers that are written alike are to be cut alike, and what is stored is to be small and read
// along its rows.
#pragma once

#include "compiler_core/ir/graph.h"

namespace kiln {

// Makes a matmul of one column with one row what it is: products of elements, which fuse with what
// reads them. Before broadcasts are sunk: it leaves some to sink.
Result<Graph> multiply_outer_products(const Graph& graph);

// The same outputs, where
//  - a product that is read through several Views, and rounded to one half type in each, is rounded
//    first and read then: half the bytes;
//  - an operand that is computed for one matmul only stands in the order in which what it is
//    computed from lies in memory, and is read turned;
//  - where two products meet, the one with more arithmetic on its way comes second, so that its
//    epilogue reads the other's result. Which of them canonical order puts first differs from layer
//    to layer.
Result<Graph> arrange_products(const Graph& graph);

}  // namespace kiln

// Where a kernel that writes one row of its outputs (plan/row_update.h) is in them. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/plan/row_update.h"
#include "compiler_core/program/artifact.h"

namespace kiln {

// Puts the row's place in between those of the other axes. `row`: the variable that says which it is;
// "" where none is declared yet. Returns that variable. Where the index is none of a row, it is the
// nearest, which stays as it is: is_there is false of it.
std::string put_into_row(const Graph& graph, const RowUpdate& update, std::string row,
                         ExpressionPrinter& printer, std::vector<Index>& place);

std::vector<KeptOutput> kept_outputs(const Graph& graph, const RowUpdate& update);

}  // namespace kiln

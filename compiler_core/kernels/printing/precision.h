// How exact the values of a graph have to be: what every node's users do with it. Pure functions,
// one answer a node.
#pragma once

#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// Nodes whose NaNs have no payload that rounding to bf16 could carry into infinity or zero: those
// that no input of a wider type reaches.
std::vector<bool> find_plain_nans(const Graph& graph);

// Nodes whose values end in halves, however they go on: rounded to one last, or stored as one. What
// an integer, a condition or a wider output takes from a node does not.
std::vector<bool> find_ending_in_halves(const Graph& graph);

// Nodes of which nothing but halves is stored, by whatever steps. A rounding to halves on the way may be
// left out there, and nowhere else: in front of an integer or a wider output it would be missed by half
// of a half's last place, a whole unit of the integer.
std::vector<bool> find_stored_as_halves(const Graph& graph);

}  // namespace kiln

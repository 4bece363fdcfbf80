// Sums of parts, each padded with zeros to the whole: what autograd makes of the parts that a value was
// split into (q, k and v of one product). They are the parts, one after the other.
#pragma once

#include "compiler_core/ir/builder.h"

namespace kiln {

// What add(x, y) is where it adds up Pads with 0.0, each of a part of one axis, which together cover it:
// their Concat, plus 0.0, since a sum has no -0.0 there. Half types may be rounded to on the way.
// kInvalidNode: it is none.
NodeId joined_pads(GraphBuilder& b, NodeId x, NodeId y);

}  // namespace kiln

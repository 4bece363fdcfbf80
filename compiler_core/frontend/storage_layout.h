// How a tensor that was exported with strides lies in memory: its graph input is the flat storage.
#pragma once

#include "compiler_core/frontend/exported_program.h"

namespace kiln {

// Whether `strides` walk a dense row-major tensor of `shape`.
bool is_row_major(const Shape& shape, const std::vector<Dim>& strides);

// `logical` (of input.shape) as the graph's input takes it: itself when row-major, else the flat
// storage with every element in its place. kUnsupported for dynamic sizes.
Result<Tensor> to_storage(const Tensor& logical, const ExportedInput& input);

}  // namespace kiln

// The parts of ONNX that are not covered: why, and what to do instead.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/frontend/onnx/model.h"

namespace kiln {

// One sentence on the op, which has no lowering: why and what to do.
std::string onnx_refusal(const OnnxNode& node);

// "node '/layer1/conv' (Conv)"; by its first output where it has no name.
std::string onnx_place(const OnnxNode& node);

// kUnsupported naming every op of the model that has no lowering: how often it is used, where first,
// and what to do. Also when the operator set is none of those that are read.
Status refuse_uncovered_onnx_ops(const OnnxModel& model);

}  // namespace kiln

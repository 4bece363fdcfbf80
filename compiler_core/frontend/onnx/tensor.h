// The elements of an ONNX tensor, from the model's file or from one beside it. Pure functions but
// for reading files.
#pragma once

#include <filesystem>
#include <optional>

#include "compiler_core/base/tensor.h"
#include "compiler_core/frontend/onnx/model.h"

namespace kiln {

// Whether the tensor's elements are there: false when they lie in a file that is missing.
// `folder`: the model's; nothing for a model that is no file, whose tensors may not be external.
// kInvalidArgument: their number or size does not match the shape, or the external file is not a
// regular file below `folder` (its path is absolute, leads out of the folder, or is a link that
// does). kUnsupported: a data type that Kiln lacks.
Result<bool> has_elements(const OnnxTensor& tensor,
                          const std::optional<std::filesystem::path>& folder);

// The elements. Errors as has_elements(); kNotFound: the external file is missing.
Result<Tensor> read_onnx_tensor(const OnnxTensor& tensor,
                                const std::optional<std::filesystem::path>& folder);

}  // namespace kiln

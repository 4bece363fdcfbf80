// Reads an ONNX model (opsets 11 to 24) onto the core ops, most of them by way of what ATen's
// ops mean, so that a model exported both ways is one graph where the exporters agree. Pure
// functions but for reading files.
//
// A model never takes more memory than eight times its size and 256 MiB before it is refused.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "compiler_core/frontend/exported_program.h"

namespace kiln {

// Whether a file that begins so is taken for an ONNX model.
bool is_onnx(std::string_view head);

// `folder`: where external data lies; nothing for a model that is no file. Errors as for
// read_exported_program(); those of a node name it.
Result<ExportedProgram> read_onnx_bytes(std::string_view bytes,
                                        const std::optional<std::filesystem::path>& folder);
Result<ExportedProgram> read_onnx_file(const std::filesystem::path& path);

// Whether an input's payload lies in an ONNX model, and its bytes, as read_payload() has them.
bool is_onnx_payload(std::string_view payload);
Result<Tensor> read_onnx_payload(const std::filesystem::path& path, const ExportedInput& input);

}  // namespace kiln

// From an ONNX model to the core graph: its inputs, its nodes one after the other, its outputs.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/onnx/call.h"

namespace kiln {

// `bytes`: what `model` looks into, and where its tensors' payloads are counted from. Errors and
// `folder` as for read_onnx_bytes().
Result<ExportedProgram> lower_onnx_model(const OnnxModel& model, std::string_view bytes,
                                         const std::optional<std::filesystem::path>& folder);

// The results of a node whose operands are all known, when few elements say them: evaluated by the
// oracle, or, of symbolic sizes, moved about or added up (shape arithmetic). Nothing when they must
// be computed at run time.
std::optional<std::vector<KnownTensor>> fold_onnx_node(
    const OnnxNode& node, const OnnxLowering& lowering, int64_t version,
    std::span<const Symbol> symbols, const std::vector<const KnownTensor*>& operands);

}  // namespace kiln

// The safetensors format: 8 bytes little-endian header length, JSON header, then the data.
// https://huggingface.co/docs/safetensors
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "compiler_core/base/tensor.h"

namespace kiln {

// kInvalidArgument when truncated, overlapping, out of range or of an uncovered dtype.
Result<std::map<std::string, Tensor>> read_safetensors(const std::filesystem::path& path);
Result<std::map<std::string, Tensor>> parse_safetensors(std::string_view bytes);
Status write_safetensors(const std::filesystem::path& path,
                         const std::map<std::string, const Tensor*>& tensors);

}  // namespace kiln

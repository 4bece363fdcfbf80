// How wgmma kernels of attention and of its gradient read tokens: boxes of a head, brought by the copy
// engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/kernels/attention/attention_problem.h"
#include "compiler_core/program/tensor_map.h"

namespace kiln {

inline constexpr int64_t kBoxWidth = 64;  // elements: a row of 128 bytes

// Whether the copy engine can read it.
bool is_mappable(const AttentionOperand& operand);

// `tokens` rows of `width` elements of `dtype`, of all batches, in boxes of `box` tokens and kBoxWidth elements.
TensorMap operand_map(const AttentionOperand& operand, const std::vector<Dim>& batch, DType dtype,
                      const Dim& tokens, int64_t width, int64_t box);

// The coordinates of a box in that map, C text in `column`, `token` and `batch`, and how many.
std::pair<int, std::string> print_box_place(const AttentionOperand& operand,
                                            const std::vector<Dim>& batch);

// A member `name`, the map, and bring_NAME(to, barrier, token, column, batch).
std::string print_bring(std::string_view name, const AttentionOperand& operand,
                        const std::vector<Dim>& batch);

}  // namespace kiln

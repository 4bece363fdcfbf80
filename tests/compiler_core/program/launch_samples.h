// Recipes with what later versions of the manifest can say.
#pragma once

#include "compiler_core/program/program.h"

namespace kiln::samples {

// d[4, 32] = a[4, 64] b[32, 64]^T + bias[32], through cuBLASLt.
inline Recipe library_recipe() {
  Recipe recipe;
  recipe.inputs = {{DType::kBF16, {4, 64}}, {DType::kBF16, {32, 64}}, {DType::kBF16, {32}}};
  recipe.outputs = {{DType::kBF16, {4, 32}}};
  LibraryCall call;
  call.library = "cublaslt";
  call.version = "130100";
  call.m = 4, call.n = 32, call.k = 64;
  call.a = {0, DType::kBF16, false, 64, 0};
  call.b = {1, DType::kBF16, true, 64, 0};
  call.d = {3, DType::kBF16, false, 32, 0};
  call.epilogue = "bias";
  call.bias = 2;
  call.rank = 2;
  recipe.phases.resize(1);
  recipe.phases[0].call = call;
  recipe.workspace_bytes = kLibraryWorkspaceBytes;
  return recipe;
}

// The same operands by a kernel that reads a through a tensor map.
inline Recipe mapped_recipe() {
  Recipe recipe = library_recipe();
  recipe.workspace_bytes = 0;
  Phase phase{"product", 8, 128, 2, 1024};
  phase.dependent_launch = DependentLaunch::kInTurn;
  TensorMap map;
  map.dtype = DType::kBF16;
  map.sizes = {64, 4};
  map.strides = {128};
  map.box = {64, 4};
  map.element_strides = {1, 1};
  map.swizzle = 128;
  map.l2_promotion = 256;
  using enum KernelArgument::Kind;
  phase.arguments = {{kTensorMap, 0, map}, {kBuffer, 1}, {kBuffer, 2}, {kBuffer, 3}, {kWorkspace}};
  recipe.phases = {phase};
  return recipe;
}

// The same by a kernel that reads b early where it may, as version 3 can say.
inline Recipe early_recipe() {
  Recipe recipe = mapped_recipe();
  using enum KernelArgument::Kind;
  recipe.phases[0].arguments = {{kBuffer, 0}, {kBuffer, 1}, {kBuffer, 2},
                                {kBuffer, 3}, {kWorkspace}, {kReady, 1}};
  return recipe;
}

// A kernel that writes some of its output, which is the input's else, as version 4 can say.
inline Recipe updating_recipe() {
  Recipe recipe;
  recipe.inputs = {{DType::kI64, {}}, {DType::kF32, {4, 64}}};
  recipe.outputs = {{DType::kF32, {4, 64}}};
  recipe.phases = {{"update", 1, 64}};
  recipe.kept = {{0, 1}};
  return recipe;
}

}  // namespace kiln::samples

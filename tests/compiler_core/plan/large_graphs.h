// Graphs of any number of nodes, of the forms that programs grow in: for what must be linear in it
// and must not recurse over it.
#pragma once

#include <vector>

#include "compiler_core/ir/builder.h"

namespace kiln::testing {

// One value after the other: arithmetic alone. As deep as it has nodes.
inline Graph deep_chain(int nodes) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  NodeId y = x;
  constexpr Op kOps[] = {Op::kSin, Op::kAbs, Op::kTanh};
  for (int i = 0; b.ok() && i < nodes - 1; ++i)
    y = i % 4 == 3 ? b.binary(Op::kAdd, y, x) : b.unary(kOps[i % 4], y);
  return *b.finish({y});
}

// Arithmetic between rearrangements that do not compose with each other.
inline Graph deep_views(int nodes) {
  GraphBuilder b;
  NodeId y = b.input(DType::kF32, {2, 3, 4});
  for (int i = 0; i < nodes / 3; ++i) {
    y = b.reshape(b.permute(y, {2, 1, 0}), {2, 3, 4});
    if (i % 2 == 0) y = b.unary(Op::kSin, y);
  }
  return *b.finish({y});
}

// Rearrangements alone: three reshapes of a permutation never compose.
inline Graph only_views(int nodes) {
  GraphBuilder b;
  NodeId y = b.input(DType::kF32, {2, 3, 4});
  for (int i = 0; i < nodes; ++i) y = b.reshape(b.permute(y, {2, 1, 0}), {2, 3, 4});
  return *b.finish({y});
}

// Every value is used twice, through two rearrangements: one reading of the last is 2^depth of the
// first.
inline Graph doubling_views(int nodes) {
  GraphBuilder b;
  NodeId y = b.input(DType::kF32, {2, 3, 4});
  for (int i = 0; i < nodes / 4; ++i) {
    const NodeId a = b.reshape(b.permute(y, {2, 1, 0}), {2, 3, 4});
    const NodeId c = b.reshape(b.permute(y, {1, 0, 2}), {2, 3, 4});
    y = b.binary(Op::kAdd, a, c);
  }
  return *b.finish({y});
}

// A sum of very many inputs, as a tree.
inline Graph wide_sum(int nodes) {
  GraphBuilder b;
  std::vector<NodeId> level;
  for (int i = 0; i < nodes / 2; ++i) level.push_back(b.input(DType::kF32, {4}));
  while (level.size() > 1) {
    std::vector<NodeId> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(b.binary(Op::kAdd, level[i], level[i + 1]));
    if (level.size() % 2 == 1) next.push_back(level.back());
    level = std::move(next);
  }
  return *b.finish({level[0]});
}

// Very many results of one input.
inline Graph many_outputs(int nodes) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {4});
  std::vector<NodeId> outputs;
  for (int i = 0; i < nodes / 3; ++i) {
    const NodeId c = b.broadcast(b.constant(DType::kF32, i), {4});
    outputs.push_back(b.binary(Op::kMul, x, c));
  }
  return *b.finish(std::move(outputs));
}

// Layers: a normalised row, a matmul with its own weight and bias, an activation, a residual.
inline Graph layers(int nodes) {
  GraphBuilder b;
  constexpr int64_t kWidth = 8;
  const Shape shape = {2, kWidth};
  NodeId y = b.input(DType::kF32, shape);
  for (int i = 0; i < nodes / 12; ++i) {
    const NodeId most = b.broadcast(b.reduce(Op::kReduceMax, y, {1}, true), Shape(shape));
    const NodeId weight = b.input(DType::kF32, {kWidth, kWidth}),
                 bias = b.input(DType::kF32, {kWidth});
    const NodeId product = b.matmul(b.binary(Op::kSub, y, most), weight);
    const NodeId h =
        b.unary(Op::kTanh, b.binary(Op::kAdd, product, b.broadcast(bias, Shape(shape))));
    y = b.binary(Op::kAdd, y, h);
  }
  return *b.finish({y});
}

struct LargeGraph {
  const char* name;
  Graph (*make)(int nodes);
};
inline constexpr LargeGraph kLargeGraphs[] = {
    {"deep_chain", deep_chain}, {"deep_views", deep_views},
    {"only_views", only_views}, {"doubling_views", doubling_views},
    {"wide_sum", wide_sum},     {"many_outputs", many_outputs},
    {"layers", layers}};

}  // namespace kiln::testing

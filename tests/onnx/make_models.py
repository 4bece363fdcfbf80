"""Writes the models of tests/graphs/onnx as cases of ONNX's own layout: model.onnx, and inputs and outputs by ONNX's
reference evaluator. Run by hand, with `onnx` from PyPI: python3 tests/onnx/make_models.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HERE = Path(__file__).resolve().parent.parent / "graphs" / "onnx"
rng = np.random.default_rng(7)


def weight(*shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(max(shape[-1], 1))).astype(np.float32)


class Graph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray, name: str = "") -> str:
        name = name or f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"{op.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"/{op}_{len(self.nodes)}", **attributes))
        return names[0]

    def save(self, name: str, inputs: dict[str, tuple[list[int | str], np.ndarray]], output: str,
             sizes: list[int | str], opset: int) -> None:
        graph = helper.make_graph(
            self.nodes, name,
            [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(data.dtype), shape)
             for key, (shape, data) in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, sizes)], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
        onnx.checker.check_model(model)
        folder = HERE / name / "test_data_set_0"
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(model, folder.parent / "model.onnx")
        feeds = {key: data for key, (_, data) in inputs.items()}
        expected = ReferenceEvaluator(model).run(None, feeds)
        for i, data in enumerate(feeds.values()):
            (folder / f"input_{i}.pb").write_bytes(numpy_helper.from_array(data).SerializeToString())
        for i, data in enumerate(expected):
            (folder / f"output_{i}.pb").write_bytes(numpy_helper.from_array(data).SerializeToString())


def convolutions() -> None:
    """A residual block with a depthwise and a strided convolution, a batch norm, pools and a classifier."""
    g = Graph()
    x = g.op("Conv", "image", g.constant(weight(6, 3, 3, 3), "stem.weight"), g.constant(weight(6), "stem.bias"),
             auto_pad="SAME_UPPER")
    x = g.op("BatchNormalization", x, g.constant(np.abs(weight(6)) + 1), g.constant(weight(6)), g.constant(weight(6)),
             g.constant(np.abs(weight(6)) + 1))
    x = g.op("Clip", x, g.constant(np.float32(0)), g.constant(np.float32(6)))
    y = g.op("Conv", x, g.constant(weight(6, 1, 3, 3)), group=6, pads=[1, 1, 1, 1])
    x = g.op("Add", x, g.op("HardSwish", y))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = g.op("Resize", x, "", g.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    x = g.op("GlobalAveragePool", x)
    x = g.op("Flatten", x)
    x = g.op("Gemm", x, g.constant(weight(5, 6), "head.weight"), g.constant(weight(5), "head.bias"), transB=1)
    x = g.op("Softmax", x)
    g.save("convolutions", {"image": (["n", 3, 16, 16], rng.standard_normal((2, 3, 16, 16)).astype(np.float32))}, x,
           ["n", 5], 14)


def attention() -> None:
    """A transformer block over tokens of dynamic batch and length: shapes are computed from Shape, as exporters do."""
    width, heads = 16, 4
    g = Graph()
    index = [g.constant(np.int64(i)) for i in range(3)]
    front = g.constant(np.array([0]))
    x = g.op("Gather", g.constant(weight(50, width), "embedding.weight"), "tokens")
    shape = g.op("Shape", x)
    batch, length = (g.op("Unsqueeze", g.op("Gather", shape, index[i]), front) for i in (0, 1))
    by_head = g.op("Concat", batch, length, g.constant(np.array([heads])), g.constant(np.array([-1])), axis=0)
    whole = g.op("Concat", batch, length, g.constant(np.array([width])), axis=0)
    y = g.op("LayerNormalization", x, g.constant(np.ones(width, np.float32)), g.constant(np.zeros(width, np.float32)))

    def projected() -> str:
        return g.op("Transpose", g.op("Reshape", g.op("MatMul", y, g.constant(weight(width, width))), by_head),
                    perm=[0, 2, 1, 3])

    q, k, v = projected(), projected(), projected()
    scores = g.op("Div", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.constant(np.float32(2)))
    line = g.op("Range", index[0], g.op("Gather", shape, index[1]), index[1])
    future = g.op("Less", g.op("Unsqueeze", line, g.constant(np.array([1]))), g.op("Unsqueeze", line, front))
    scores = g.op("Where", future, g.constant(np.float32(-1e9)), scores)
    mixed = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores), v), perm=[0, 2, 1, 3])
    x = g.op("Add", x, g.op("MatMul", g.op("Reshape", mixed, whole), g.constant(weight(width, width))))
    h = g.op("MatMul", x, g.constant(weight(width, 32)))
    h = g.op("Mul", g.op("Mul", h, g.op("Add", g.op("Erf", g.op("Div", h, g.constant(np.float32(np.sqrt(2))))),
                                        g.constant(np.float32(1)))), g.constant(np.float32(0.5)))
    x = g.op("Add", x, g.op("MatMul", h, g.constant(weight(32, width))))
    g.save("attention", {"tokens": (["batch", "length"], rng.integers(0, 50, (2, 5)))}, x, ["batch", "length", width], 17)


def quantised() -> None:
    """A linear layer whose weight is int8, a scale a row, and whose activations are quantised."""
    g = Graph()
    codes = rng.integers(-127, 128, (8, 12)).astype(np.int8)
    w = g.op("DequantizeLinear", g.constant(codes, "weight"), g.constant(np.abs(weight(8)) / 50 + 0.001),
             g.constant(np.zeros(8, np.int8)), axis=0)
    scale, zero = g.constant(np.float32(0.05)), g.constant(np.uint8(128))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", "x", scale, zero), scale, zero)
    x = g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0]))
    values = g.op("TopK", x, g.constant(np.array([3])), outputs=2)
    x = g.op("ReduceSum", values, g.constant(np.array([1])), keepdims=0)
    g.save("quantised", {"x": ([4, 12], rng.standard_normal((4, 12)).astype(np.float32))}, x, [4], 19)


for make in (convolutions, attention, quantised):
    make()

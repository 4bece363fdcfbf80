"""From FX nodes of AOTAutograd to the graph that Kiln reads: the JSON of torch.export's ``models/model.json``.

torch's own serializer refuses raw AOT graphs and takes ten times as long. The form is that of
torch/_export/serde/schema.py, major version 8.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

from kiln._arrays import dense_strides

SCALAR_TYPES: dict[torch.dtype, int] = {
    torch.uint8: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.float16: 6,
    torch.float32: 7, torch.float64: 8, torch.complex32: 9, torch.complex64: 10, torch.complex128: 11,
    torch.bool: 12, torch.bfloat16: 13, torch.float8_e4m3fn: 29, torch.float8_e5m2: 30,
    torch.float8_e8m0fnu: 33}
_STRIDED = 7
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class NotEmittable(Exception):
    """A node whose arguments the schema, or Kiln, has no form for."""


def value_of(node: fx.Node) -> Any:
    """The value that torch inferred for a node: a FakeTensor, a symbolic number, or a tuple of them."""
    return node.meta.get("val")


def frames_that_count(trace: str) -> str:
    """A stack trace without the frames that Kiln does not look at: it keeps the innermost one, the innermost outside of
    torch and the innermost of no package (compiler_core/frontend/source_line.cc). Most of a model's graph is traces."""
    frames = re.split(r'^(?=\s*File ")', trace, flags=re.MULTILINE)[1:]
    if not frames:
        return trace
    files = [frame.split('"', 2)[1] for frame in frames]
    kept = {len(frames) - 1}
    for foreign in ("-packages/torch/", "-packages/"):
        kept.update([index for index, file in enumerate(files) if foreign not in file and file[:1] != "<"][-1:])
    return "".join(frames[index] for index in sorted(kept))


def foreign_layout(node: fx.Node) -> str | None:
    """Why a node reads weights that torch packs otherwise on this machine than Kiln reads them, if it does."""
    if str(node.target) != "aten._weight_int4pack_mm_for_cpu.default":
        return None
    capability = torch.backends.cpu.get_cpu_capability()
    if capability == "AVX512":
        return None
    return f"reads weights as machines with AVX-512 pack them; torch runs with {capability} here"


def is_symbolic(node: fx.Node) -> bool:
    """Whether a node computes a number of sizes, which needs no kernel."""
    value = value_of(node)
    return node.op == "call_function" and isinstance(value, (*_SYMBOLIC, int, float, bool))


class _Symbols:
    """Sizes as the schema writes them, and the ranges of the symbols in them."""

    def __init__(self, takes_one: bool) -> None:
        self._takes_one = takes_one
        self.ranges: dict[str, dict[str, int | None]] = {}
        self._written: dict[Any, dict[str, Any]] = {}

    def size(self, size: int | torch.SymInt) -> dict[str, Any]:
        if not isinstance(size, torch.SymInt):
            return {"as_int": int(size)}
        expression = size.node.expr
        written = self._written.get(expression)
        if written is None:
            written = self._written[expression] = self._write(size, expression)
        return written

    def _write(self, size: torch.SymInt, expression: Any) -> dict[str, Any]:
        if expression.is_Integer:
            return {"as_int": int(expression)}
        import sympy

        environment = size.node.shape_env
        for symbol in expression.free_symbols:
            bounds = environment.var_to_range.get(symbol)
            if str(symbol) not in self.ranges and bounds is not None:
                least = _bound(bounds.lower)
                self.ranges[str(symbol)] = {"min_val": 1 if least == 2 and self._takes_one else least,
                                            "max_val": _bound(bounds.upper)}
        hint = size.node.hint
        return {"as_expr": {"expr_str": sympy.srepr(expression),
                            "hint": {"as_int": int(hint)} if isinstance(hint, int) else None}}


def _bound(bound: Any) -> int | None:
    """None: no bound, which sympy writes as an infinity."""
    return int(bound) if bound.is_Integer and abs(int(bound)) < 2**62 else None


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class Emitter:
    """One graph in the making. Nodes are added in order, after what they read.

    ``takes_one``: sizes that torch takes to be 2 or more, since it makes graphs of 0 and 1 their own, can be 1 too.
    """

    def __init__(self, *, takes_one: bool = False) -> None:
        self._symbols = _Symbols(takes_one)
        self._inputs: list[dict[str, Any]] = []
        self._nodes: list[dict[str, Any]] = []
        self._tensors: dict[str, Any] = {}
        self._numbers: dict[str, Any] = {}
        self._outputs: list[dict[str, Any]] = []
        self._same: dict[str, str] = {}  # a second getitem of one output, and the first
        self._views = 0

    def add_input(self, name: str, value: torch.Tensor, strides: Sequence[int | torch.SymInt] | None = None) -> None:
        """``strides``: others than the value's."""
        self._declare(name, value, value.shape, value.stride() if strides is None else strides)
        self._inputs.append({"as_tensor": {"name": name}})

    def add_node(self, node: fx.Node) -> None:
        """Raises NotEmittable, and then nothing was added."""
        inputs = self._arguments(node)
        outputs = self._results(node)
        trace = node.meta.get("stack_trace")
        metadata = {"stack_trace": frames_that_count(trace)} if trace else {}
        self._nodes.append({"target": f"torch.ops.{node.target}", "inputs": inputs, "outputs": outputs,
                            "metadata": metadata})

    def add_getitem(self, node: fx.Node) -> None:
        """An output of a node that was added: it has its name already, or is one more name of it."""
        producer, index = node.args
        assert isinstance(producer, fx.Node)
        first = next(user for user in producer.users if user.target is operator.getitem and user.args[1] == index)
        if first is not node:
            self._same[node.name] = first.name

    def add_probe(self, node: fx.Node) -> None:
        """A reader of an output, which is refused where the op that Kiln has does not give that output."""
        name = f"{node.name}_probe"
        self._declare(name, value_of(node), value_of(node).shape, value_of(node).stride())
        self._nodes.append({"target": "torch.ops.aten.alias.default",
                            "inputs": [{"name": "self", "arg": {"as_tensor": self._tensor(node)}, "kind": 1}],
                            "outputs": [{"as_tensor": {"name": name}}], "metadata": {}})

    def add_output(self, name: str, value: torch.Tensor, order: Sequence[int] | None = None) -> None:
        """``order``: the axes in which its elements lie, where that is not row-major."""
        name = self._same.get(name, name)
        if order is not None:
            self._views += 1
            permuted = f"kiln_permuted_{self._views}"
            shape = [value.shape[axis] for axis in order]
            self._declare(permuted, value, shape, dense_strides(shape))
            self._nodes.append({
                "target": "torch.ops.aten.permute.default",
                "inputs": [{"name": "self", "arg": {"as_tensor": {"name": name}}, "kind": 1},
                           {"name": "dims", "arg": {"as_ints": list(order)}, "kind": 1}],
                "outputs": [{"as_tensor": {"name": permuted}}], "metadata": {}})
            name = permuted
        self._outputs.append({"as_tensor": {"name": name}})

    def to_json(self) -> bytes:
        """The bytes that kiln_compile takes."""
        graph = {"inputs": self._inputs, "outputs": self._outputs, "nodes": self._nodes,
                 "tensor_values": self._tensors, "sym_int_values": self._numbers, "sym_bool_values": {},
                 "sym_float_values": {}, "custom_obj_values": {}, "is_single_tensor_return": False}
        signature = {"input_specs": [{"user_input": {"arg": each}} for each in self._inputs],
                     "output_specs": [{"user_output": {"arg": each}} for each in self._outputs]}
        return json.dumps({"schema_version": {"major": 8, "minor": 8}, "opset_version": {},
                           "range_constraints": self._symbols.ranges, "torch_version": torch.__version__,
                           "graph_module": {"graph": graph, "signature": signature, "module_call_graph": []}},
                          allow_nan=False).encode()

    def _declare(self, name: str, value: torch.Tensor, shape: Iterable[int | torch.SymInt],
                 strides: Iterable[int | torch.SymInt]) -> None:
        if value.dtype not in SCALAR_TYPES or value.layout is not torch.strided:
            raise NotEmittable(f"a tensor of {value.dtype}, {value.layout}")
        size = self._symbols.size
        self._tensors[name] = {
            "dtype": SCALAR_TYPES[value.dtype], "sizes": [size(each) for each in shape], "requires_grad": False,
            "device": {"type": value.device.type, "index": value.device.index},
            "strides": [size(each) for each in strides], "storage_offset": {"as_int": 0}, "layout": _STRIDED}

    def _tensor(self, node: fx.Node) -> dict[str, Any]:
        name = self._same.get(node.name, node.name)
        if name not in self._tensors:
            raise NotEmittable(f"reads {node.name}, which is no tensor that Kiln has")
        return {"name": name}

    def _named_number(self, node: fx.Node) -> dict[str, Any]:
        value = value_of(node)
        if isinstance(value, torch.SymInt):
            written = self._symbols.size(value)
            if "as_int" in written:
                return written
            self._numbers[node.name] = written
            return {"as_name": node.name}
        if isinstance(value, int) and not isinstance(value, bool):
            return {"as_int": value}
        raise NotEmittable("takes a symbolic number that is no integer")

    def _arguments(self, node: fx.Node) -> list[dict[str, Any]]:
        schema = getattr(node.target, "_schema", None)
        if not isinstance(node.target, torch._ops.OpOverload) or schema is None:
            raise NotEmittable("is no ATen op")
        named = []
        for index, argument in enumerate(schema.arguments):
            if argument.name in node.kwargs:
                value, kind = node.kwargs[argument.name], 2
            elif index < len(node.args) and not argument.kwarg_only:
                value, kind = node.args[index], 1
            else:
                continue
            named.append({"name": argument.name, "arg": self._argument(value, str(argument.type)), "kind": kind})
        return named

    def _argument(self, value: Any, declared: str) -> dict[str, Any]:
        if value is None:
            return {"as_none": True}
        if isinstance(value, fx.Node):
            if isinstance(value_of(value), torch.Tensor):
                return {"as_tensor": self._tensor(value)}
            number = self._named_number(value)
            return {"as_int": number["as_int"]} if "as_int" in number else {"as_sym_int": number}
        if isinstance(value, bool):
            return {"as_bool": value}
        if isinstance(value, int):
            # A float argument given as an integer is a float; of a Scalar the kind decides the dtype.
            return {"as_float": float(value)} if declared in ("float", "Optional[float]") else {"as_int": value}
        if isinstance(value, float):
            return {"as_float": _number(value)}
        if isinstance(value, str):
            return {"as_string": value}
        if isinstance(value, torch.dtype):
            if value not in SCALAR_TYPES:
                raise NotEmittable(f"takes {value}")
            return {"as_scalar_type": SCALAR_TYPES[value]}
        if isinstance(value, torch.device):
            return {"as_device": {"type": value.type, "index": value.index}}
        if isinstance(value, torch.memory_format):
            return {"as_memory_format": 1}
        if isinstance(value, torch.layout):
            return {"as_layout": _STRIDED}
        if isinstance(value, (list, tuple)):
            return self._list(value)
        raise NotEmittable(f"takes a {type(value).__name__}")

    def _list(self, values: Sequence[Any]) -> dict[str, Any]:
        nodes = [value for value in values if isinstance(value, fx.Node)]
        if any(isinstance(value_of(node), torch.Tensor) for node in nodes):
            if len(nodes) == len(values):
                return {"as_tensors": [self._tensor(node) for node in nodes]}
            if all(value is None or isinstance(value, fx.Node) for value in values):
                return {"as_optional_tensors": [
                    {"as_none": True} if value is None else {"as_tensor": self._tensor(value)} for value in values]}
            raise NotEmittable("takes a list of tensors and others")
        if nodes:
            return {"as_sym_ints": [self._named_number(value) if isinstance(value, fx.Node) else {"as_int": int(value)}
                                    for value in values]}
        if all(isinstance(value, bool) for value in values) and values:
            return {"as_bools": list(values)}
        if all(isinstance(value, int) for value in values):
            return {"as_ints": list(values)}
        if all(isinstance(value, (int, float)) for value in values):
            return {"as_floats": [_number(float(value)) for value in values]}
        if all(value is None for value in values):
            return {"as_optional_tensors": [{"as_none": True}] * len(values)}
        raise NotEmittable("takes a list of another kind")

    def _results(self, node: fx.Node) -> list[dict[str, Any]]:
        value = value_of(node)
        if isinstance(value, torch.Tensor):
            self._declare(node.name, value, value.shape, value.stride())
            return [{"as_tensor": {"name": node.name}}]
        if not isinstance(value, (list, tuple)):
            raise NotEmittable(f"gives a {type(value).__name__}")
        users = {user.args[1]: user for user in reversed(list(node.users)) if user.target is operator.getitem}
        results: list[dict[str, Any]] = []
        for index, each in enumerate(value):
            name = users[index].name if index in users else f"{node.name}_unused_{index}"
            is_tensor = isinstance(each, torch.Tensor) and each.dtype in SCALAR_TYPES
            if each is None or not (is_tensor or (index in users and users[index].users)):
                results.append({"as_none": True})
            elif isinstance(each, torch.Tensor):
                self._declare(name, each, each.shape, each.stride())
                results.append({"as_tensor": {"name": name}})
            else:
                raise NotEmittable(f"gives a {type(each).__name__}")
        returns = node.target._schema.returns  # type: ignore[union-attr]
        if len(returns) == 1 and str(returns[0].type).startswith("List"):
            return [{"as_tensors": [result["as_tensor"] for result in results]}]
        return results

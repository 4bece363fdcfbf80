"""Partitions of an AOT graph that run in Kiln, and partitions that do not.

Levels: a node's level is the highest of what it reads, one more where support flips, so that even levels are
Kiln's and odd ones eager. One partition a level is acyclic by construction, and linear in the nodes. Nodes that
compute numbers of sizes belong to no partition: Kiln derives sizes from its tensors, and eager partitions copy
the nodes that they need.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from kiln._emit import Emitter, NotEmittable, foreign_layout, is_symbolic, value_of
from kiln._generator_state import drops_nothing
from kiln._in_place import is_final_write, is_write
from kiln._layout import layout_of
from kiln._torch import DTYPES
from kiln._triton_calls import is_memory_for_triton, is_triton_call
from kiln.client import refused_nodes
from kiln.errors import KilnError

_SIZE_OPS = frozenset({torch.ops.aten.sym_size.int, torch.ops.aten.sym_stride.int, torch.ops.aten.sym_numel.default,
                       torch.ops.aten.sym_storage_offset.default, torch.sym_float, torch.sym_int, torch.sym_max,
                       torch.sym_min, torch.sym_not, torch.sym_ite})
_DTYPES = frozenset(DTYPES.values())


def computes_size(node: fx.Node) -> bool:
    """Whether the node is arithmetic on sizes, which may be repeated wherever it is needed."""
    if not is_symbolic(node):
        return False
    module = getattr(node.target, "__module__", "")
    return node.target in _SIZE_OPS or module in ("_operator", "math") or \
        str(module).startswith("torch.utils._sympy")


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a node's value."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for each in value if isinstance(each, torch.Tensor)] if isinstance(value, (list, tuple)) else []


def _read_results(node: fx.Node) -> list[torch.Tensor]:
    """The node's value, or those of its values that somebody reads."""
    value = value_of(node)
    if not isinstance(value, (list, tuple)):
        return tensors_of(value)
    return [tensor for user in node.users if user.target is operator.getitem for tensor in tensors_of(value_of(user))]


#: These ops return views, though their schemas do not say so.
WRITES = "writes in place what the model was given"
_UNSAFE_VIEWS = frozenset({torch.ops.aten.unsafe_chunk.default, torch.ops.aten.unsafe_split.Tensor,
                           torch.ops.aten.unsafe_split_with_sizes.default})


def is_view(node: fx.Node) -> bool:
    """Whether the op only looks at its operand in another way."""
    if node.target is operator.getitem or node.target in _UNSAFE_VIEWS:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def is_random(node: fx.Node) -> bool:
    """Whether the op draws random numbers. Attention that drops nothing does not, though torch tags it so."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return not drops_nothing(node)


def is_inlined(node: fx.Node, not_kiln: Container[fx.Node]) -> bool:
    """Whether every partition that reads the node has a copy of it: arithmetic on sizes, and views of what the graph
    is given, which cost nothing."""
    if computes_size(node):
        return True
    if node.op != "call_function" or not is_view(node) or node in not_kiln or not isinstance(value_of(node),
                                                                                            torch.Tensor):
        return False
    return all(each.op in ("placeholder", "get_attr") or is_inlined(each, not_kiln) for each in node.all_input_nodes)


def has_effect(node: fx.Node) -> bool:
    """Whether the node does something besides its result; drawing random numbers is is_random()'s."""
    target = node.target
    if is_write(node):
        return True
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable) or target in torch.fx.node._side_effectful_functions
    return node.is_impure()


@dataclass
class Refusal:
    """A node that Kiln does not take, and why."""

    node: fx.Node
    why: str

    @property
    def op(self) -> str:
        return str(self.node.target)


@dataclass
class Partition:
    """Nodes that run together, in order."""

    in_kiln: bool
    nodes: list[fx.Node] = field(default_factory=list)


def main_device(graph: fx.Graph) -> torch.device:
    """The GPU when a tensor is there, else the CPU."""
    devices = {tensor.device for node in graph.nodes for tensor in tensors_of(value_of(node))}
    return next((each for each in devices if each.type != "cpu"), torch.device("cpu"))


#: Positions of results, of all images: with more, a convolution's gradient of its weights runs eager on a GPU.
MOST_POSITIONS = 1024


def sums_too_deep(node: fx.Node, device_type: str) -> bool:
    """Whether a convolution's gradient of its weights adds up so many products that Kiln's kernels for a GPU, which do
    not divide the depth of such sums, are slower than cuDNN's, and at last less exact than they may be."""
    if device_type != "cuda" or node.target is not torch.ops.aten.convolution_backward.default:
        return False
    wanted: Any = node.args[-1]
    gradient = value_of(node.all_input_nodes[0])
    if not wanted[1] or not all(isinstance(size, int) for size in gradient.shape):
        return False
    return bool(gradient.numel() > MOST_POSITIONS * gradient.shape[1])


def _refused_here(node: fx.Node, device: torch.device) -> str | None:
    """Why a node cannot run in Kiln, as far as that shows without asking it."""
    target = node.target
    if is_write(node):
        return WRITES
    if is_triton_call(node):
        return "is a Triton kernel: it is launched as Triton compiles it"
    if is_memory_for_triton(node):
        return "is memory that a Triton kernel fills"
    if not isinstance(target, torch._ops.OpOverload):
        return "is no ATen op"
    if is_random(node):
        return "is random: it runs eager, so that it gives the numbers of torch's generator"
    if has_effect(node):
        return "has an effect besides its result"
    if target is torch.ops.aten.as_strided.default:
        offset = value_of(node.all_input_nodes[0]).storage_offset()
        if isinstance(offset, torch.SymInt) or offset != 0:
            return "looks into the storage of a tensor that does not begin there"
    if sums_too_deep(node, device.type):
        return "adds up weights' gradients over many positions, which cuDNN does faster"
    around = _read_results(node)
    for operand in node.all_input_nodes:
        around += tensors_of(value_of(operand))
    for tensor in around:
        if tensor.device != device:
            return f"mixes devices: {tensor.device} and {device}"
        if type(tensor) is not torch._subclasses.FakeTensor and type(tensor) is not torch.Tensor \
                and not isinstance(tensor, torch.nn.Parameter):
            return f"has a tensor of class {type(tensor).__name__}"
        if tensor.layout is not torch.strided or tensor.dtype not in _DTYPES:
            return f"has a tensor of {tensor.dtype}" + ("" if tensor.layout is torch.strided else f", {tensor.layout}")
        if tensor.is_conj() or tensor.is_neg():
            return "has a tensor that is a lazy conjugate or negative"
        for size in tensor.shape:
            if isinstance(size, torch.SymInt) and not size.node.has_hint():
                return "has a size that is known only once it runs"
    return foreign_layout(node)


def _reason(op: str, why: str) -> str:
    """The library's reason against a node, without the op and the line, which the caller adds."""
    why = re.sub(r", used at [^;]*(; .*)?$", "", why, flags=re.DOTALL)
    return why.removeprefix(op).removeprefix(" is not covered: ").removeprefix(" - ").strip()


def _add_value(emitter: Emitter, name: str, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        try:
            emitter.add_input(name, value)
        except NotEmittable:
            return  # its readers are refused


def refusals(graph: fx.Graph, device: torch.device) -> list[Refusal]:
    """Every node that Kiln does not take with the arguments it has; getitem and arithmetic on sizes are nobody's."""
    emitter = Emitter()
    refused: list[Refusal] = []
    emitted: dict[fx.Node, None] = {}
    order: list[fx.Node] = []  # which node each of the emitted graph's stands for
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            _add_value(emitter, node.name, value_of(node))
        if node.op != "call_function" or computes_size(node) or is_final_write(node):
            continue
        if node.target is operator.getitem:
            if node.args[0] in emitted and isinstance(value_of(node), torch.Tensor):
                emitter.add_getitem(node)
                emitter.add_probe(node)
                order.append(node.args[0])
            else:
                _add_value(emitter, node.name, value_of(node))
            continue
        why = _refused_here(node, device)
        if why is None:
            try:
                emitter.add_node(node)
                emitted[node] = None
                order.append(node)
                continue
            except NotEmittable as error:
                why = str(error)
        refused.append(Refusal(node, why))
        _add_value(emitter, node.name, value_of(node))
    try:
        refused += [Refusal(order[index], _reason(op, why)) for index, op, why in refused_nodes(emitter.to_json())]
    except KilnError as error:
        refused = [Refusal(node, str(error)) for node in [*emitted, *(each.node for each in refused)]]
    return refused


def _levels(nodes: Iterable[fx.Node], in_kiln: set[fx.Node], not_kiln: Container[fx.Node]) -> dict[fx.Node, int]:
    levels: dict[fx.Node, int] = {}
    effects = 0
    for node in nodes:
        level = max((levels.get(operand, 0) for operand in node.all_input_nodes), default=0)
        if node.op == "call_function" and node.target is not operator.getitem and not is_inlined(node, not_kiln):
            kiln = node in in_kiln
            # Nodes that have an effect, or draw random numbers, keep their order.
            ordered = not kiln and not is_triton_call(node) and (
                has_effect(node) or not isinstance(node.target, torch._ops.OpOverload) or is_random(node))
            level = max(level, effects) if ordered else level
            level += (level % 2 == 0) != kiln
            effects = level if ordered else effects
        levels[node] = level
    return levels


def _views_behind(node: fx.Node) -> tuple[fx.Node, list[fx.Node]]:
    """The tensor in whose storage a node's value lies, and the views that lead from it to the node."""
    views = []
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        views += [node] if node.target is not operator.getitem else []
        node = node.all_input_nodes[0]
    return node, views


def _views_of_torch(refused: Iterable[fx.Node], returned: Iterable[fx.Node]) -> set[fx.Node]:
    """Views that torch has to make, since it counts that they lie in their base's storage: where several results lie in
    one tensor that the graph computes, what is later written into one is seen in the others; and as_strided looks at
    the storage itself."""
    sharing: dict[fx.Node, dict[fx.Node, list[fx.Node]]] = {}
    for node in returned:
        base, views = _views_behind(node)
        if base.op == "call_function":
            sharing.setdefault(base, {})[node] = views
    found = {view for results in sharing.values() if len(results) > 1 for views in results.values() for view in views}
    for node in refused:
        if "as_strided" in str(node.target):
            found.update(_views_behind(node.all_input_nodes[0])[1])
    return found


def partitions(graph: fx.Graph, refused: Iterable[Refusal], returned: Iterable[fx.Node] = ()) -> list[Partition]:
    """The graph's call_function nodes but final writes and those that are inlined, in the order in which they run.
    ``returned``: the results that the caller of the model sees."""
    nodes = [node for node in graph.nodes if not is_final_write(node)]
    not_kiln = {each.node for each in refused}
    not_kiln |= _views_of_torch(not_kiln, returned)
    # Torch makes what is returned with gaps between its elements.
    for node in reversed(nodes):
        value = value_of(node)
        gappy = node.op == "call_function" and isinstance(value, torch.Tensor) and not layout_of(value).dense
        if gappy and all(user.op == "output" or user in not_kiln for user in node.users):
            not_kiln.add(node)
    while True:
        in_kiln = {node for node in nodes if node.op == "call_function" and node not in not_kiln
                   and node.target is not operator.getitem}
        by_level: dict[int, Partition] = {}
        levels = _levels(nodes, in_kiln, not_kiln)
        for node in nodes:
            if node.op == "call_function" and not is_inlined(node, not_kiln):
                level = levels[node]
                by_level.setdefault(level, Partition(level % 2 == 0)).nodes.append(node)
        # Views alone are no work for a kernel: eager they cost nothing.
        idle = {node for each in by_level.values() if each.in_kiln and all(map(is_view, each.nodes))
                for node in each.nodes} & in_kiln
        if not idle:
            return [by_level[level] for level in sorted(by_level)]
        not_kiln |= idle

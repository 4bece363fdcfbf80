"""Triton kernels that a model calls, by hand or through ``torch.library.triton_op``: steps between Kiln's partitions.

AOTAutograd makes such a call functional: it clones every tensor that the kernel writes, and gives the clones. Here
memory that nothing else reads is written where it lies, which leaves no clone of what the model allocates for a kernel.
Torch names kernels by their place in a table of the process; a graph in a cache names them by what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_functional,
    triton_kernel_wrapper_mutation,
)

from kiln._emit import value_of
from kiln._layout import layout_of
from kiln.errors import NotFound

_aten = torch.ops.aten
_ALLOCATIONS = frozenset({_aten.empty.memory_format, _aten.empty_strided.default, _aten.empty_like.default,
                          _aten.new_empty.default, _aten.new_empty_strided.default})


def launch_triton(*, kwargs: dict[str, Any], written: list[str], **launch: Any) -> dict[str, Any]:
    """Launches a kernel, and gives the tensors that it has written, by their names. ``launch``: the rest of what
    torch's op takes, which differs between its versions."""
    traced = next((each for each in kwargs.values() if isinstance(each, fx.Proxy)), None)
    if traced is not None:  # PyTorch 2.10 traces a cached graph again when it loads it
        return traced.tracer.create_proxy(  # type: ignore[no-any-return]
            "call_function", launch_triton, (), {"kwargs": kwargs, "written": written, **launch})
    triton_kernel_wrapper_mutation(kwargs=kwargs, **launch)
    return {name: kwargs[name] for name in written}


def is_triton_call(node: fx.Node) -> bool:
    """Whether the node launches a Triton kernel."""
    return node.target is launch_triton


def is_memory_for_triton(node: fx.Node) -> bool:
    """Whether the node allocates what a Triton kernel fills: no work for a kernel of Kiln's."""
    return node.target in _ALLOCATIONS and bool(node.users) and all(map(is_triton_call, node.users))


def write_where_it_lies(graph: fx.Graph) -> None:
    """Turns functional calls into launches on memory of their own: the operand's where nobody else reads it, else a
    clone's. Calls whose clones would need gaps between their elements stay as they are."""
    for node in graph.find_nodes(op="call_function", target=triton_kernel_wrapper_functional):
        operands, written = dict(node.kwargs["kwargs"]), list(node.kwargs["tensors_to_clone"])
        if not all(layout_of(value_of(operands[name])).dense for name in written):
            continue
        seen: set[fx.Node] = set()
        for name in written:
            operand = operands[name]
            if _is_its_own(operand, node) and operand not in seen and \
                    sum(each is operand for each in operands.values()) == 1:
                seen.add(operand)
                continue
            with graph.inserting_before(node):
                operands[name] = graph.call_function(_aten.clone.default, (operand,))
            operands[name].meta.update(operand.meta)
        kwargs = {name: value for name, value in node.kwargs.items() if name != "tensors_to_clone"}
        node.kwargs = {**kwargs, "kwargs": operands, "written": written}
        node.target = launch_triton
        value = value_of(node)
        node.meta["val"] = tuple(value.values()) if isinstance(value, dict) else value


def _is_its_own(operand: fx.Node, reader: fx.Node) -> bool:
    schema = getattr(operand.target, "_schema", None)
    return operand.op == "call_function" and list(operand.users) == [reader] and schema is not None and \
        len(schema.returns) == 1 and all(result.alias_info is None for result in schema.returns)


def _identity(kernel: Any) -> Any:
    """What a kernel is, in every process: its source and all that it depends on, and the choices of its autotuner."""
    if hasattr(kernel, "cache_key"):
        return kernel.cache_key
    configs = sorted(str(each) for each in getattr(kernel, "configs", None) or ())
    return type(kernel).__name__, tuple(configs), _identity(kernel.fn)


def named_kernels(graph: fx.Graph) -> dict[int, tuple[Any, dict[int, dict[str, Any]]]]:
    """The kernels of a graph by their place in this process' table, each with the constants that it is given."""
    found: dict[int, tuple[Any, dict[int, dict[str, Any]]]] = {}
    for node in _calls(graph):
        place, constants = _places(node)
        _, known = found.setdefault(place, (_identity(kernel_side_table.get_kernel(place)), {}))
        known[constants] = kernel_side_table.get_constant_args(constants)
    return found


def rename_kernels(graph: fx.Graph, named: dict[int, tuple[Any, dict[int, dict[str, Any]]]]) -> None:
    """Makes a graph of another process name this one's kernels. Raises NotFound where it has no such kernel."""
    for node in _calls(graph):
        place, constant_args = _places(node)
        identity, constants = named[place]
        kernel = next((each for each in _known_kernels() if _identity(each) == identity), None)
        if kernel is None:
            raise NotFound("a Triton kernel that a cached graph calls is not in this process")
        node.kwargs = {**node.kwargs, "kernel_idx": kernel_side_table.add_kernel(kernel),
                       "constant_args_idx": kernel_side_table.add_constant_args(constants[constant_args])}


def _calls(graph: fx.Graph) -> list[fx.Node]:
    targets = (launch_triton, triton_kernel_wrapper_mutation, triton_kernel_wrapper_functional)
    return [node for node in graph.nodes if node.target in targets]


def _places(node: fx.Node) -> tuple[int, int]:
    named: Any = node.kwargs
    return named["kernel_idx"], named["constant_args_idx"]


def _known_kernels() -> Iterable[Any]:
    """Those that Dynamo has met, and those of ``triton_op``, which it does not look into."""
    from torch._library.triton import triton_ops_to_kernels

    yield from list(kernel_side_table.id_to_kernel.values())
    for kernels in list(triton_ops_to_kernels.values()):
        yield from kernels

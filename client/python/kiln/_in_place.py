"""Writes into what a graph is given, made in place where that is safe: a KV cache is not copied for one row.

AOTAutograd makes a graph functional: ``cache.index_copy_(…)`` becomes a new tensor, and a ``copy_`` of all of it into
the cache at the end of the graph. Here such an op becomes in place again, when nobody reads the old value after it:
every other reader of it is one that the op itself depends on. An op that writes one row stays as it is where a program
of Kiln's writes that row in place; others, and those that no program has so, run eager between programs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kiln._emit import value_of

_aten = torch.ops.aten
LEAST_BYTES = 64 << 10  # smaller ones cost less to copy than a program that is cut in two


def write_slice(base: torch.Tensor, value: torch.Tensor, *where: Any, **named: Any) -> torch.Tensor:
    """``slice_scatter`` in place."""
    _aten.slice.Tensor(base, *where, **named).copy_(value)
    return base


def write_select(base: torch.Tensor, value: torch.Tensor, *where: Any, **named: Any) -> torch.Tensor:
    """``select_scatter`` in place."""
    _aten.select.int(base, *where, **named).copy_(value)
    return base


_IN_PLACE: dict[Any, Any] = {
    _aten.index_put.default: _aten.index_put_.default, _aten.index_copy.default: _aten.index_copy_.default,
    _aten.index_add.default: _aten.index_add_.default, _aten.index_fill.int_Scalar: _aten.index_fill_.int_Scalar,
    _aten.scatter.src: _aten.scatter_.src, _aten.scatter.value: _aten.scatter_.value,
    _aten.scatter_add.default: _aten.scatter_add_.default, _aten.slice_scatter.default: write_slice,
    _aten.select_scatter.default: write_select}
_WRITES = frozenset(_IN_PLACE.values())


def is_write(node: fx.Node) -> bool:
    """Whether the node writes in place what was a new tensor before."""
    return node.target in _WRITES


def is_final_write(node: fx.Node) -> bool:
    """Whether the node gives an input of the graph its new value, after all that the graph does."""
    return node.target is _aten.copy_.default and not node.users and isinstance(node.args[0], fx.Node) \
        and node.args[0].op == "placeholder"


def _bytes(value: torch.Tensor) -> int:
    elements = 1
    for size in value.shape:
        hint = size.node.hint if isinstance(size, torch.SymInt) else size
        elements *= hint if isinstance(hint, int) else 1
    return elements * value.element_size()


def _lie_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    def expressions(sizes: Any) -> list[Any]:
        return [size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes]

    return one.dtype == other.dtype and expressions(one.shape) == expressions(other.shape) and \
        expressions(one.stride()) == expressions(other.stride())


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        for operand in waiting.pop().all_input_nodes:
            if operand not in found:
                found.add(operand)
                waiting.append(operand)
    return found


def _aliases(node: fx.Node, writer: fx.Node) -> set[fx.Node]:
    """The node, and whatever may lie in its memory besides what ``writer`` makes of it."""
    found, waiting = {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            schema = getattr(user.target, "_schema", None)
            looks = schema is None or isinstance(value_of(user), (list, tuple)) or any(
                result.alias_info is not None for result in schema.returns)
            if user.op == "call_function" and user is not writer and looks and user not in found:
                found.add(user)
                waiting.append(user)
    return found


def _is_safe(writer: fx.Node, base: fx.Node, final: fx.Node) -> bool:
    aliases = _aliases(base, writer) - {final}
    if any(operand in aliases for operand in writer.all_input_nodes if operand is not base):
        return False  # it reads what it writes
    if sum(operand is base for operand in [*writer.args, *writer.kwargs.values()]) != 1:
        return False
    readers = {user for alias in aliases for user in alias.users} - aliases - {writer, final}
    return not readers or readers <= _ancestors(writer)


def _written(final: fx.Node) -> list[fx.Node]:
    """The ops that lead from a graph's input to the value that it is given at the end, if all may be in place."""
    given, node = final.all_input_nodes[0], final.args[1]
    chain: list[fx.Node] = []
    while node is not given:
        if not isinstance(node, fx.Node) or node.target not in _IN_PLACE or not isinstance(node.args[0], fx.Node) or \
                not _lie_alike(value_of(node), value_of(given)) or not _is_safe(node, node.args[0], final):
            return []
        chain.append(node)
        node = node.args[0]
    last = _aliases(chain[0], final) if chain else set()
    if any(user.op == "output" for alias in last for user in alias.users):
        return []  # a result that the caller may keep
    return chain


def _writes_one_row(node: fx.Node) -> bool:
    """Whether it replaces one row along an axis that is not the last."""
    rank = value_of(node).ndim
    given: Any = node.args[1:]
    if node.target is _aten.index_copy.default:
        places = [(given[0] % rank, given[1])]
    elif node.target is _aten.index_put.default and not node.kwargs.get("accumulate") and given[2:] != (True,):
        places = [(axis, index) for axis, index in enumerate(given[0]) if index is not None]
    else:
        return False
    if len(places) != 1:
        return False
    axis, index = places[0]
    return axis < rank - 1 and value_of(index).dtype is not torch.bool and tuple(value_of(index).shape) in ((), (1,))


def write_in_place(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Makes what is safe in place, and drops the copies that it makes needless.

    Returns the ops that a program may do in place, each with the copy at the end of the graph that is needless then.
    """
    rows: dict[fx.Node, fx.Node] = {}
    for final in [node for node in graph.nodes if is_final_write(node)]:
        if _bytes(value_of(final.all_input_nodes[0])) < LEAST_BYTES:
            continue
        chain = _written(final)
        if len(chain) == 1 and _writes_one_row(chain[0]):
            rows[chain[0]] = final
            continue
        for node in chain:
            node.target = _IN_PLACE[node.target]
        if chain:
            graph.erase_node(final)
    return rows


def write_eager(graph: fx.Graph, writer: fx.Node, final: fx.Node) -> None:
    """Makes an op of ``write_in_place()`` one that runs in place between programs."""
    writer.target = _IN_PLACE[writer.target]
    graph.erase_node(final)

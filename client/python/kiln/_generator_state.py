"""The state of a random generator that flash attention's op gives its backward op, of a dtype that Kiln does not have.
Where nothing is dropped nobody reads it, and neither op needs it."""

from __future__ import annotations

import operator

import torch
from torch import fx

from kiln._emit import value_of

_aten = torch.ops.aten
_NAMES = frozenset({"rng_state", "unused", "philox_seed", "philox_offset"})  # of results and arguments


def drops_nothing(node: fx.Node) -> bool:
    """Whether the op has a probability of dropping, and that is 0."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    for index, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = node.args[index] if index < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return isinstance(given, (int, float)) and given == 0
    return False


def _is_state(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.uint64


def ignore_generator_state(graph: fx.Graph) -> None:
    """Readers of the state get memory that nothing is written to, attention's backward op another of its arguments."""
    for node in list(graph.nodes):
        if not drops_nothing(node):
            continue
        returns, arguments = node.target._schema.returns, node.target._schema.arguments
        for user in list(node.users):
            value = value_of(user)
            if user.target is operator.getitem and _is_state(value) and returns[user.args[1]].name in _NAMES:
                with graph.inserting_before(user):
                    memory = graph.call_function(_aten.empty.memory_format, (list(value.shape),),
                                                 {"dtype": value.dtype, "device": value.device})
                memory.meta = dict(user.meta)
                user.replace_all_uses_with(memory)
                graph.erase_node(user)
        for index, given in enumerate(node.args):
            if isinstance(given, fx.Node) and arguments[index].name in _NAMES and _is_state(value_of(given)):
                node.update_arg(index, node.args[0])

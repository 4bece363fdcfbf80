"""Parts of a graph that Kiln does not cover, compiled by Inductor: ``options={"uncovered": "inductor"}``."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import fx

from kiln._emit import value_of
from kiln._partition import has_effect, is_random, tensors_of
from kiln._settings import Settings
from kiln._triton_calls import is_triton_call


def _sizes_are_known(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return False
    return all(isinstance(size, int) for each in tensors_of(value)
               for size in (*each.shape, *each.stride(), each.storage_offset()))


def is_fit(node: fx.Node) -> bool:
    """Whether Inductor may compile a node: its sizes are known, and it only computes. What draws random numbers stays
    eager, since Inductor's are others than torch's."""
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        return is_fit(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and not (
        has_effect(node) or is_random(node) or is_triton_call(node)) and all(
        _sizes_are_known(value_of(each)) for each in (node, *node.all_input_nodes))


def split(nodes: Sequence[fx.Node]) -> list[tuple[bool, list[fx.Node]]]:
    """The nodes of a part in pieces, in order, each of which Inductor may compile or may not. A node's own results,
    of several, stay with it."""
    inside, ordered = set(nodes), list[fx.Node]()

    def append(node: fx.Node) -> None:
        ordered.append(node)
        for user in node.users:
            if user.target is operator.getitem and user in inside:
                append(user)

    for node in nodes:
        if node.target is not operator.getitem or node.args[0] not in inside:
            append(node)
    return [(fit, list(piece)) for fit, piece in itertools.groupby(ordered, is_fit)]


class InductorPart:
    """A module that Inductor compiles for its first inputs. Eager, and that is said once, where Inductor cannot."""

    def __init__(self, module: fx.GraphModule, settings: Settings) -> None:
        self._module, self._settings = module, settings
        self._lock = threading.Lock()
        self._run: Callable[..., Sequence[Any]] | None = None

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        run = self._run
        if run is None:
            with self._lock:
                run = self._run = self._run or self._compiled(inputs)
        return run(*inputs)

    def _compiled(self, inputs: Sequence[Any]) -> Callable[..., Sequence[Any]]:
        try:
            # A thread of its own: in this one AOTAutograd, which calls us, has switched parts of torch off.
            with ThreadPoolExecutor(1, "kiln-inductor") as thread:
                return thread.submit(_compile, self._module, list(inputs)).result()
        except Exception as error:
            if self._settings.strict:
                raise
            self._settings.say_once(f"a part runs eager, since Inductor cannot compile it: {error}", "")
            forward: Callable[..., Sequence[Any]] = self._module.forward
            return forward


def _compile(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Sequence[Any]]:
    from torch._dynamo.utils import preserve_rng_state
    from torch._inductor import compile as compile_by_inductor

    with torch.no_grad(), preserve_rng_state():
        compiled: Callable[..., Sequence[Any]] = compile_by_inductor(module, inputs)
        compiled(*inputs)  # some errors come with the first call
    return compiled

"""Pieces of a model, as vLLM and SGLang cut it, compiled one by one.

Both trace a model with Dynamo, cut the graph at its attention, and give each piece to a compiler with tensors whose
first size is symbolic. vLLM drops Dynamo's guards: the piece is called with every number of tokens, 1 too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from kiln import __version__, dynamo
from kiln._settings import Settings


class Piece:
    """A compiled piece: a function of the graph's inputs. Threads may call it.

    ``serialize()``: bytes that ``torch._inductor.standalone_compile.AOTCompiledArtifact.deserialize`` makes a function
    of, which returns a tuple; it asks for the programs again, where programs come from. Raises RuntimeError where the
    piece cannot be kept, since a part of it failed to compile, say.
    """

    def __init__(self, function: Any, returns_tuple: bool) -> None:
        self._function, self._returns_tuple = function, returns_tuple

    def __call__(self, *args: Any) -> Any:
        results = self._function(*args)
        return results if self._returns_tuple else results[0]

    def serialize(self) -> bytes:
        from torch._dynamo.aot_compile_types import BundledAOTAutogradSerializableCallable as Bundled

        if not hasattr(self._function, "serialize"):
            raise RuntimeError("a piece that Kiln compiled cannot be kept: torch's AOTAutogradCache is off, or is not "
                               "as Kiln knows it")
        return Bundled.serialize_compile_artifacts(Bundled(self._function))


def compile_piece(graph: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Piece:
    """Compiles a piece for inference. ``example_inputs``: tensors, fake or not, and numbers, a value for each
    input. The graph is not changed. What Kiln does not cover runs eager."""
    module, returns_tuple = _with_tuple(graph)
    with _on_its_own(example_inputs), torch.no_grad():
        return Piece(dynamo.compile_graph(module, example_inputs, settings), returns_tuple)


def settings_of(mode: str) -> Settings:
    """The settings of pieces. Raises InvalidArgument: no such mode of torch.compile."""
    settings = Settings(mode)
    settings.captures = False  # the stacks capture pieces themselves
    settings.takes_one = True
    return settings


def identity(settings: Settings) -> str:
    """What a compiled piece depends on beside the graph and the versions of its neighbours."""
    return f"kiln-{__version__}-{settings.mode}"


def _with_tuple(graph: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
    copied = fx.Graph()
    results = copied.graph_copy(graph.graph, {})
    returns_tuple = isinstance(results, (tuple, list))
    copied.output(tuple(results) if returns_tuple else (results,))  # type: ignore[arg-type]
    return fx.GraphModule(graph, copied), returns_tuple


@contextlib.contextmanager
def _on_its_own(example_inputs: Sequence[Any]) -> Iterator[None]:
    # The tracing that goes on around us is of the whole model, with fake tensors of another mode.
    mode = detect_fake_mode(example_inputs)
    if mode is None:
        mode = next((FakeTensorMode(shape_env=each.node.shape_env) for each in example_inputs
                     if isinstance(each, torch.SymInt)), None) or FakeTensorMode(shape_env=ShapeEnv())
    with tracing(TracingContext(mode)):
        yield

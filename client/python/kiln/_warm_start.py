"""Compiled graphs in torch's AOTAutogradCache: a process that compiles what another one has compiled traces its model
with Dynamo, and neither runs AOTAutograd nor asks Kiln for more than the programs.

The entries hold captured graphs, not programs: whoever loads an entry gets its programs where programs come from, under
its own options, and for its own device. One that cannot be got makes the entry a miss. What AOTAutograd gives for this
is private to torch: where a name is missing, nothing is cached, and that is said once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from kiln import __version__
from kiln._cuda_graphs import Boxed
from kiln._settings import Settings
from kiln._steps import CompiledGraph

_FORMAT = 7  # of what CompiledGraph and its steps pickle
_MADE_BY = f"{__version__}-{_FORMAT}"
_current = threading.local()  # .settings: of the torch.compile that this thread is in

try:
    from torch._functorch._aot_autograd.autograd_cache import (
        BypassAOTAutogradCache,
        should_use_local_autograd_cache,
        should_use_remote_autograd_cache,
    )
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
    from torch._inductor.output_code import OutputCode

    from kiln import _entry_keys
except ImportError as error:
    _missing: str | None = str(error)
else:
    _missing = None

if _missing is None:

    @dataclasses.dataclass
    class KilnCode(OutputCode):
        """One graph as AOTAutogradCache keeps it. ``graph``: None where it is not to be kept."""

        graph: CompiledGraph | None
        run: Boxed | None
        settings: Settings
        why_not: str = ""  #: kept
        made_by: str = _MADE_BY

        def __post_init__(self) -> None:
            self._boxed_call = True  # no attribute of the class, which torch's wrappers do not copy

        def __call__(self, inputs: list[Any]) -> Any:  # type: ignore[override]
            return self.run(inputs)  # type: ignore[misc]

        def prepare_for_serialization(self) -> None:
            """Called on a copy. Raises BypassAOTAutogradCache."""
            if self.graph is None or self.why_not:
                raise BypassAOTAutogradCache(f"Kiln's graph is not kept: {self.why_not}")
            self.run = None

        def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
            """Called on what was unpickled. An exception makes the entry a miss."""
            del example_inputs, constants, graph_kwargs
            assert self.graph is not None
            if self.made_by != _MADE_BY:  # torch's key says so too, but vLLM's does not
                raise RuntimeError(f"made by Kiln {self.made_by}, this is {_MADE_BY}")
            self.graph.load(getattr(_current, "settings", None) or self.settings)
            self.run = self.graph.runnable()

        def set_triton_bundle(self, triton_bundle: Any) -> None:
            """Nothing here is Triton's."""


def _in_kiln() -> bool:
    return getattr(_current, "settings", None) is not None


if _missing is None:
    _entry_keys.lighten(_in_kiln)


def is_available() -> bool:
    """Whether this process caches what AOTAutograd makes, on its disk or remotely."""
    if _missing is not None:
        Settings.say_once(f"this PyTorch's AOTAutogradCache is not as Kiln knows it ({_missing}): compiled graphs are "
                          "not cached", "")
        return False
    return bool(should_use_local_autograd_cache() or should_use_remote_autograd_cache())


def cacheable(compile: Callable[[fx.GraphModule, Sequence[Any]], tuple[Boxed | CompiledGraph, str]],
              settings: Settings) -> Any:
    """A compiler for AOTAutograd whose graphs are kept. ``compile`` also says why a graph is not to be kept."""

    def compile_code(module: fx.GraphModule, example_inputs: Sequence[Any]) -> KilnCode:
        made, why_not = compile(module, example_inputs)
        graph = made if isinstance(made, CompiledGraph) else None
        code = KilnCode(graph, graph.runnable() if graph is not None else made, settings, why_not)
        code._fx_graph_cache_key = "kiln"  # None would say that it is not to be kept
        code._fx_graph_cache_debug_lines = []
        return code

    return SerializableAOTDispatchCompiler(KilnCode, compile_code)


def _tag(settings: Settings) -> str:
    # What else an entry depends on and torch leaves out of its key.
    autocast = [(device, torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device)))
                for device in ("cpu", "cuda")]
    chosen = (settings.mode, settings.captures, settings.portable, settings.takes_one, settings.uncovered, autocast,
              torch.get_default_dtype())
    return f"kiln-{_MADE_BY}-{chosen}"


@contextlib.contextmanager
def caching(settings: Settings) -> Iterator[None]:
    """AOTAutograd keeps what it compiles here, and looks it up."""
    tag = torch.compiler.config.cache_key_tag + _tag(settings)
    outer = getattr(_current, "settings", None)
    _current.settings = settings
    try:
        # A backward that were lowered only when it is called would be compiled outside of this context.
        with torch._functorch.config.patch(bundled_autograd_cache=True, force_non_lazy_backward_lowering=True), \
                torch.compiler.config.patch(cache_key_tag=tag):  # type: ignore[attr-defined]
            yield
    finally:
        _current.settings = outer

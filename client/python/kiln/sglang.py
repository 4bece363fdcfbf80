"""SGLang compiled by Kiln: ``KILN_SGLANG=default`` or ``max-autotune`` in SGLang's environment.

Three places of SGLang take a compiler, and hooks of its registry give them Kiln where they would take Inductor: the
pieces of a model between its attention (``make_compiler``), the functions that it decorates
(``get_compiler_backend``), and the whole model under ``--enable-torch-compile`` (``patch_model``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import fx

from kiln._pieces import Piece, compile_piece, identity, settings_of

_PLACES = {"sglang.srt.compilation.backend.make_compiler": "make_compiler",
           "sglang.srt.compilation.torch_compile_decoration.patch_model": "patch_model",
           "sglang.srt.utils.common.get_compiler_backend": "get_compiler_backend"}


class KilnCompiler:
    """What SGLang calls as its ``CompilerInterface``; it makes one for each model."""

    name = "kiln"

    def __init__(self, mode: str) -> None:
        self._settings = settings_of(mode)

    def initialize_cache(self, cache_dir: str, disable_cache: bool = False, prefix: str = "") -> None:
        """Nothing is kept in SGLang's folder: pieces are found again in torch's cache and among Kiln's programs."""

    def compute_hash(self) -> str:
        """The name of SGLang's folder for this compiler."""
        return identity(self._settings)

    def compile(self, graph: fx.GraphModule, example_inputs: Sequence[Any], compiler_config: dict[str, Any],
                runtime_shape: int | None = None, key: str | None = None) -> tuple[Piece, None]:
        """The piece, and no handle. ``example_inputs`` may be symbolic or, with ``runtime_shape``, real."""
        del compiler_config, runtime_shape, key  # Inductor's; one program serves every size
        return compile_piece(graph, example_inputs, self._settings), None


class Hooks:
    """The functions that stand around SGLang's own, each given the original first."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def make_compiler(self, original: Callable[..., Any], config: Any) -> Any:
        """Kiln in place of Inductor; SGLang's default is "eager", which stays."""
        return KilnCompiler(self._mode) if config.compiler == "inductor" else original(config)

    def get_compiler_backend(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """A backend of torch.compile. Its mode is that of the call, if it has one: these functions have none."""
        chosen = original(*args, **named)
        return "kiln" if chosen == "inductor" else chosen

    @contextlib.contextmanager
    def patch_model(self, original: Callable[..., Any], *args: Any, **named: Any) -> Iterator[Any]:
        """The model's forward, compiled by Kiln if it is compiled; SGLang captures it into CUDA graphs itself."""
        mode = {"max-autotune": "max-autotune-no-cudagraphs"}.get(self._mode, self._mode)
        compile = torch.compile

        @functools.wraps(compile)
        def compile_with_kiln(*compile_args: Any, **compile_named: Any) -> Any:
            return compile(*compile_args, **{**compile_named, "backend": "kiln", "mode": mode})

        with contextlib.ExitStack() as stack:
            with mock.patch.object(torch, "compile", compile_with_kiln):
                forward = stack.enter_context(original(*args, **named))
            yield forward


def register(mode: str) -> None:
    """Registers the hooks; SGLang applies them when every plugin has registered its own."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    hooks = Hooks(mode)
    for place, name in _PLACES.items():
        HookRegistry.register(place, getattr(hooks, name), HookType.AROUND)
